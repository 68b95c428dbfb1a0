//! The peer end of streams, in this process and on another core than the contenders: it takes the file or gives it, and
//! checks what it takes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use annulus_load::affinity;
use anyhow::{Context, Result, ensure};

use super::blocks::{check, pieces, stamp};

/// The first byte of a stream from which the peer end takes.
pub(super) const TAKE: &[u8] = b"T";
/// The first byte of one to which it gives.
pub(super) const GIVE: &[u8] = b"G";
/// What it answers at the end if all that it took was right.
pub(super) const RIGHT: &[u8] = b"R";

/// Serves streams of a file of so many bytes, until the process ends; where. A stream that breaks is its contender's to tell.
pub(super) fn serve(bytes: u64, core: Option<usize>) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    let address = listener.local_addr()?;
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let serve = move || {
                // Without a core of its own it is in the way of all contenders alike.
                let _pinned = core.map(affinity::pin);
                exchange(stream, bytes)
            };
            drop(thread::Builder::new().spawn(serve));
        }
    };
    thread::Builder::new().spawn(accept).context("cannot start a thread")?;
    Ok(address)
}

fn exchange(mut stream: TcpStream, bytes: u64) -> Result<()> {
    let mut wanted = [0];
    stream.read_exact(&mut wanted)?;
    if wanted == GIVE { Ok(give(&mut stream, bytes)?) } else { take(&mut stream, bytes) }
}

fn give(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    pieces(bytes).try_for_each(|(start, mut piece)| {
        stamp(&mut piece, start);
        stream.write_all(&piece)
    })
}

fn take(stream: &mut TcpStream, bytes: u64) -> Result<()> {
    for (start, mut piece) in pieces(bytes) {
        stream.read_exact(&mut piece)?;
        check(&piece, start)?;
    }
    ensure!(stream.read(&mut [0])? == 0, "more than the file has");
    Ok(stream.write_all(RIGHT)?)
}
