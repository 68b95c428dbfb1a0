//! From a file to a stream.
//!
//! What is in memory goes by `sendfile`, page by page, without being copied. That call must not wait, neither for the
//! device nor for the peer: where the pages are not in memory, or the peer's window is full, one piece is read and sent
//! the ordinary way, which waits off the loop, and after which there is data, or room, again.

use crate::fs::File;
use crate::net::StreamHandle;
use std::future::poll_fn;
use std::io;

/// Bytes a `sendfile` moves at most: about a hundred microseconds' worth.
const STRIDE: u32 = 1024 * 1024;

/// Sends a file from its cursor to its end; the number of bytes. The cursor moves with each step, in the same moment.
pub(super) async fn send_file(file: &File, to: &StreamHandle) -> io::Result<u64> {
    let (from, mut sent) = (file.move_cursor(0)?, 0);
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
        file.move_cursor(count as i64)?;
        sent += count;
    }
}

/// Sends pages as they are; `None` where that would wait, or cannot be done.
async fn send_pages(file: &File, offset: u64, to: &StreamHandle) -> io::Result<Option<u64>> {
    file.wait_for_budget().await;
    let sent = to.with_fd(|_, fd| file.send_pages(offset, STRIDE, fd).transpose());
    match sent {
        Ok(count) => Ok(count.map(u64::from)),
        Err(error) if is_worth_another_way(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one piece and has it accepted for sending; 0 at the end.
async fn send_piece(file: &File, offset: u64, to: &StreamHandle) -> io::Result<u64> {
    let bytes = file.read_piece(offset).await?;
    let count = bytes.len() as u64;
    let mut chunk = Some(bytes.into());
    poll_fn(|cx| to.poll_accept(&mut chunk, cx)).await?;
    Ok(count)
}

/// The window is full, or these two know no such call: reading and sending will do, or say what is wrong.
fn is_worth_another_way(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, Unsupported, WouldBlock};
    matches!(error.kind(), WouldBlock | InvalidInput | Unsupported)
}
