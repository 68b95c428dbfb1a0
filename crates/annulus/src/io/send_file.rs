//! Copies from a file to a stream.
//!
//! A small part is read and queued. It leaves in the turn's send together with the bytes queued
//! before it, which costs less than a separate call. The pages of a larger part are sent with
//! `sendfile`, without a copy in user space. That call must block neither on the device nor on the
//! peer. If the socket has no space, the driver reports when it has some. If the pages are not
//! cached, one piece is read, off the loop if necessary, and queued.

use super::send::poll_room;
use super::transfer::Outgoing;
use crate::bytes::buf::IoBuf;
use crate::bytes::chunk::Chunk;
use crate::fs::File;
use crate::io::AsyncSend;
use crate::net::StreamHandle;
use rustix::io::Errno;
use std::future::poll_fn;
use std::io;
use std::mem;

/// Maximum number of bytes per `sendfile` call: about 100 µs of work.
const MAX_SENDFILE_BYTES: u32 = 1024 * 1024;
/// Maximum size of a piece that is read and sent when pages cannot be sent.
const PIECE_BYTES: usize = 64 * 1024;
/// Maximum size of a part that is read and queued instead of sent as pages.
const MAX_QUEUED_BYTES: u64 = 16 * 1024;

/// Sends `len` bytes of a file from `start` on, or up to its end, and returns the number of bytes.
/// Calls `moved` with the byte count of each step, without an await between the step and the call.
pub(super) async fn send_file(
    file: &File,
    start: u64,
    len: u64,
    to: &StreamHandle,
    moved: impl Fn(u64) -> io::Result<()>,
) -> io::Result<u64> {
    let mut sent = 0;
    let most = small_part(file, start, len);
    while sent < most {
        let count = send_small(file, start.saturating_add(sent), most - sent, to).await?;
        moved(count)?;
        sent += count;
        // A read is short at the end of the file, but also if the rest is not cached, and some
        // files, such as those in `/proc`, always return short reads.
        if count == 0 || sent < most && file.is_known_end(start.saturating_add(sent)) {
            return Ok(sent);
        }
    }
    if sent == len {
        return Ok(sent);
    }
    // Send the bytes that are already queued, such as the head of a response, so that they leave
    // with the first pages.
    let mut head = (len > 0 && to.send_queued()?).then(|| HeldHead(to));
    while sent < len {
        poll_fn(|cx| to.poll_drain(cx)).await?;
        let (offset, most) = (start.saturating_add(sent), len - sent);
        let pages = send_pages(file, offset, most, to).await;
        if let Some(head) = head.take()
            && matches!(pages, Ok(PagesOutcome::Sent(1..)))
        {
            mem::forget(head);
        }
        let (count, is_full) = match pages? {
            // `sendfile` also returns 0 for files that have no pages. Unless the end is known, only
            // an empty read proves it.
            PagesOutcome::Sent(0) if !file.is_known_end(offset) => {
                (send_piece(file, offset, most, to).await?, false)
            }
            PagesOutcome::NotSent => (send_piece(file, offset, most, to).await?, false),
            PagesOutcome::Sent(count) => (count, is_short(file, offset, most, count)),
            PagesOutcome::NoSpace => (0, true),
        };
        if count == 0 && !is_full {
            // Before Linux 6.5, the kernel holds back the last pages if the file ends sooner than
            // expected.
            if sent > 0 && !file.is_known_end(offset) {
                to.push_sent();
            }
            break;
        }
        moved(count)?;
        sent += count;
        if is_full {
            let mut has_started_poll = false;
            poll_fn(|cx| to.poll_writable(&mut has_started_poll, cx)).await?;
        }
    }
    Ok(sent)
}

/// Returns true if the socket has taken fewer pages than offered and the file continues. A file
/// that ends there (its length may have changed since it was opened) needs no wait for the peer:
/// the next attempt finds the end.
fn is_short(file: &File, offset: u64, most: u64, count: u64) -> bool {
    let offered = u64::from(stride(file, offset, most));
    let goes_on = || file.len_now().is_some_and(|len| offset.saturating_add(count) < len);
    (1..offered).contains(&count) && goes_on()
}

/// Returns how many bytes of pages to offer at a time. The file must have that many: before Linux
/// 6.5, the kernel would hold back the sent pages until the rest arrives.
fn stride(file: &File, offset: u64, most: u64) -> u32 {
    let there = file.expected_len(offset).filter(|there| *there > 0).unwrap_or(u64::MAX);
    most.min(there).min(u64::from(MAX_SENDFILE_BYTES)) as u32
}

/// Returns how many bytes to read and queue, or 0 if pages should be sent instead. If the part
/// extends beyond a nearby end of the file, returns one byte more than the file has left, so that a
/// short read shows the end.
fn small_part(file: &File, start: u64, len: u64) -> u64 {
    if !file.is_read_when_small() {
        return 0;
    }
    if len <= MAX_QUEUED_BYTES {
        return len;
    }
    match file.expected_len(start) {
        Some(expected @ 1..MAX_QUEUED_BYTES) => len.min(expected + 1),
        _ => 0,
    }
}

/// Bytes that the kernel holds back until the first pages follow. Dropping this sends them at once.
struct HeldHead<'a>(&'a StreamHandle);

impl Drop for HeldHead<'_> {
    fn drop(&mut self) {
        self.0.push_sent();
    }
}

/// Like [`send_file`], but reads and sends pieces, for a sink to which `sendfile` may block.
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
        let mut bytes = file.read_piece(start.saturating_add(sent), PIECE_BYTES).await?;
        cut(&mut bytes, len - sent);
        if bytes.is_empty() {
            break;
        }
        let mut piece = Outgoing::new(bytes);
        poll_fn(|cx| {
            let (taken, polled) = piece.poll_send(cx, to);
            sent += taken as u64;
            moved(taken as u64)?;
            polled
        })
        .await?;
    }
    poll_fn(|cx| to.poll_flush(cx)).await?;
    Ok(sent)
}

enum PagesOutcome {
    Sent(u64),
    /// The socket has no space.
    NoSpace,
    /// `sendfile` might wait for the device, or cannot send these pages.
    NotSent,
}

/// Sends at most `most` bytes of pages with `sendfile`, unless that would block.
async fn send_pages(
    file: &File,
    offset: u64,
    most: u64,
    to: &StreamHandle,
) -> io::Result<PagesOutcome> {
    file.wait_for_budget().await;
    let stride = stride(file, offset, most);
    let Some(sink) = to.page_sink()? else { return Ok(PagesOutcome::NotSent) };
    match file.send_pages(offset, stride, sink).transpose() {
        Ok(None) => Ok(PagesOutcome::NotSent),
        Ok(Some(count)) => Ok(PagesOutcome::Sent(u64::from(count))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(PagesOutcome::NoSpace),
        Err(error) if may_be_read_and_sent(&error) => Ok(PagesOutcome::NotSent),
        Err(error) => Err(error),
    }
}

/// Reads one piece and queues at most `most` bytes of it for sending. Returns 0 at the end of the
/// file.
async fn send_piece(file: &File, offset: u64, most: u64, to: &StreamHandle) -> io::Result<u64> {
    let mut bytes = file.read_piece(offset, PIECE_BYTES).await?;
    cut(&mut bytes, most);
    queue(bytes.into(), to).await
}

/// Like [`send_piece`], but reads into a spare buffer of the runtime, because freshly allocated
/// memory may cost a page fault per page.
async fn send_small(file: &File, offset: u64, most: u64, to: &StreamHandle) -> io::Result<u64> {
    let mut buffer = to.take_spare()?;
    buffer.reserve(most as usize);
    let (answer, slice) = file.read_at(buffer.slice(..most as usize), offset).await;
    answer?;
    queue(Chunk::copied(slice.into_inner()), to).await
}

async fn queue(chunk: Chunk, to: &StreamHandle) -> io::Result<u64> {
    let (count, mut chunk) = (chunk.len() as u64, Some(chunk));
    poll_fn(|cx| to.poll_enqueue(&mut chunk, cx)).await?;
    Ok(count)
}

fn cut(bytes: &mut Vec<u8>, most: u64) {
    bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
}

/// Returns true if the error may come from `sendfile` alone: file systems, sockets and seccomp
/// profiles refuse that call with many codes. Reading and sending then succeeds, or fails with the
/// actual error. Returns false for errors of the socket, because the socket reports them only once,
/// and a second attempt would lose them.
fn may_be_read_and_sent(error: &io::Error) -> bool {
    let of_call = [
        Errno::ACCESS,
        Errno::BADF,
        Errno::FAULT,
        Errno::INVAL,
        Errno::IO,
        Errno::ISDIR,
        Errno::NOBUFS,
        Errno::NODEV,
        Errno::NOMEM,
        Errno::NOSYS,
        Errno::NOTTY,
        Errno::OPNOTSUPP,
        Errno::OVERFLOW,
        Errno::PERM,
        Errno::SPIPE,
        Errno::XDEV,
    ];
    let code = error.raw_os_error();
    of_call.iter().any(|errno| code == Some(errno.raw_os_error()))
        || error.kind() == io::ErrorKind::Unsupported
}
