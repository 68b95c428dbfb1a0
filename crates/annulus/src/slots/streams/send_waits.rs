//! Tasks that wait for sends: for room within the bound, until the kernel has taken everything, or
//! for the end. Also the errors that they get.

use super::send::SendState;
use super::{Shared, Stream};
use crate::base::io::Io;
use crate::base::op_error::Operation;
use crate::bytes::after::note_waker;
use std::io;
use std::task::{Context, Poll};

impl Stream {
    /// Ready once the queued bytes fit the bound.
    ///
    /// # Errors
    /// The error of an earlier send.
    #[inline]
    pub(crate) fn poll_room(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_sent(io)?;
        if self.tx.bytes <= io.send_bound() {
            return Poll::Ready(Ok(()));
        }
        self.wait_for_room(shared, io, cx)
    }

    /// Ready once the kernel has taken everything.
    ///
    /// # Errors
    /// The error of an earlier send.
    pub(crate) fn poll_drain(&mut self, io: &mut Io, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(io, cx, |tx| tx.bytes == 0)
    }

    /// Ready once everything has been sent and the write side has ended.
    ///
    /// # Errors
    /// The error of an earlier send.
    pub(crate) fn poll_end(&mut self, io: &mut Io, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.end_when_sent(io);
        self.poll_sent(io, cx, |tx| tx.ended)
    }

    /// Ready once `done` returns true for the sending half.
    ///
    /// # Errors
    /// The error of an earlier send.
    #[inline]
    pub(super) fn poll_sent(
        &mut self,
        io: &mut Io,
        cx: &Context<'_>,
        done: impl Fn(&SendState) -> bool,
    ) -> Poll<io::Result<()>> {
        self.check_sent(io)?;
        if done(&self.tx) {
            return Poll::Ready(Ok(()));
        }
        note_waker(&mut self.tx.waker, &mut io.after.drops, cx);
        Poll::Pending
    }

    /// Wakes the task once there is room. If the send waits for memory rather than for its peer,
    /// there is room once memory is available.
    #[cold]
    pub(super) fn wait_for_room<T>(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        cx: &Context<'_>,
    ) -> Poll<T> {
        note_waker(&mut self.tx.waker, &mut io.after.drops, cx);
        let memory = &io.memory;
        if self.tx.bytes > memory.allowance && self.tx.bytes <= memory.most.send {
            self.pause_for_memory(shared, io);
        }
        Poll::Pending
    }

    /// Returns the error of an earlier send, if there was one.
    ///
    /// # Errors
    /// The error of an earlier send.
    #[inline]
    pub(crate) fn check_sent(&self, io: &Io) -> io::Result<()> {
        self.tx.error.map_or(Ok(()), |errno| Err(self.failed(io, Operation::Send, errno)))
    }

    /// Returns the reason why nothing more can be sent.
    #[cold]
    pub(super) fn refusal(&self, io: &Io) -> io::Error {
        let text = "the stream was shut down for sending";
        self.check_sent(io).err().unwrap_or_else(|| io::Error::new(io::ErrorKind::BrokenPipe, text))
    }
}
