//! Single sends: sends of a plain socket that take a special path. The stream knows that one is in
//! flight, but not its kind.

pub(crate) use super::pages::stop_waiting;
pub(crate) use super::zero_copy::{is_for, send};

use super::{pages, zero_copy};
use crate::slots::loop_state::LoopState;
use crate::slots::streams::{Stream, StreamResources, Streams};
use annulus_driver::Event;
use annulus_kernel::pipe::SigPipe;

/// A single send in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleSend {
    /// Zero-copy; the number of sent bytes is not known yet.
    ZeroCopy,
    /// A zero-copy send with a short count: it is handled once its memory is free.
    AwaitingMemory,
    /// Only a poll for space, for pages of a file: see `pages`.
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
    /// The socket cannot send without a copy.
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
        SingleSend::Polling | SingleSend::StoppingPoll => pages::on_space(streams, state, event),
        // Their events have tokens of their own.
        SingleSend::ZeroCopy | SingleSend::AwaitingMemory => state.late(event),
    }
}

/// Gives up on the single send in flight; the stream has an error.
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
        // Its outcome is on the way.
        SingleSend::StoppingPoll => {}
    }
}
