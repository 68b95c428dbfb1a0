//! [`AsyncRecv`] and [`AsyncSend`] for a file as a stream.

use super::{AsyncRecv, AsyncSend};
use crate::bytes::chunk::Chunk;
use crate::fs::FileStream;
use crate::fs::stream::{MAX_PIECE_BYTES, Unwritten};
use crate::fs::transfer::Write;
use annulus_kernel::file::CURSOR_OFFSET;
use std::io::{self, IoSlice};
use std::mem;
use std::task::{Context, Poll, ready};

impl AsyncRecv for FileStream {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        ready!(self.poll_sought(cx))?;
        while !self.ended && self.unread().len() < n.max(1) {
            self.ended = ready!(self.poll_more(cx))? == 0;
        }
        Poll::Ready(Ok(self.unread()))
    }

    fn consume(&mut self, n: usize) {
        let shown = self.unread().len();
        assert!(n <= shown, "consume({n}), but only {shown} bytes are shown");
        self.consumed += n;
        // Even `consume(0)` discards the end, so that the next call checks whether the file has
        // grown.
        self.ended = false;
    }

    fn own_file(&mut self) -> Option<&mut FileStream> {
        (!self.shares_cursor).then_some(self)
    }
}

impl AsyncSend for FileStream {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_write_next(cx))?;
        let mut buf = mem::take(&mut self.copy);
        buf.clear();
        for slice in slices {
            buf.extend_from_slice(&slice[..slice.len().min(MAX_PIECE_BYTES - buf.len())]);
        }
        let queued = buf.len();
        if queued == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut args = Write { buf, done: 0, offset: CURSOR_OFFSET, guard: None };
        if let Some(written) = self.file.try_write(&mut args) {
            self.copy = args.buf;
            return Poll::Ready(written);
        }
        self.write_in_task(Unwritten::new(args.buf.into(), 0)).map_err(|(error, _)| error)?;
        Poll::Ready(Ok(queued))
    }

    /// Queues the whole chunk without copying it, once the previous writes are done.
    fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        // Wait even for an empty chunk: a copy sends one to learn whether bytes from its source
        // would be queued at once.
        ready!(self.poll_write_next(cx))?;
        let total = chunk.len();
        if total == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut args = Write {
            buf: mem::replace(chunk, Chunk::EMPTY),
            done: 0,
            offset: CURSOR_OFFSET,
            guard: None,
        };
        let tried = self.file.try_write(&mut args).unwrap_or(Ok(0));
        if matches!(tried, Ok(count) if count == total) {
            return Poll::Ready(Ok(()));
        }
        let queued = match tried {
            Ok(done) => self.write_in_task(Unwritten::new(args.buf, done)),
            Err(error) => Err((error, Unwritten::new(args.buf, 0))),
        };
        if let Err((error, unwritten)) = queued {
            *chunk = unwritten.into_chunk();
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }

    /// Returns `Ready` once everything has been written to the page cache. To wait for the device,
    /// call [`File::sync_data`](crate::fs::File::sync_data). After an error the bytes stay queued,
    /// and each call tries to write them again.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx)
    }

    /// Like [`poll_flush`](Self::poll_flush). The descriptor is closed when the stream is dropped.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx)
    }

    fn own_file(&mut self) -> Option<&mut FileStream> {
        (!self.shares_cursor).then_some(self)
    }
}
