//! From a file to a stream.
//!
//! What is in memory goes by `sendfile`, page by page, without being copied. That call must not wait, neither for the
//! device nor for the peer: where the pages are not in memory, or the peer's window is full, one piece is read and sent
//! the ordinary way, which waits off the loop, and after which there is data, or room, again.

use crate::fs::{AlignedBuf, File, PIECE};
use crate::net::Socket;
use std::future::poll_fn;
use std::io;

/// Bytes a `sendfile` moves at most: about a hundred microseconds' worth.
const STRIDE: u32 = 1024 * 1024;

/// What direct I/O is at most aligned to, on the devices there are.
const ALIGNMENT: usize = 4096;

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
    file.breathe().await;
    let sent = to.with_fd(|_, fd| file.send_pages(offset, STRIDE, fd).transpose());
    match sent {
        Ok(count) => Ok(count.map(u64::from)),
        Err(error) if is_worth_another_way(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one piece and sends it; 0 at the end.
async fn send_piece(file: &File, offset: u64, to: &Socket) -> io::Result<u64> {
    let bytes = read_piece(file, offset).await?;
    let count = bytes.len() as u64;
    if count > 0 {
        to.send(bytes.into()).await?;
    }
    Ok(count)
}

async fn read_piece(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    if file.is_direct() {
        let past = offset % ALIGNMENT as u64;
        let (read, bytes) = file.read_at(AlignedBuf::new(PIECE, ALIGNMENT)?, offset - past).await;
        return Ok(bytes[..read?].get(past as usize..).unwrap_or_default().to_vec());
    }
    let (read, bytes) = file.read_at(Vec::with_capacity(PIECE), offset).await;
    read.map(|_| bytes)
}

/// The window is full, or these two know no such call: reading and sending will do, or say what is wrong.
fn is_worth_another_way(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, Unsupported, WouldBlock};
    matches!(error.kind(), WouldBlock | InvalidInput | Unsupported)
}
