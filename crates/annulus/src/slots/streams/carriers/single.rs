//! Single sends: those of a plain socket that do not go as its others. The core knows that one is in flight, and not which one it is.

pub(crate) use super::pages::stop_waiting;
pub(crate) use super::zero_copy::{is_for, send};

use super::{pages, zero_copy};
use crate::base::io::Io;
use crate::slots::streams::{Shared, Stream, Streams};
use annulus_driver::Event;
use annulus_kernel::pipe::SigPipe;

/// A single send in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SingleSend {
    /// Without a copy; how much went is not known.
    ZeroCopy,
    /// Not all bytes of a zero-copy send went: its outcome is handled once its memory is free.
    AwaitingMemory,
    /// Nothing but a poll for space, for pages of a file: see `pages`.
    Polling,
    /// As polling, but the poll was cancelled.
    StoppingPoll,
}

/// The state of a stream's single sends, beside the one in flight.
#[derive(Default)]
pub(crate) struct SingleSends {
    /// The last zero-copy send.
    pub(super) zero_copy: u32,
    /// Zero-copy sends whose memory the kernel may still read.
    pub(super) unnotified: u32,
    /// The socket cannot send without a copy.
    pub(super) copies: bool,
    /// The socket was made ready for pages of files.
    pub(super) pages: Option<SigPipe>,
}

impl SingleSends {
    /// The kernel has memory of sends that have ended.
    pub(crate) fn hold_memory(&self) -> bool {
        self.unnotified > 0
    }
}

/// A stream with a single send in flight has the event of a send.
#[cold]
pub(crate) fn on_event(streams: &mut Streams, io: &mut Io, event: Event, single: SingleSend) {
    match single {
        SingleSend::Polling | SingleSend::StoppingPoll => pages::on_space(streams, io, event),
        // Their events have tokens of their own.
        SingleSend::ZeroCopy | SingleSend::AwaitingMemory => io.late(event),
    }
}

/// Gives up on the one in flight; the stream has an error.
pub(crate) fn stop(stream: &mut Stream, shared: &mut Shared, io: &mut Io, single: SingleSend) {
    match single {
        SingleSend::ZeroCopy => zero_copy::cancel(stream, shared, io),
        SingleSend::AwaitingMemory => zero_copy::leave_to_slot(stream, shared, io),
        SingleSend::Polling => stop_waiting(stream, io),
        // Its outcome shows soon.
        SingleSend::StoppingPoll => {}
    }
}
