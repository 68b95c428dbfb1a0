//! Single sends: sends of a plain socket that take a special path. The stream knows that one is in
//! flight, but not its kind.
//!
//! Pages of files, for example, are sent by a system call on the loop (`fs/send.rs`) while nothing
//! of the stream is queued or in flight. If the socket is full, a poll waits for space.

use super::zero_copy;
use crate::slots::loop_state::LoopState;
use crate::slots::streams::send::{SendPhase, SendState};
use crate::slots::streams::{Stream, StreamResources, Streams};
use annulus_driver::{Event, OpKind};
use annulus_kernel::file::pages;
use annulus_kernel::pipe::SigPipe;
use annulus_kernel::{Fd, SocketOption};
use rustix::io::Errno;
use std::io;
use std::mem::replace;
use std::task::{Context, Poll};

pub(crate) use super::zero_copy::{is_for, send};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleSend {
    /// Zero-copy; the number of sent bytes is not known yet.
    ZeroCopy,
    /// A zero-copy send that did not send everything. Its result is handled once its memory is
    /// free.
    AwaitingMemory,
    /// A poll for space, after which pages of a file can be sent: see [`PageSink`].
    Polling,
    /// Like `Polling`, but the poll was cancelled.
    StoppingPoll,
}

/// State of a stream's single sends, apart from the one in flight.
#[derive(Default)]
pub(crate) struct SingleSends {
    /// Slot of the last zero-copy send.
    pub(super) zero_copy: u32,
    /// Zero-copy sends whose memory the kernel may still read.
    pub(super) unnotified: u32,
    /// Whether a zero-copy send was refused, so that the stream copies from now on.
    pub(super) copies: bool,
    /// How to send pages of files, once the socket has been prepared for them.
    pub(super) pages: Option<SigPipe>,
}

impl SingleSends {
    /// Returns true if the kernel holds memory of sends that have ended.
    pub(crate) fn hold_memory(&self) -> bool {
        self.unnotified > 0
    }
}

/// Handles the event of a single send.
#[cold]
pub(crate) fn on_event(
    streams: &mut Streams,
    state: &mut LoopState,
    event: Event,
    single: SingleSend,
) {
    match single {
        SingleSend::Polling | SingleSend::StoppingPoll => on_space(streams, state, event),
        // Zero-copy sends have tokens of their own, so this event is late.
        SingleSend::ZeroCopy | SingleSend::AwaitingMemory => state.late(event),
    }
}

/// Gives up on the single send in flight. The caller has recorded an error in the stream.
pub(crate) fn stop(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
    single: SingleSend,
) {
    match single {
        SingleSend::ZeroCopy => zero_copy::cancel(stream, shared, state),
        SingleSend::AwaitingMemory => zero_copy::leave_to_slot(stream, shared, state),
        SingleSend::Polling => stop_waiting(stream, state),
        // The poll's terminal event ends this phase.
        SingleSend::StoppingPoll => {}
    }
}

/// A socket that has been prepared for pages of files.
#[derive(Clone, Copy)]
pub(crate) struct PageSink {
    pub(crate) fd: Fd,
    pub(crate) signal: SigPipe,
}

impl Stream {
    /// Prepares the socket for sending pages, on the first call, and returns it. Returns `None`
    /// under a simulated kernel, which has no pages.
    ///
    /// # Errors
    /// The system's error if the socket cannot be prepared.
    pub(crate) fn page_sink(&mut self, state: &LoopState) -> io::Result<Option<PageSink>> {
        let signal = match self.tx.single.pages {
            Some(signal) => signal,
            None if !state.driver.kernel().real_descriptors() => return Ok(None),
            None => *self.tx.single.pages.insert(pages::prepare(self.fd)?),
        };
        Ok(Some(PageSink { fd: self.fd, signal }))
    }

    /// Returns `Ready` once the socket has had space since the first call. In that call,
    /// `has_started_poll` must be false.
    ///
    /// # Errors
    /// The error of an earlier send.
    pub(crate) fn poll_writable(
        &mut self,
        state: &mut LoopState,
        has_started_poll: &mut bool,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let is_idle = self.tx.error.is_none() && self.tx.is_idle();
        if is_idle && !replace(has_started_poll, true) {
            self.await_writable(state, SendPhase::Single(SingleSend::Polling));
        }
        self.poll_sent(state, cx, SendState::is_idle)
    }

    /// Sends bytes that the kernel holds back for pages, because no pages follow.
    pub(crate) fn push_sent(&self, state: &LoopState) {
        // Only TCP holds bytes back and has this option.
        _ = state.driver.kernel().set_option(self.fd, SocketOption::Cork, 0);
    }
}

/// Cancels a poll for space, because no pages follow.
pub(crate) fn stop_waiting(stream: &mut Stream, state: &mut LoopState) {
    if stream.tx.phase == SendPhase::Single(SingleSend::Polling) {
        stream.tx.phase = SendPhase::Single(SingleSend::StoppingPoll);
        state.cancel(stream.id.token(OpKind::Send));
    }
}

/// Handles the end of a poll for space: the socket has space or has failed, the poll was
/// cancelled, or it was not possible. The next send reports a failure of the socket.
pub(super) fn on_space(streams: &mut Streams, state: &mut LoopState, event: Event) {
    state.in_flight -= 1;
    let slot = event.token.slot();
    let stream = streams.slots.get(slot);
    match event.result {
        // The task would poll again at once, so it is woken after a moment.
        Err(Errno::NOMEM) => return stream.send_later(state),
        // No further descriptor may be watched, and no event reports when one may.
        Err(Errno::NOSPC) if stream.tx.phase == SendPhase::Single(SingleSend::Polling) => {
            stream.tx.error.get_or_insert(Errno::NOSPC);
        }
        _ => {}
    }
    stream.tx.set_idle();
    state.deferred.wakes.extend(stream.tx.waker.take());
    stream.resume_send(&mut streams.shared, state);
    if stream.dropped {
        streams.close_if_done(state, slot);
    }
}
