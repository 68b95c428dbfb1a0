//! The peer end of streams, in this process and on another core than the contenders. It sends or receives the file, and
//! verifies what it receives.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use annulus_load::affinity;
use anyhow::{Context, Result, ensure};

use super::blocks::{check, pieces, stamp};

/// The first byte of a stream from which the peer end receives.
pub(super) const TAKE: &[u8] = b"T";
/// The first byte of a stream to which it sends.
pub(super) const GIVE: &[u8] = b"G";
/// Its answer at the end, if everything it received was correct.
pub(super) const RIGHT: &[u8] = b"R";

/// Serves streams of a file of this length until the process ends; returns the address. Its contender reports a failed
/// stream.
pub(super) fn serve(bytes: u64, core: Option<usize>) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    let address = listener.local_addr()?;
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let serve = move || {
                // Without a core of its own it disturbs all contenders equally.
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
