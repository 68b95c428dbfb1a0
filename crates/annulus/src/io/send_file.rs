//! From a file to a stream.
//!
//! Pages in memory are sent by `sendfile`, without a copy in user space. That call must not wait, neither for the device nor for the
//! peer. If the pages are not in memory, or the socket's send buffer is full, one piece is read and sent in the usual way, which
//! waits off the loop.

use super::send::poll_room;
use super::transfer::Outgoing;
use crate::fs::File;
use crate::io::AsyncSend;
use crate::net::StreamHandle;
use rustix::io::Errno;
use std::future::poll_fn;
use std::io;
use std::mem;

/// The most bytes that a `sendfile` moves: about 100 µs of work.
const STRIDE: u32 = 1024 * 1024;

/// Sends `len` bytes of a file from `start` on, or up to its end; the number of bytes. `moved` is called at each step, without an await in
/// between.
pub(super) async fn send_file(
    file: &File,
    start: u64,
    len: u64,
    to: &StreamHandle,
    moved: impl Fn(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let mut sent = 0;
    // Bytes that were accepted before, such as a head, leave with the first pages.
    let mut head = (len > 0 && to.send_queued()?).then(|| HeldHead(to));
    while sent < len {
        poll_fn(|cx| to.poll_drain(cx)).await?;
        let (offset, most) = (start.saturating_add(sent), len - sent);
        let pages = send_pages(file, offset, most, to).await;
        if let Some(head) = head.take()
            && matches!(pages, Ok(Some(1..)))
        {
            mem::forget(head);
        }
        let count = match pages? {
            Some(count) => count,
            None => send_piece(file, offset, most, to).await?,
        };
        if count == 0 {
            break;
        }
        moved(count)?;
        sent += count;
    }
    poll_fn(|cx| to.poll_drain(cx)).await?;
    Ok(sent)
}

/// Bytes that were sent and wait for pages: if none follow, or the copy is dropped before, they leave alone.
struct HeldHead<'a>(&'a StreamHandle);

impl Drop for HeldHead<'_> {
    fn drop(&mut self) {
        self.0.push_sent();
    }
}

/// As [`send_file`], to what takes no pages: pieces are read and sent.
pub(super) async fn send_pieces(
    file: &File,
    start: u64,
    len: u64,
    to: &mut dyn AsyncSend,
    moved: impl Fn(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let mut sent = 0;
    while sent < len {
        poll_fn(|cx| poll_room(cx, to)).await?;
        let mut bytes = file.read_piece(start.saturating_add(sent)).await?;
        cut(&mut bytes, len - sent);
        if bytes.is_empty() {
            break;
        }
        let mut piece = Outgoing::new(bytes);
        poll_fn(|cx| {
            let (accepted, polled) = piece.poll_send(cx, to);
            sent += accepted as u64;
            moved(accepted as u64)?;
            polled
        })
        .await?;
    }
    poll_fn(|cx| to.poll_flush(cx)).await?;
    Ok(sent)
}

/// Sends at most `most` bytes of pages by `sendfile`; `None` if that would wait, or cannot be done.
async fn send_pages(
    file: &File,
    offset: u64,
    most: u64,
    to: &StreamHandle,
) -> io::Result<Option<u64>> {
    file.wait_for_budget().await;
    let stride = most.min(u64::from(STRIDE)) as u32;
    let sent = to.with_fd(|_, fd| file.send_pages(offset, stride, fd).transpose());
    match sent {
        Ok(count) => Ok(count.map(u64::from)),
        Err(error) if may_be_read_and_sent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one piece of at most `most` bytes and queues it for sending; 0 at the end.
async fn send_piece(file: &File, offset: u64, most: u64, to: &StreamHandle) -> io::Result<u64> {
    let mut bytes = file.read_piece(offset).await?;
    cut(&mut bytes, most);
    let count = bytes.len() as u64;
    let mut chunk = Some(bytes.into());
    poll_fn(|cx| to.poll_accept(&mut chunk, cx)).await?;
    Ok(count)
}

/// Leaves `most` bytes.
fn cut(bytes: &mut Vec<u8>, most: u64) {
    bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
}

/// Whether the send buffer is full, or the two have no such call: reading and sending succeeds, or gives the error.
fn may_be_read_and_sent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, Unsupported, WouldBlock};
    // Not every standard library knows this one as `Unsupported`.
    let refused = error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error());
    refused || matches!(error.kind(), WouldBlock | InvalidInput | Unsupported)
}
