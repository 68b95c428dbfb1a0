//! From a file to a stream.
//!
//! What is in memory goes by `sendfile`, page by page, without being copied. That call must not wait, neither for the
//! device nor for the peer: where the pages are not in memory, or the peer's window is full, one piece is read and sent
//! the ordinary way, which waits off the loop, and after which there is data, or room, again.
#![allow(unsafe_code)]

use crate::fs::{File, Policy};
use crate::net::Socket;
use annulus_ring::file::FileCall;
use std::future::poll_fn;
use std::io;

/// Bytes a `sendfile` moves at most: about a hundred microseconds' worth.
const STRIDE: u32 = 1024 * 1024;
/// Bytes of a piece that is read and sent.
const PIECE: usize = 64 * 1024;

/// Sends a file from an offset to its end; the number of bytes.
pub(super) async fn send_file(file: &File, from: u64, to: &Socket) -> io::Result<u64> {
    let mut sent = 0;
    loop {
        // What was accepted before goes first.
        poll_fn(|cx| to.poll_flush(cx)).await?;
        let count = match send_pages(file, from + sent, to).await? {
            Some(count) => count,
            None => send_piece(file, from + sent, to).await?,
        };
        if count == 0 {
            return Ok(sent);
        }
        sent += count;
    }
}

/// Sends pages as they are; `None` where that would wait, or cannot be done.
async fn send_pages(file: &File, offset: u64, to: &Socket) -> io::Result<Option<u64>> {
    if file.policy() == Policy::Offload || !file.has_in_memory(offset, STRIDE) {
        return Ok(None);
    }
    file.breathe().await;
    let sent = to.with_fd(|kernel, fd| {
        let call = FileCall::Send { from: file.as_raw_fd(), offset, to: fd, len: STRIDE };
        // SAFETY: the call names no memory; both descriptors are held open by their handles.
        unsafe { kernel.file(&call) }
    });
    match sent {
        Ok(count) => Ok(Some(u64::from(count))),
        Err(error) if is_worth_another_way(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one piece and sends it; 0 at the end.
async fn send_piece(file: &File, offset: u64, to: &Socket) -> io::Result<u64> {
    let (read, bytes) = file.read_at(Vec::with_capacity(PIECE), offset).await;
    let count = read?;
    if count > 0 {
        to.send(bytes.into()).await?;
    }
    Ok(count as u64)
}

/// The window is full, or these two know no such call: reading and sending will do, or say what is wrong.
fn is_worth_another_way(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, Unsupported, WouldBlock};
    matches!(error.kind(), WouldBlock | InvalidInput | Unsupported)
}
