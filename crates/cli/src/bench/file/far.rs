//! The far end of streams, in this process and away from the contenders' core: it takes the file or gives it, and checks
//! what it takes.

use super::blocks::{PIECE, check, stamp};
use annulus_load::affinity;
use anyhow::{Context, Result, ensure};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// What a stream begins with, that the far end takes from.
pub(super) const TAKE: &[u8] = b"T";
/// What one begins with, that the far end gives to.
pub(super) const GIVE: &[u8] = b"G";
/// What the far end says at the end, where all that it took was right.
pub(super) const RIGHT: &[u8] = b"R";

/// Serves streams of a file of so many bytes, until the process ends; where. A stream that breaks is its contender's to tell.
pub(super) fn serve(bytes: u64, core: Option<usize>) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    let address = listener.local_addr()?;
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let serve = move || {
                // Where it cannot be kept away, it is in everybody's way alike.
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

/// Where each piece of a file begins, and memory for it.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let starts = (0..bytes).step_by(PIECE as usize);
    starts.map(move |start| (start, vec![0; PIECE.min(bytes - start) as usize]))
}
