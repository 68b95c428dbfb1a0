//! Single sends: those of a plain socket that do not go as its others. The core knows that one is in flight, and not which one it is.

use super::{pages, zero_copy};
use crate::base::io::Io;
use crate::slots::streams::send::{Gathered, SendPhase};
use crate::slots::streams::{Shared, Stream, Streams};
use annulus_driver::Event;
use annulus_kernel::pipe::SigPipe;

/// A single send in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::slots::streams) enum SingleSend {
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
pub(in crate::slots::streams) struct SingleSends {
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
    pub(in crate::slots::streams) fn hold_memory(&self) -> bool {
        self.unnotified > 0
    }
}

/// Whether the bytes gathered last are to go by a single send.
#[inline]
pub(in crate::slots::streams) fn is_for(stream: &Stream, io: &Io) -> bool {
    let Some(least) = io.bounds.zero_copy_threshold else { return false };
    stream.tx.flying >= least && !stream.tx.single.copies
}

/// Sends the bytes gathered last.
pub(in crate::slots::streams) fn send(
    stream: &mut Stream,
    shared: &mut Shared,
    io: &mut Io,
    gathered: Gathered,
) {
    zero_copy::send(stream, shared, io, gathered);
}

/// A stream with a single send in flight has the event of a send.
#[cold]
pub(in crate::slots::streams) fn on_event(
    streams: &mut Streams,
    io: &mut Io,
    event: Event,
    single: SingleSend,
) {
    match single {
        SingleSend::Polling | SingleSend::StoppingPoll => pages::on_space(streams, io, event),
        // Their events have tokens of their own.
        SingleSend::ZeroCopy | SingleSend::AwaitingMemory => io.late(event),
    }
}

/// Gives up on the one in flight; the stream has an error.
pub(in crate::slots::streams) fn stop(
    stream: &mut Stream,
    shared: &mut Shared,
    io: &mut Io,
    single: SingleSend,
) {
    match single {
        SingleSend::ZeroCopy => zero_copy::cancel(stream, shared, io),
        SingleSend::AwaitingMemory => zero_copy::leave_to_slot(stream, shared, io),
        SingleSend::Polling => pages::stop_polling(stream, io),
        // Its outcome shows soon.
        SingleSend::StoppingPoll => {}
    }
}

/// No further bytes follow: one that has none, and waits to send some, ends.
pub(in crate::slots::streams) fn stop_waiting(stream: &mut Stream, io: &mut Io) {
    if stream.tx.phase == SendPhase::Single(SingleSend::Polling) {
        pages::stop_polling(stream, io);
    }
}
