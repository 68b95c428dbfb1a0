//! Carriers: how a stream's bytes travel, if not by the operations of a plain socket alone; and ways of single sends.
//!
//! The files beside this directory are the machine of a stream, and know no carrier. They ask the functions here at the points at which
//! one may act, and go on as for a plain socket if it does not. A further carrier is a file, a variant, and its arm in each `match`.
//! `borrowed`, `pages` and `zero_copy` are ways of single sends of a plain socket.

mod borrowed;
mod link;
mod pages;
mod pipe;
mod scm_rights;
mod splice;
mod zero_copy;

use super::send::SendPhase;
use super::{Life, Shared, Stream, Streams};
use crate::base::io::Io;
use crate::slots::arming::Arming;
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
    #[inline]
    pub(super) fn has_resumed(&self) -> bool {
        !self.resumed.is_empty()
    }

    /// Gives back what is not in use.
    pub(super) fn trim(&mut self) {
        self.pipes.trim();
    }
}

impl Stream {
    /// Waits until the descriptor has space.
    fn await_writable(&mut self, io: &mut Io, phase: SendPhase) {
        self.tx.phase = phase;
        self.linger(io);
        io.start(self.id.token(Kind::Send), Op::WritableOnce { fd: self.fd });
    }
}

/// Arms a listed stream, in place of a receive into lent buffers. `None` if it does not; false if `heap`, the receives into heap memory
/// that the turn has left, does not allow it.
pub(super) fn arm(stream: &mut Stream, io: &mut Io, heap: &mut usize) -> Option<bool> {
    let carrier = stream.carrier.as_deref()?;
    if let Carrier::Link(link) = carrier {
        return if link.splices() { splice::arm(stream, io) } else { None };
    }
    let is_pipe = matches!(carrier, Carrier::Pipe(_));
    if stream.rx.waker.is_none() {
        // No task waits: the next poll asks again.
        stream.rx.arming = Arming::Idle;
    } else if is_pipe {
        stream.poll_readiness(io);
    } else if *heap > 0 {
        *heap -= 1;
        scm_rights::arm(stream, io);
    } else {
        return Some(false);
    }
    Some(true)
}

/// The receive or the poll that was armed has an event, which the stream has taken in. False if it goes on as a plain one.
pub(super) fn on_ready(streams: &mut Streams, io: &mut Io, event: &Event) -> bool {
    let slot = event.token.slot();
    let (stream, shared) = streams.get(slot);
    let is_linked = stream.life == Life::Linked;
    match (stream.carrier.as_deref_mut(), event.token.kind()) {
        (Some(Carrier::Descriptors(_)), Kind::Recv) => {
            scm_rights::on_received(stream, io, event);
            return false;
        }
        (Some(Carrier::Pipe(_)), Kind::RecvReady) => pipe::on_ready(stream, shared, io),
        (Some(Carrier::Link(_)), Kind::Recv) if is_linked => streams.forward(io, slot),
        (Some(Carrier::Link(link)), Kind::RecvReady) if is_linked && link.splices() => {
            streams.splice(io, slot);
        }
        _ => return false,
    }
    true
}

/// Sends what a plain socket's send would not. False if that is to send the queued bytes.
pub(super) fn send(
    stream: &mut Stream,
    shared: &mut Shared,
    io: &mut Io,
    phase: SendPhase,
) -> bool {
    match stream.carrier.as_deref_mut() {
        Some(Carrier::Descriptors(_)) => scm_rights::send(stream, shared, io, phase),
        Some(Carrier::Pipe(signal)) => {
            let signal = *signal;
            pipe::send(stream, shared, io, signal, phase);
        }
        Some(Carrier::Link(link)) if link.holds_bytes() => splice::send(stream, shared, io, phase),
        _ => return false,
    }
    true
}

/// A send that waited has an event: how many of the queued bytes went.
pub(super) fn on_writable(
    stream: &mut Stream,
    shared: &mut Shared,
    result: Result<u32, Errno>,
) -> Result<u32, Errno> {
    match stream.carrier.as_deref_mut() {
        Some(Carrier::Pipe(signal)) => {
            let signal = *signal;
            pipe::write(stream, signal, result)
        }
        Some(Carrier::Link(link)) if link.holds_bytes() => splice::drain(stream, shared, result),
        _ => result,
    }
}

/// Ends the direction in which bytes are sent, all of which were.
///
/// # Errors
/// A pipe's reader will see its end only when the handle goes.
pub(super) fn end(stream: &Stream, io: &mut Io) -> Result<(), Errno> {
    if let Some(Carrier::Pipe(_)) = stream.carrier.as_deref() {
        return pipe::end(io, stream.fd);
    }
    // The peer may have gone first, which is an end as well.
    _ = io.driver.kernel().shutdown(stream.fd, Shutdown::Write);
    Ok(())
}

/// Arms sources again whose bytes were sent.
pub(super) fn resume(streams: &mut Streams, io: &mut Io) {
    while let Some(from) = streams.shared.carriers.resumed.pop() {
        if let Some(source) = streams.slots.find(from)
            && source.life == Life::Linked
        {
            source.want(&mut streams.shared, io);
        }
    }
}

/// Drops the bytes that it holds beside the queue.
pub(super) fn discard(stream: &mut Stream) {
    if let Some(Carrier::Link(link)) = stream.carrier.as_deref_mut() {
        link.spliced = None;
        stream.drop_unused_link();
    }
}
