//! A stream that can be taken back from hyper, and that records what hyper does with it.

use super::activity::Activity;
use crate::OnThread;
use crate::hyper::poll_read;
use annulus::io::{AsyncRecv, AsyncSend};
use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A stream whose reads and writes are recorded. It is `Send`, which hyper requires of streams that
/// may be upgraded.
pub(super) struct Watched<T>(OnThread<Noted<T>>);

struct Noted<T> {
    stream: T,
    activity: Rc<Activity>,
    /// Bytes that hyper had read but not used. They are read first.
    prefix: Bytes,
}

impl<T> Watched<T> {
    pub(super) fn new(stream: T, activity: Rc<Activity>) -> Self {
        Self(OnThread::new(Noted { stream, activity, prefix: Bytes::new() }))
    }
}

impl<T: Unpin> Watched<T> {
    fn noted(&mut self) -> io::Result<&mut Noted<T>> {
        Ok(self.0.try_mut()?)
    }
}

impl<T: AsyncRecv + AsyncSend + Unpin> Watched<T> {
    /// Makes the next reads return these bytes first.
    pub(super) fn put_back(&mut self, unused: Bytes) -> io::Result<()> {
        let prefix = &mut self.noted()?.prefix;
        // `unused` was read from the prefix, so what is left of the prefix follows it in the
        // stream.
        *prefix = match (unused.is_empty(), prefix.is_empty()) {
            (true, _) => std::mem::take(prefix),
            (false, true) => unused,
            (false, false) => [&*unused, &**prefix].concat().into(),
        };
        Ok(())
    }

    /// Waits until a read would return; true if it would return bytes, false at the end of the
    /// stream.
    pub(super) fn poll_has_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let this = self.noted()?;
        if !this.prefix.is_empty() {
            return Poll::Ready(Ok(true));
        }
        this.stream.poll_fill_buf(cx).map_ok(|bytes| !bytes.is_empty())
    }

    /// Shuts down the sending direction.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.noted()?.stream.poll_shutdown(cx)
    }
}

impl<T: AsyncRecv + Unpin> Read for Watched<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut().noted()?;
        let count = if this.prefix.is_empty() {
            ready!(poll_read(&mut this.stream, cx, &mut buf))?
        } else {
            let count = this.prefix.len().min(buf.remaining());
            buf.put_slice(&this.prefix[..count]);
            this.prefix.advance(count);
            count
        };
        if count > 0 {
            this.activity.note_unparsed();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRecv + AsyncSend + Unpin> Write for Watched<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut().noted()?;
        this.activity.note_unflushed(true);
        this.stream.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut().noted()?;
        ready!(this.stream.poll_flush(cx))?;
        this.activity.note_unflushed(false);
        // hyper does not read while it handles a request, but it flushes on each poll, so check for
        // errors here. The end of the stream is a half-close; an error ends the request.
        if this.activity.is_handling()
            && let Poll::Ready(Err(error)) = this.stream.poll_fill_buf(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().noted()?.stream.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut().noted()?;
        this.activity.note_unflushed(true);
        this.stream.poll_write_vectored(cx, slices)
    }
}
