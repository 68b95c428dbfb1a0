//! From a file to a stream.
//!
//! Pages in memory are sent by `sendfile`, without a copy in user space. That call must not wait, neither for the device nor for the
//! peer. If the pages are not in memory, or the socket's send buffer is full, one piece is read and sent in the usual way, which
//! waits off the loop.

use crate::fs::File;
use crate::net::StreamHandle;
use rustix::io::Errno;
use std::future::poll_fn;
use std::io;

/// The most bytes that a `sendfile` moves: about 100 µs of work.
const STRIDE: u32 = 1024 * 1024;

/// Sends a file from its cursor to its end; the number of bytes. The cursor moves with each step, without an await in between.
pub(super) async fn send_file(file: &File, to: &StreamHandle) -> io::Result<u64> {
    let (from, mut sent) = (file.move_cursor(0)?, 0);
    loop {
        // Bytes that were accepted before are sent first.
        poll_fn(|cx| to.poll_drain(cx)).await?;
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

/// Sends pages by `sendfile`; `None` if that would wait, or cannot be done.
async fn send_pages(file: &File, offset: u64, to: &StreamHandle) -> io::Result<Option<u64>> {
    file.wait_for_budget().await;
    let sent = to.with_fd(|_, fd| file.send_pages(offset, STRIDE, fd).transpose());
    match sent {
        Ok(count) => Ok(count.map(u64::from)),
        Err(error) if may_be_read_and_sent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one piece and queues it for sending; 0 at the end.
async fn send_piece(file: &File, offset: u64, to: &StreamHandle) -> io::Result<u64> {
    let bytes = file.read_piece(offset).await?;
    let count = bytes.len() as u64;
    let mut chunk = Some(bytes.into());
    poll_fn(|cx| to.poll_accept(&mut chunk, cx)).await?;
    Ok(count)
}

/// Whether the send buffer is full, or the two have no such call: reading and sending succeeds, or gives the error.
fn may_be_read_and_sent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, Unsupported, WouldBlock};
    // Not every standard library knows this one as `Unsupported`.
    let refused = error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error());
    refused || matches!(error.kind(), WouldBlock | InvalidInput | Unsupported)
}
