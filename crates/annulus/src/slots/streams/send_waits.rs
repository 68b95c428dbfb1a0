//! Tasks that wait for sends: for room within the bound, until the kernel has taken everything, or
//! for the end. Also the errors that they get.

use super::send::SendState;
use super::{Stream, StreamResources};
use crate::errors::Operation;
use crate::slots::loop_state::LoopState;
use crate::waiters::note_waker;
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
        shared: &mut StreamResources,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_sent(state)?;
        if self.tx.bytes <= state.send_bound() {
            return Poll::Ready(Ok(()));
        }
        self.wait_for_room(shared, state, cx)
    }

    /// Ready once the kernel has taken everything.
    ///
    /// # Errors
    /// The error of an earlier send.
    pub(crate) fn poll_drain(
        &mut self,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_sent(state, cx, |tx| tx.bytes == 0)
    }

    /// Ready once everything has been sent and the write side has ended.
    ///
    /// # Errors
    /// The error of an earlier send.
    pub(crate) fn poll_end(
        &mut self,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.end_when_sent(state);
        self.poll_sent(state, cx, |tx| tx.ended)
    }

    /// Ready once `done` returns true for the sending half.
    ///
    /// # Errors
    /// The error of an earlier send.
    #[inline]
    pub(super) fn poll_sent(
        &mut self,
        state: &mut LoopState,
        cx: &Context<'_>,
        done: impl Fn(&SendState) -> bool,
    ) -> Poll<io::Result<()>> {
        self.check_sent(state)?;
        if done(&self.tx) {
            return Poll::Ready(Ok(()));
        }
        note_waker(&mut self.tx.waker, &mut state.deferred.drops, cx);
        Poll::Pending
    }

    /// Wakes the task once there is room. If the send waits for memory rather than for its peer,
    /// there is room once memory is available.
    #[cold]
    pub(super) fn wait_for_room<T>(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        cx: &Context<'_>,
    ) -> Poll<T> {
        note_waker(&mut self.tx.waker, &mut state.deferred.drops, cx);
        let memory = &state.memory;
        if self.tx.bytes > memory.allowance && self.tx.bytes <= memory.most.send {
            self.pause_for_memory(shared, state);
        }
        Poll::Pending
    }

    /// Returns the error of an earlier send, if there was one.
    ///
    /// # Errors
    /// The error of an earlier send.
    #[inline]
    pub(crate) fn check_sent(&self, state: &LoopState) -> io::Result<()> {
        self.tx.error.map_or(Ok(()), |errno| Err(self.failed(state, Operation::Send, errno)))
    }

    /// Returns the reason why nothing more can be sent.
    #[cold]
    pub(super) fn refusal(&self, state: &LoopState) -> io::Error {
        let text = "the stream was shut down for sending";
        self.check_sent(state)
            .err()
            .unwrap_or_else(|| io::Error::new(io::ErrorKind::BrokenPipe, text))
    }
}
