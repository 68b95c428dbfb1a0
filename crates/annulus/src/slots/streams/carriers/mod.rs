//! Carriers: how a stream's bytes travel, if not by the operations of a plain socket alone; and ways of single sends.
//!
//! The files beside this directory are the machine of a stream, and know no carrier. They ask the functions here at the points at which
//! one may act, and go on as for a plain socket if it does not. A further carrier is a file, a variant, and its arm in each `match`.
//! `borrowed`, `pages` and `zero_copy` are ways of single sends of a plain socket; `single` has what the core asks of those in flight.

mod borrowed;
mod link;
mod pages;
mod pipe;
mod scm_rights;
pub(super) mod single;
mod splice;
mod zero_copy;

use super::send::SendPhase;
use super::{Shared, Stream, Streams};
use crate::base::io::Io;
use annulus_driver::{Event, Kind, Op, Slab, SlotId};
use annulus_kernel::Shutdown;
use annulus_kernel::pipe::SigPipe;
use link::Link;
pub(crate) use pages::PageSink;
use rustix::io::Errno;
use scm_rights::ScmRights;
use splice::Pipes;
use zero_copy::ZeroCopySend;

/// How the bytes of a stream travel. Nearly all streams have none of these.
pub(super) enum Carrier {
    /// Descriptors travel with them.
    Descriptors(ScmRights),
    /// Through a pipe, which is read and written by calls.
    Pipe(SigPipe),
    /// By a plain socket, and between it and another one without a task.
    Link(Link),
}

/// State that the carriers of all streams share.
#[derive(Default)]
pub(super) struct Common {
    /// Zero-copy sends, until their notification.
    zero_copy: Slab<ZeroCopySend>,
    pipes: Pipes,
    /// Linked streams whose bytes were sent from a pipe: they go on.
    resumed: Vec<SlotId>,
}

impl Common {
    /// Gives back what is not in use.
    pub(super) fn trim(&mut self) {
        self.pipes.trim();
    }
}

impl Stream {
    /// Waits until the descriptor has space.
    fn await_writable(&mut self, io: &mut Io, phase: SendPhase) {
        self.tx.phase = phase;
        self.start_linger(io);
        io.start(self.id.token(Kind::Send), Op::WritableOnce { fd: self.fd });
    }
}

/// A task asks for bytes: those received from here on wait for it.
#[cold]
pub(super) fn on_ask(stream: &mut Stream) {
    match stream.carrier.as_deref() {
        Some(Carrier::Link(_)) => stream.stop_forwarding(),
        Some(Carrier::Descriptors(_) | Carrier::Pipe(_)) | None => {}
    }
}

/// Arms a listed stream, in place of a receive into lent buffers. `None` if it does not; false if `heap`, the receives into heap memory
/// that the turn has left, does not allow it.
pub(super) fn arm(stream: &mut Stream, io: &mut Io, heap: &mut usize) -> Option<bool> {
    match stream.carrier.as_deref()? {
        Carrier::Descriptors(_) => Some(scm_rights::arm(stream, io, heap)),
        Carrier::Pipe(_) => Some(pipe::arm(stream, io)),
        Carrier::Link(link) if link.splices() => splice::arm(stream, io),
        Carrier::Link(_) => None,
    }
}

/// The receive or the poll that was armed has an event, which the stream has taken in. False if it goes on as a plain one.
pub(super) fn on_ready(streams: &mut Streams, io: &mut Io, event: &Event) -> bool {
    let stream = streams.slots.get(event.token.slot());
    let Some(carrier) = stream.carrier.as_deref() else { return false };
    match carrier {
        Carrier::Descriptors(_) => scm_rights::on_ready(stream, io, event),
        Carrier::Pipe(_) => pipe::on_ready(stream, io),
        Carrier::Link(_) => link::on_ready(streams, io, event),
    }
}

/// Sends what a plain socket's send would not. False if that is to send the queued bytes.
pub(super) fn send(
    stream: &mut Stream,
    shared: &mut Shared,
    io: &mut Io,
    phase: SendPhase,
) -> bool {
    let Some(carrier) = stream.carrier.as_deref() else { return false };
    match carrier {
        Carrier::Descriptors(_) => scm_rights::send(stream, shared, io, phase),
        &Carrier::Pipe(signal) => pipe::send(stream, shared, io, signal, phase),
        Carrier::Link(link) if link.holds_bytes() => splice::send(stream, shared, io, phase),
        Carrier::Link(_) => return false,
    }
    true
}

/// A send that waited has an event: how many of the queued bytes went.
pub(super) fn on_writable(
    stream: &mut Stream,
    shared: &mut Shared,
    io: &mut Io,
    result: Result<u32, Errno>,
) -> Result<u32, Errno> {
    let Some(carrier) = stream.carrier.as_deref() else { return result };
    match carrier {
        &Carrier::Pipe(signal) => pipe::write(stream, signal, result),
        Carrier::Link(link) if link.holds_bytes() => splice::drain(stream, shared, io, result),
        Carrier::Descriptors(_) | Carrier::Link(_) => result,
    }
}

/// Ends the direction in which bytes are sent, all of which were.
///
/// # Errors
/// Why the peer does not see the end: it will when the handle goes.
pub(super) fn end(stream: &Stream, io: &mut Io) -> Result<(), Errno> {
    match stream.carrier.as_deref() {
        Some(Carrier::Pipe(_)) => pipe::end(io, stream.fd),
        Some(Carrier::Descriptors(_) | Carrier::Link(_)) | None => {
            let ended = io.driver.kernel().shutdown(stream.fd, Shutdown::Write);
            match ended.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
                // The peer has reset the connection, which is an end as well.
                Err(Errno::NOTCONN) => Ok(()),
                ended => ended,
            }
        }
    }
}

/// Arms sources again whose bytes were sent.
#[inline]
pub(super) fn resume(streams: &mut Streams, io: &mut Io) {
    while let Some(from) = streams.shared.carriers.resumed.pop() {
        if let Some(source) = streams.slots.find(from)
            && source.is_linked()
        {
            source.list_recv(&mut streams.shared, io);
        }
    }
}

/// Whether the stream is no socket.
pub(super) fn is_pipe(stream: &Stream) -> bool {
    matches!(stream.carrier.as_deref(), Some(Carrier::Pipe(_)))
}

/// Drops the bytes that it holds beside the queue.
pub(super) fn discard(stream: &mut Stream) {
    match stream.carrier.as_deref_mut() {
        Some(Carrier::Link(link)) => {
            link.spliced = None;
            stream.drop_unused_link();
        }
        // All of them are in the queue.
        Some(Carrier::Descriptors(_) | Carrier::Pipe(_)) | None => {}
    }
}
