//! Carriers: how a stream's bytes travel, if not by plain socket operations alone. Also the kinds
//! of single sends.
//!
//! The files in the parent directory are the state machine of a stream, which does not know the
//! carriers. They call the functions here at the points where a carrier may act, and continue as
//! for a plain socket if it does not. A new carrier needs a file, a variant, and an arm in each
//! `match`. `borrowed` and `zero_copy` are ways in which a plain socket sends. `single` describes
//! the single sends in flight.

mod borrowed;
mod link;
mod pipe;
mod scm_rights;
pub(super) mod single;
mod splice;
mod zero_copy;

use super::send::SendPhase;
use super::{Stream, StreamResources, Streams};
use crate::slots::loop_state::LoopState;
use annulus_driver::{Event, Op, OpKind, Slab, SlotId};
use annulus_kernel::Shutdown;
use annulus_kernel::pipe::SigPipe;
use link::Link;
use rustix::io::Errno;
use scm_rights::ScmRights;
pub(crate) use single::PageSink;
use splice::Pipes;
use zero_copy::ZeroCopySend;

/// How the bytes of a stream travel. Nearly all streams have no carrier.
pub(super) enum Carrier {
    /// Descriptors travel with the bytes.
    Descriptors(ScmRights),
    /// The stream is a pipe, which is read and written by system calls.
    Pipe(SigPipe),
    /// The stream is a plain socket linked to another one: bytes pass between them without a task.
    Link(Link),
}

/// State that the carriers of all streams share.
#[derive(Default)]
pub(super) struct CarrierResources {
    /// Zero-copy sends, until their notification.
    zero_copy: Slab<ZeroCopySend>,
    pipes: Pipes,
    /// Linked sources to resume, because the pipe with their bytes is empty or could not be sent.
    resumed: Vec<SlotId>,
}

impl CarrierResources {
    pub(super) fn trim(&mut self) {
        self.pipes.trim();
    }
}

impl Stream {
    /// Starts a poll that waits until the descriptor is writable.
    fn await_writable(&mut self, state: &mut LoopState, phase: SendPhase) {
        self.tx.phase = phase;
        self.start_linger(state);
        state.start(self.id.token(OpKind::Send), Op::WritableOnce { fd: self.fd });
    }
}

/// Handles a task that asks for bytes: bytes received from now on wait for the task.
#[cold]
pub(super) fn on_ask(stream: &mut Stream) {
    match stream.carrier.as_deref() {
        Some(Carrier::Link(_)) => stream.stop_forwarding(),
        Some(Carrier::Descriptors(_) | Carrier::Pipe(_)) | None => {}
    }
}

/// Arms a listed stream, in place of a receive into pool buffers. Returns `None` if the carrier
/// does not arm the stream itself, and false if `heap`, the number of heap receives that this turn
/// may still start, is used up.
pub(super) fn arm(stream: &mut Stream, state: &mut LoopState, heap: &mut usize) -> Option<bool> {
    match stream.carrier.as_deref()? {
        Carrier::Descriptors(_) => Some(scm_rights::arm(stream, state, heap)),
        Carrier::Pipe(_) => Some(pipe::arm(stream, state)),
        Carrier::Link(link) if link.splices() => splice::arm(stream, state),
        Carrier::Link(_) => None,
    }
}

/// Handles an event of the armed receive or poll, after the stream has recorded it. Returns false
/// if the caller must continue as for a stream without a carrier.
pub(super) fn on_ready(streams: &mut Streams, state: &mut LoopState, event: &Event) -> bool {
    let stream = streams.slots.get(event.token.slot());
    let Some(carrier) = stream.carrier.as_deref() else { return false };
    match carrier {
        Carrier::Descriptors(_) => scm_rights::on_ready(stream, state, event),
        Carrier::Pipe(_) => pipe::on_ready(stream, state, event.result),
        Carrier::Link(_) => link::on_ready(streams, state, event),
    }
}

/// Lets the carrier send. Returns false if a plain send should send the queued bytes.
pub(super) fn send(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
    phase: SendPhase,
) -> bool {
    let Some(carrier) = stream.carrier.as_deref() else { return false };
    match carrier {
        Carrier::Descriptors(_) => scm_rights::send(stream, shared, state, phase),
        &Carrier::Pipe(signal) => pipe::send(stream, shared, state, signal, phase),
        Carrier::Link(link) if link.holds_bytes() => splice::send(stream, shared, state, phase),
        Carrier::Link(_) => return false,
    }
    true
}

/// Handles the event of a send. Returns how many of the queued bytes were sent.
pub(super) fn on_writable(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
    result: Result<u32, Errno>,
) -> Result<u32, Errno> {
    let Some(carrier) = stream.carrier.as_deref() else { return result };
    match carrier {
        &Carrier::Pipe(signal) => pipe::write(stream, signal, result),
        Carrier::Link(link) if link.holds_bytes() => splice::drain(stream, shared, state, result),
        Carrier::Descriptors(_) | Carrier::Link(_) => result,
    }
}

/// Ends the sending direction, once all bytes have been sent.
///
/// # Errors
/// The reason why the peer does not see the end until the handle is dropped.
pub(super) fn end(stream: &Stream, state: &mut LoopState) -> Result<(), Errno> {
    match stream.carrier.as_deref() {
        Some(Carrier::Pipe(_)) => pipe::end(state, stream.fd),
        Some(Carrier::Descriptors(_) | Carrier::Link(_)) | None => {
            let ended = state.driver.kernel().shutdown(stream.fd, Shutdown::Write);
            match ended.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
                // The peer has reset the connection, which is an end too.
                Err(Errno::NOTCONN) => Ok(()),
                ended => ended,
            }
        }
    }
}

/// Puts linked sources back on the turn list once their pipe has been emptied or its send has
/// failed.
#[inline]
pub(super) fn resume(streams: &mut Streams, state: &mut LoopState) {
    while let Some(from) = streams.shared.carriers.resumed.pop() {
        if let Some(source) = streams.slots.find(from)
            && source.is_linked()
        {
            source.list_recv(&mut streams.shared, state);
        }
    }
}

pub(super) fn is_pipe(stream: &Stream) -> bool {
    matches!(stream.carrier.as_deref(), Some(Carrier::Pipe(_)))
}

/// Drops the bytes that the carrier holds outside the queue.
pub(super) fn discard(stream: &mut Stream) {
    match stream.carrier.as_deref_mut() {
        Some(Carrier::Link(link)) => {
            link.spliced = None;
            stream.drop_unused_link();
        }
        // All bytes are in the queue.
        Some(Carrier::Descriptors(_) | Carrier::Pipe(_)) | None => {}
    }
}
