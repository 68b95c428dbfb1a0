//! Links: bytes that one stream receives go into the send queue of another while the event is
//! handled, without waking a task.
//!
//! A task that copies from one stream to another *links* them while it waits for bytes. Bytes that
//! the source receives are then queued at the target at once. The link ends, and wakes the task,
//! when the target cannot queue received bytes within its bound, when they reach or exceed the
//! copy's limit, at the end of the source, and on errors. The task then does what it would have
//! done without the link. Each poll of the source's receive ends the link too, so that bytes go to
//! the task that asks for them. Large transfers go through a pipe: see `splice`.

use super::Carrier;
use super::splice::Spliced;
use crate::bytes::chunk::Chunk;
use crate::slots::loop_state::LoopState;
use crate::slots::streams::{Stream, StreamResources, Streams};
use annulus_driver::{Event, OpKind, SlotId};
use std::mem;

/// Number of consecutive receives after which a link switches to a pipe or back.
const RECEIVES_TO_SWITCH: u8 = 4;

/// Additional state of a stream that is, or was, part of a link.
#[derive(Default)]
pub(crate) struct Link {
    /// The target, if the stream is a source.
    pub(super) forward: Option<Forward>,
    /// Unsent bytes in a pipe, if the stream is a target.
    pub(super) spliced: Option<Spliced>,
}

/// The target of the bytes that a linked stream receives.
#[derive(Default)]
pub(super) struct Forward {
    pub(super) to: SlotId,
    /// Whether received bytes go to the target. Otherwise the task takes them.
    is_on: bool,
    /// Number of bytes that may still go to the target.
    pub(super) left: u64,
    /// Forwarded bytes that `take_forwarded` has not returned yet.
    pub(super) bytes: u64,
    /// Whether bytes go through a pipe.
    splices: bool,
    /// Number of consecutive receives whose size suggests a switch to a pipe or back.
    run: u8,
}

impl Forward {
    /// Counts the bytes of one receive. Returns true if the link should switch to a pipe or back.
    pub(super) fn count(&mut self, len: usize, threshold: usize) -> bool {
        self.bytes += len as u64;
        self.left -= len as u64;
        let speaks_for_other = if self.splices { len < threshold / 2 } else { len >= threshold };
        self.run = if speaks_for_other { self.run + 1 } else { 0 };
        self.run == RECEIVES_TO_SWITCH
    }

    pub(super) fn set_splices(&mut self, splices: bool) {
        (self.splices, self.run) = (splices, 0);
    }
}

impl Link {
    /// Returns true if the stream is a target with bytes in a pipe.
    pub(super) fn holds_bytes(&self) -> bool {
        self.spliced.is_some()
    }

    /// Returns true if the next bytes go through a pipe.
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

    /// Returns true if received bytes go to another stream.
    pub(super) fn is_linked(&mut self) -> bool {
        !self.closing && self.forward().is_some_and(|forward| forward.is_on)
    }

    /// Stops forwarding: bytes received from now on wait for a task.
    pub(super) fn stop_forwarding(&mut self) {
        if let Some(forward) = self.forward() {
            forward.is_on = false;
        }
    }

    /// Drops the link state if the stream is in no link.
    pub(super) fn drop_unused_link(&mut self) {
        if self.link().is_some_and(|link| link.forward.is_none() && link.spliced.is_none()) {
            self.carrier = None;
        }
    }

    /// Returns the link state, creating it if necessary, or `None` if the stream has another
    /// carrier.
    pub(super) fn link_or_insert(&mut self) -> Option<&mut Link> {
        self.carrier.get_or_insert_with(|| Box::new(Carrier::Link(Link::default())));
        self.link()
    }

    /// Returns the target, if the first received bytes are within the copy's limit.
    fn forwards_to(&mut self, shared: &StreamResources) -> Option<SlotId> {
        let on_heap = self.rx.heap.as_ref().map(|heap| heap.len).filter(|len| *len > 0);
        let first = on_heap.or_else(|| self.rx.queue.first_len(&shared.buffers))?;
        let forward = self.forward()?;
        (u64::from(first) <= forward.left).then_some(forward.to)
    }

    /// Returns true if a chunk can be queued now.
    #[inline]
    pub(super) fn takes_more(&self, state: &LoopState) -> bool {
        !self.closing && !self.tx.refuses() && !self.is_at_send_bound(state)
    }

    /// Takes the first received bytes for forwarding and counts them.
    fn take_to_forward(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
    ) -> Option<Chunk> {
        let lease = self.take_received(shared, state)?;
        let threshold = state.bounds.splice_threshold;
        if self.forward().is_some_and(|forward| forward.count(lease.len(), threshold)) {
            self.begin_splicing(state);
        }
        Some(lease.into())
    }

    /// Wakes the task and stops forwarding if the task has something to do. Then lists the next
    /// receive or cancels the current one.
    fn after_forward(&mut self, shared: &mut StreamResources, state: &mut LoopState) {
        let at_limit = self.forward().is_none_or(|forward| forward.left == 0);
        let rx = &mut self.rx;
        if rx.bytes > 0 || rx.end.is_some() || at_limit {
            state.deferred.wakes.extend(rx.waker.take());
            self.stop_forwarding();
        }
        self.go_on(shared, state);
    }
}

/// Forwards the bytes of a linked stream's event. Returns false if the caller must handle the event
/// as for a stream without a link.
pub(super) fn on_ready(streams: &mut Streams, state: &mut LoopState, event: &Event) -> bool {
    let slot = event.token.slot();
    let source = streams.slots.get(slot);
    let splices = source.link().is_some_and(|link| link.splices());
    if !source.is_linked() {
        return false;
    }
    match event.token.kind() {
        OpKind::Recv => streams.forward(state, slot),
        OpKind::RecvReady if splices => streams.splice(state, slot),
        _ => return false,
    }
    true
}

impl Streams {
    /// Links two streams until the next poll of the source, and forwards at most `left` bytes.
    /// Returns the source's ID, or `None` if the streams are not plain sockets, one is closing, or
    /// the source has bytes or has ended.
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

    /// Returns the number of bytes forwarded from a source since the last call.
    pub(crate) fn take_forwarded(&mut self, from: SlotId) -> u64 {
        let forward = self.source(from).and_then(Stream::forward);
        forward.map_or(0, |forward| mem::take(&mut forward.bytes))
    }

    /// Returns true if the bytes of a source that is or was linked go through a pipe.
    pub(crate) fn is_splicing(&mut self, from: SlotId) -> bool {
        self.source(from).and_then(Stream::link).is_some_and(|link| link.splices())
    }

    pub(crate) fn unlink(&mut self, from: SlotId) {
        let Some(source) = self.source(from) else { return };
        if let Some(link) = source.link() {
            link.forward = None;
            source.drop_unused_link();
        }
    }

    #[inline(never)]
    pub(super) fn forward(&mut self, state: &mut LoopState, slot: u32) {
        while let Some(to) = self.slots.get(slot).forwards_to(&self.shared) {
            let target = self.slots.find(to);
            if !target.is_some_and(|target| target.takes_more(state)) {
                break;
            }
            let source = self.slots.get(slot);
            let Some(chunk) = source.take_to_forward(&mut self.shared, state) else { break };
            self.slots.get(to.index).enqueue(&mut self.shared, state, chunk);
        }
        self.slots.get(slot).after_forward(&mut self.shared, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_consecutive_receives_switch_how_the_next_bytes_travel() {
        let mut forward = Forward { left: 10_000, ..Forward::default() };
        for len in [100, 100, 100, 99, 100, 100, 100] {
            assert!(!forward.count(len, 100), "switched before four consecutive receives");
        }
        assert!(forward.count(100, 100));
        forward.set_splices(true);
        for len in [49, 49, 49, 50, 49, 49, 49] {
            assert!(!forward.count(len, 100), "switched although a receive had half the threshold");
        }
        assert!(forward.count(49, 100));
        assert_eq!((forward.bytes, forward.left), (1_192, 8_808));
    }

    #[test]
    fn without_a_threshold_receives_of_any_size_never_switch() {
        let mut forward = Forward { left: u64::MAX, ..Forward::default() };
        assert!((0..100).all(|_| !forward.count(1 << 20, usize::MAX)));
    }
}
