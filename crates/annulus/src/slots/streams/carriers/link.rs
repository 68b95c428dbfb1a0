//! BufferTable: bytes that a stream receives go into the send queue of another at the event that brings them, and no task is woken.
//!
//! A task that copies from one stream to another and waits for bytes *links* them. While a link is set, nothing is queued on its source:
//! what comes is queued at the target at once. The link ends, and the task is woken, as soon as something comes that the target does
//! not queue under its bound or that the copy's limit does not allow, at that limit, at the end of the source, and at an error: the task
//! then does what it would have done without. Each poll of the source's receive ends it too, so that bytes go to the task that asks for
//! them. If much comes at a time, the bytes go through a pipe: see `splice`.

use super::Carrier;
use super::splice::Spliced;
use crate::base::io::Io;
use crate::bytes::chunk::Chunk;
use crate::slots::streams::{Shared, Stream, Streams};
use annulus_driver::{Event, Kind, SlotId};
use std::mem;

/// Receives in a row that decide how a link's bytes go.
const RUN: u8 = 4;

/// The additional state of a stream that is, or was, one of two that are linked.
#[derive(Default)]
pub(crate) struct Link {
    /// As a source.
    pub(super) forward: Option<Forward>,
    /// As a target: bytes to be sent that lie in a pipe.
    pub(super) spliced: Option<Spliced>,
}

/// The target of the bytes that a linked stream receives.
#[derive(Default)]
pub(super) struct Forward {
    pub(super) to: SlotId,
    /// What is received goes there; else the task takes it.
    is_on: bool,
    /// How many more bytes may go there.
    pub(super) left: u64,
    /// How many bytes went there that were not counted yet.
    pub(super) bytes: u64,
    /// The bytes go through a pipe.
    splices: bool,
    /// Receives in a row that speak for the other way.
    run: u8,
}

impl Forward {
    /// Counts bytes that came at once. True if the next go the other way.
    pub(super) fn count(&mut self, len: usize, threshold: usize) -> bool {
        self.bytes += len as u64;
        self.left -= len as u64;
        let speaks_for_other = if self.splices { len < threshold / 2 } else { len >= threshold };
        self.run = if speaks_for_other { self.run + 1 } else { 0 };
        self.run == RUN
    }

    pub(super) fn set_splices(&mut self, splices: bool) {
        (self.splices, self.run) = (splices, 0);
    }
}

impl Link {
    /// As a target, it has bytes in a pipe.
    pub(super) fn holds_bytes(&self) -> bool {
        self.spliced.is_some()
    }

    /// The bytes that are received next are moved through a pipe.
    pub(super) fn splices(&self) -> bool {
        self.forward.as_ref().is_some_and(|forward| forward.splices)
    }
}

impl Stream {
    pub(super) fn link(&mut self) -> Option<&mut Link> {
        match self.carrier.as_deref_mut() {
            Some(Carrier::Link(link)) => Some(link),
            _ => None,
        }
    }

    pub(super) fn forward(&mut self) -> Option<&mut Forward> {
        self.link()?.forward.as_mut()
    }

    /// What it receives goes to another stream.
    pub(super) fn is_linked(&mut self) -> bool {
        !self.closing && self.forward().is_some_and(|forward| forward.is_on)
    }

    /// As a source: what is received from here on waits for a task.
    pub(super) fn stop_forwarding(&mut self) {
        if let Some(forward) = self.forward() {
            forward.is_on = false;
        }
    }

    /// Goes on without the state of a link, if it is in none.
    pub(super) fn drop_unused_link(&mut self) {
        if self.link().is_some_and(|link| link.forward.is_none() && link.spliced.is_none()) {
            self.carrier = None;
        }
    }

    /// The state of a linked stream; `None` if it cannot be one, since it has another carrier.
    pub(super) fn link_or_insert(&mut self) -> Option<&mut Link> {
        self.carrier.get_or_insert_with(|| Box::new(Carrier::Link(Link::default())));
        self.link()
    }

    /// The target of the bytes that were received first, if they may go there.
    fn forwards_to(&mut self, shared: &Shared) -> Option<SlotId> {
        let on_heap = self.rx.heap.as_ref().map(|heap| heap.len).filter(|len| *len > 0);
        let first = on_heap.or_else(|| self.rx.queue.first_len(&shared.buffers))?;
        let forward = self.forward()?;
        (u64::from(first) <= forward.left).then_some(forward.to)
    }

    /// Whether a chunk can be queued now.
    #[inline]
    pub(super) fn takes_more(&self, io: &Io) -> bool {
        !self.closing && !self.tx.refuses() && !self.is_at_send_bound(io)
    }

    /// Takes the bytes that were received first, to be passed on, and counts them.
    fn take_to_forward(&mut self, shared: &mut Shared, io: &mut Io) -> Option<Chunk> {
        let lease = self.take_received(shared, io)?;
        let threshold = io.bounds.splice_threshold;
        if self.forward().is_some_and(|forward| forward.count(lease.len(), threshold)) {
            self.begin_splicing(io);
        }
        Some(lease.into())
    }

    /// Wakes the task if it has something to do, and arms again or stops.
    fn after_forward(&mut self, shared: &mut Shared, io: &mut Io) {
        let at_limit = self.forward().is_none_or(|forward| forward.left == 0);
        let rx = &mut self.rx;
        if rx.bytes > 0 || rx.end.is_some() || at_limit {
            io.after.wakes.extend(rx.waker.take());
            self.stop_forwarding();
        }
        self.go_on(shared, io);
    }
}

/// Passes on what the event of a linked stream has brought. False if a task has asked for it.
pub(super) fn on_ready(streams: &mut Streams, io: &mut Io, event: &Event) -> bool {
    let slot = event.token.slot();
    let source = streams.slots.get(slot);
    let splices = source.link().is_some_and(|link| link.splices());
    if !source.is_linked() {
        return false;
    }
    match event.token.kind() {
        Kind::Recv => streams.forward(io, slot),
        Kind::RecvReady if splices => streams.splice(io, slot),
        _ => return false,
    }
    true
}

impl Streams {
    /// BufferTable two streams, if both are plain sockets, until the next poll of the source; nothing may be queued on that. No more than `left`
    /// bytes are passed on. The source is named by what is returned.
    pub(crate) fn link(&mut self, from: u32, to: u32, left: u64) -> Option<SlotId> {
        let target = self.slots.get(to);
        let is_socket = target.carrier.is_none() || target.link().is_some();
        let to = (is_socket && !target.closing).then_some(target.id)?;
        let source = self.slots.get(from);
        if source.closing || source.rx.bytes > 0 || source.rx.end.is_some() {
            return None;
        }
        let forward = source.link_or_insert()?.forward.get_or_insert_default();
        (forward.to, forward.left, forward.is_on) = (to, left, true);
        Some(source.id)
    }

    fn source(&mut self, from: SlotId) -> Option<&mut Stream> {
        self.slots.find(from)
    }

    /// How many bytes went over the link of a source since the last call.
    pub(crate) fn take_forwarded(&mut self, from: SlotId) -> u64 {
        let forward = self.source(from).and_then(Stream::forward);
        forward.map_or(0, |forward| mem::take(&mut forward.bytes))
    }

    /// Whether the bytes of a source that is or was linked go through a pipe.
    pub(crate) fn is_splicing(&mut self, from: SlotId) -> bool {
        self.source(from).and_then(Stream::link).is_some_and(|link| link.splices())
    }

    /// Ends the link of a source.
    pub(crate) fn unlink(&mut self, from: SlotId) {
        let Some(source) = self.source(from) else { return };
        if let Some(link) = source.link() {
            link.forward = None;
            source.drop_unused_link();
        }
    }

    /// Passes on the bytes that a linked stream has received.
    #[inline(never)]
    pub(super) fn forward(&mut self, io: &mut Io, slot: u32) {
        while let Some(to) = self.slots.get(slot).forwards_to(&self.shared) {
            let target = self.slots.find(to);
            if !target.is_some_and(|target| target.takes_more(io)) {
                break;
            }
            let source = self.slots.get(slot);
            let Some(chunk) = source.take_to_forward(&mut self.shared, io) else { break };
            self.slots.get(to.index).enqueue(&mut self.shared, io, chunk);
        }
        self.slots.get(slot).after_forward(&mut self.shared, io);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_receives_in_a_row_decide_how_the_next_bytes_go() {
        let mut forward = Forward { left: 10_000, ..Forward::default() };
        for len in [100, 100, 100, 99, 100, 100, 100] {
            assert!(!forward.count(len, 100), "not in a row");
        }
        assert!(forward.count(100, 100));
        forward.set_splices(true);
        for len in [49, 49, 49, 50, 49, 49, 49] {
            assert!(!forward.count(len, 100), "half as many are enough to go on");
        }
        assert!(forward.count(49, 100));
        assert_eq!((forward.bytes, forward.left), (1_192, 8_808));
    }

    #[test]
    fn receives_of_any_size_are_no_reason_if_there_is_no_threshold() {
        let mut forward = Forward { left: u64::MAX, ..Forward::default() };
        assert!((0..100).all(|_| !forward.count(1 << 20, usize::MAX)));
    }
}
