//! Copies between files and streams, each with the cheapest available method.

use super::copy_ends::{CopySink, CopySource, Sink, Source};
use super::send_file::{send_file, send_pieces};
use super::transfer::{Outgoing, Transfer};
use crate::fs::File;
use crate::io::{AsyncRecv, AsyncSend};
use annulus_kernel::file::CURSOR_OFFSET;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::{Bound, RangeBounds};
use std::pin::pin;
use std::task::Poll;

/// Maximum number of bytes per read of [`append`] and [`in_order`].
const MAX_PIECE_BYTES: usize = 64 * 1024;

/// Copies everything from the current position of `from` to its end, and returns the number of
/// bytes once the sink has accepted the last one. A file has accepted a byte once the byte is in
/// the page cache. A stream of this crate has accepted a byte of a file once the byte is queued or
/// the kernel has taken it, and a byte of a stream once the kernel has taken it. Any other sink is
/// flushed.
///
/// Between files, and between their [streams](crate::fs::FileStream), holes stay holes, unless the
/// target was opened for append.
///
/// From a cached file to a socket of this crate, no bytes are copied in user space (`sendfile`),
/// unless at most 16 KiB are requested or less is left in the file. Such a small part is read, and
/// leaves together with the bytes sent before. Leases received from a stream are written or sent
/// without a copy. Files can be combined with every type that implements [`AsyncRecv`] or
/// [`AsyncSend`], and these types with each other.
///
/// If the peer is gone, the copy fails, but raises no SIGPIPE, unless the program started to handle
/// that signal after pages of a file were first sent to the socket.
///
/// ```
/// use annulus::io::copy;
/// use annulus::net::UnixStream;
///
/// # annulus::run(async {
/// let (client, server) = UnixStream::pair()?;
/// annulus::spawn(async move {
///     let (mut from, mut to) = server.into_split();
///     copy(&mut from, &mut to).await
/// });
/// let (mut echo, mut requests) = client.into_split();
/// requests.send("hello").await?;
/// drop(requests);
/// let mut answer = Vec::new();
/// assert_eq!(copy(&mut echo, &mut answer).await?, 5);
/// assert_eq!(answer, b"hello");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # What dropping the future does
///
/// Some bytes may have been copied, and a second copy continues after them. Bytes received from a
/// stream are still sent or written, and the cursor of a file is after the copied bytes. A write to
/// a file that was in flight may end after the second copy.
///
/// There are exceptions:
/// - Between files, or between their [streams](crate::fs::FileStream), both cursors move only at
///   the end, so a second copy starts from the beginning. If the target was opened for append, the
///   source's cursor moves with each piece instead.
/// - From or to a file that cannot seek, the piece that was read last may be lost.
/// - From a stream to a sink of another crate, the part of the current piece that the sink has not
///   accepted is lost.
///
/// # Errors
/// Errors from reading and writing. An error of the source is returned after the bytes before
/// it have been accepted, so it is delayed while the sink's peer does not read. If writing to a
/// file fails, its cursor is after the written bytes, and so is the cursor of a source file. If the
/// source is a stream, the rest of the piece that was received last is lost.
pub async fn copy(from: &mut impl CopySource, to: &mut impl CopySink) -> io::Result<u64> {
    copy_at_most(from, to, u64::MAX).await
}

/// Like [`copy`], but copies at most `limit` bytes. Later bytes stay in the source.
///
/// ```
/// # annulus::run(async {
/// let (mut source, mut sink) = (&b"a body, and what follows"[..], Vec::new());
/// assert_eq!(annulus::io::copy_at_most(&mut source, &mut sink, 6).await?, 6);
/// assert_eq!((&sink[..], source), (&b"a body"[..], &b", and what follows"[..]));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// The errors of [`copy`].
pub async fn copy_at_most(
    from: &mut impl CopySource,
    to: &mut impl CopySink,
    limit: u64,
) -> io::Result<u64> {
    let (mut from, mut to) = (from.source(), to.sink());
    let at_offsets =
        from.file().is_some_and(File::has_cursor) && to.file().is_some_and(File::writes_at_offsets);
    if at_offsets
        && let (Some(from), Some(to)) = (from.settled_file().await?, to.settled_file().await?)
    {
        return match from.position().await? {
            Some(start) => between_files(from, start, to, limit).await,
            None => in_order(from, Sink::File(to), limit).await,
        };
    }
    match (from, to) {
        (Source::File(from), Sink::File(to))
            if from.has_cursor() && to.has_cursor() && from.position().await?.is_some() =>
        {
            append(from, to, limit).await
        }
        (Source::File(from), Sink::File(to)) => in_order(from, Sink::File(to), limit).await,
        (Source::File(from), Sink::Send(to)) if !from.has_cursor() => {
            in_order(from, Sink::Send(to), limit).await
        }
        (Source::Recv(from), Sink::File(to)) => to_file(from, to, limit).await,
        (Source::Recv(from), Sink::Send(to)) => between_streams(from, to, limit).await,
        (Source::File(from), Sink::Send(to)) => {
            let Some(start) = from.position().await? else {
                return in_order(from, Sink::Send(to), limit).await;
            };
            let moved = |count| from.move_cursor(count as i64).map(drop);
            send_part(from, start, limit, to, moved).await
        }
    }
}

/// Copies a part of a file to a stream, after the bytes sent before, and returns the number of
/// bytes. Copies less than requested only if the file ends first. The file's cursor is neither used
/// nor moved, so several copies of one file may run at the same time. To copy a part of a file to
/// another file, use [`File::read_at`] and [`File::write_at`].
///
/// Bytes that a stream of this crate has queued, such as the head of a response, leave in the same
/// packets as the first pages if those are cached. What [`copy`] says about small parts and SIGPIPE
/// also applies here.
///
/// ```no_run
/// use annulus::fs::File;
/// use annulus::net::TcpStream;
///
/// async fn answer(page: &File, to: &mut TcpStream) -> std::io::Result<u64> {
///     to.send("HTTP/1.1 206 Partial Content\r\nContent-Length: 500\r\n\r\n").await?;
///     annulus::io::copy_range(page, 1000..1500, to).await
/// }
/// ```
///
/// # What dropping the future does
///
/// Any part of the range may have been sent, and the number of bytes is unknown.
///
/// # Errors
/// The errors of [`copy`], and `InvalidInput` for a range that ends before it starts.
pub async fn copy_range(
    from: &File,
    range: impl RangeBounds<u64>,
    to: &mut impl AsyncSend,
) -> io::Result<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    let Some(len) = end.checked_sub(start) else {
        let text = format!("the range {start} to {end} ends before it starts");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    send_part(from, start, len, to, |_| Ok(())).await
}

/// Sends `len` bytes of a file. Calls `moved` with the byte count of each step. No await separates
/// a step from that call, so dropping the future cannot skip it.
async fn send_part(
    from: &File,
    start: u64,
    len: u64,
    to: &mut dyn AsyncSend,
    moved: impl Fn(u64) -> io::Result<()>,
) -> io::Result<u64> {
    match to.own_stream() {
        Some(stream) if stream.takes_pages => {
            send_file(from, start, len, stream.handle, moved).await
        }
        _ => send_pieces(from, start, len, to, moved).await,
    }
}

async fn between_files(from: &File, start: u64, to: &File, limit: u64) -> io::Result<u64> {
    let there = to.move_cursor(0)?;
    let mut copied = 0;
    let ended = from.copy_range_to(start, to, there, limit, &mut copied).await;
    from.move_cursor(copied as i64)?;
    to.move_cursor(copied as i64)?;
    ended.map(|()| copied)
}

/// Copies to the end of a file opened for append. The source's cursor moves past a piece when its
/// write starts, and that write is finished even if the copy is dropped.
async fn append(from: &File, to: &File, limit: u64) -> io::Result<u64> {
    let cached = to.through_the_cache().await?;
    to.check_dropped_writes()?;
    let mut copied = 0;
    while copied < limit {
        drop(from.wait_for_cursor_calls().await?);
        let start = from.move_cursor(0)?;
        let most = usize::try_from(limit - copied)
            .map_or(MAX_PIECE_BYTES, |left| left.min(MAX_PIECE_BYTES));
        let mut piece = from.read_piece(start, most).await?;
        piece.truncate(most);
        if piece.is_empty() {
            break;
        }
        let (len, mut written) = (piece.len(), 0);
        // No await separates this from the first poll of the write, so the copy cannot be dropped
        // after the cursor has moved but before the write starts.
        from.move_cursor(len as i64)?;
        let ended = to.write_detached(piece.into(), cached.as_ref(), &mut written).await;
        copied += written as u64;
        if ended.is_err() {
            from.move_cursor(written as i64 - len as i64)?;
        }
        ended?;
    }
    Ok(copied)
}

/// Copies from or to a file without a cursor, such as a pipe or a terminal, in pieces. If the copy
/// is dropped, a piece that was read but not accepted by the sink is lost.
async fn in_order(from: &File, mut to: Sink<'_>, limit: u64) -> io::Result<u64> {
    let (mut copied, mut unflushed) = (0, false);
    let cached = match &to {
        Sink::File(to) => {
            let cached = to.through_the_cache().await?;
            to.check_dropped_writes()?;
            cached
        }
        Sink::Send(_) => None,
    };
    while copied < limit {
        let most = usize::try_from(limit - copied)
            .map_or(MAX_PIECE_BYTES, |left| left.min(MAX_PIECE_BYTES));
        let mut read = pin!(from.read_once(Vec::with_capacity(most)));
        let (count, bytes) = poll_fn(|cx| {
            let polled = read.as_mut().poll(cx);
            match &mut to {
                // The source may stay idle until its peer receives the bytes that the sink still
                // buffers.
                Sink::Send(to) if polled.is_pending() && unflushed => {
                    unflushed = to.poll_flush(cx)?.is_pending();
                    Poll::Pending
                }
                _ => polled.map(Ok::<_, io::Error>),
            }
        })
        .await?;
        if count? == 0 {
            break;
        }
        copied += bytes.len() as u64;
        match &mut to {
            Sink::File(to) if to.has_cursor() => {
                to.write_detached(bytes.into(), cached.as_ref(), &mut 0).await?;
            }
            Sink::File(to) => to.write_whole(bytes, |_| CURSOR_OFFSET, None, &mut 0).await.0?,
            Sink::Send(to) => {
                let mut piece = Outgoing::new(bytes);
                poll_fn(|cx| piece.poll_send(cx, *to).1).await?;
                unflushed = true;
            }
        }
    }
    if let Sink::Send(to) = &mut to {
        poll_fn(|cx| to.poll_flush(cx)).await?;
    }
    Ok(copied)
}

async fn to_file(from: &mut dyn AsyncRecv, to: &File, limit: u64) -> io::Result<u64> {
    let cached = to.through_the_cache().await?;
    to.check_dropped_writes()?;
    let mut transfer = Transfer::new(limit);
    while let Some(lease) = poll_fn(|cx| transfer.poll_next(cx, from)).await? {
        let len = lease.len();
        to.write_detached(lease.into(), cached.as_ref(), &mut 0).await?;
        transfer.note(len);
    }
    Ok(transfer.copied())
}

async fn between_streams(
    from: &mut dyn AsyncRecv,
    to: &mut dyn AsyncSend,
    limit: u64,
) -> io::Result<u64> {
    let mut transfer = Transfer::new(limit);
    poll_fn(|cx| transfer.poll(cx, from, to)).await?;
    match to.own_stream() {
        Some(stream) => poll_fn(|cx| stream.handle.poll_drain(cx)).await?,
        None => poll_fn(|cx| to.poll_flush(cx)).await?,
    }
    Ok(transfer.copied())
}
