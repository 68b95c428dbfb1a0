//! Forwarding: bytes that a stream receives go into the send queue of another at the event that brings them, and no task is woken.
//!
//! A task that copies from one stream to another and waits for bytes *links* them. While a link is set, nothing is queued on its source:
//! what comes is accepted by the target at once. The link ends, and the task is woken, as soon as something comes that the target does
//! not accept under its bound or that the copy's limit does not allow, at that limit, at the end of the source, and at an error: the task
//! then does what it would have done without. Each poll of the source's receive ends it too, so that bytes go to the task that asks for
//! them.

use super::Streams;
use super::stream::{Life, Shared, Stream};
use crate::base::io::Io;
use crate::bytes::chunk::Chunk;
use crate::slots::slot_id::SlotId;
use std::mem;

impl Stream {
    /// From here on received bytes wait for a task.
    #[inline]
    pub(super) fn unlink(&mut self) {
        if self.life == Life::Linked {
            self.life = Life::Open;
        }
    }

    fn may_be_linked(&self) -> bool {
        self.is_plain() && self.is_live()
    }

    /// The target of the bytes that were received first, if they may go there.
    fn forwards_to(&self, shared: &Shared) -> Option<SlotId> {
        let first = self.rx.first_len(&shared.links)?;
        let forward = self.rx.forward.as_deref()?;
        (u64::from(first) <= forward.left).then_some(forward.to)
    }

    /// Takes the bytes that were received first, to be passed on, and counts them.
    fn take_to_forward(&mut self, shared: &mut Shared, io: &mut Io) -> Option<Chunk> {
        let lease = self.take_received(shared, io)?;
        if let Some(forward) = &mut self.rx.forward {
            forward.bytes += lease.len() as u64;
            forward.left -= lease.len() as u64;
            if forward.note(lease.len(), io.bounds.splice_threshold) {
                self.begin_splicing(io);
            }
        }
        Some(lease.into())
    }

    /// Wakes the task if it has something to do, and arms again or stops.
    fn after_forward(&mut self, shared: &mut Shared, io: &mut Io, more: bool) {
        let rx = &mut self.rx;
        rx.drop_unused(more);
        let at_limit = rx.forward.as_ref().is_none_or(|forward| forward.left == 0);
        if rx.bytes > 0 || rx.end.is_some() || at_limit {
            io.after.wakes.extend(rx.waker.take());
            self.unlink();
        }
        self.go_on(shared, io);
    }
}

impl Streams {
    /// Links two streams, if both are plain sockets, until the next poll of the source; nothing may be queued on that. No more than `left`
    /// bytes are passed on. The source is named by what is returned.
    pub(crate) fn link(&mut self, from: u32, to: u32, left: u64) -> Option<SlotId> {
        let to = self.slots.get(to);
        let to = to.may_be_linked().then_some(to.id)?;
        let source = self.slots.get(from);
        if !source.may_be_linked() || source.rx.bytes > 0 || source.rx.end.is_some() {
            return None;
        }
        let forward = source.rx.forward.get_or_insert_default();
        (forward.to, forward.left) = (to, left);
        source.life = Life::Linked;
        Some(source.id)
    }

    /// How many bytes went over the link of a source since the last call.
    pub(crate) fn take_forwarded(&mut self, from: SlotId) -> u64 {
        let source = self.slots.find(from.index, from.generation);
        let forward = source.and_then(|source| source.rx.forward.as_mut());
        forward.map_or(0, |forward| mem::take(&mut forward.bytes))
    }

    /// Whether the bytes of a source that is or was linked go through a pipe.
    pub(crate) fn is_splicing(&mut self, from: SlotId) -> bool {
        self.slots.find(from.index, from.generation).is_some_and(|source| source.splices())
    }

    /// Ends the link of a source.
    pub(crate) fn unlink(&mut self, from: SlotId) {
        if let Some(source) = self.slots.find(from.index, from.generation) {
            source.unlink();
            source.rx.forward = None;
        }
    }

    /// Passes on the bytes that a linked stream has received.
    #[inline(never)]
    pub(super) fn forward(&mut self, io: &mut Io, slot: u32, more: bool) {
        while let Some(to) = self.slots.get(slot).forwards_to(&self.shared) {
            let target = self.slots.find(to.index, to.generation);
            if !target.is_some_and(|target| target.takes_more(io)) {
                break;
            }
            let source = self.slots.get(slot);
            let Some(chunk) = source.take_to_forward(&mut self.shared, io) else { break };
            self.slots.get(to.index).enqueue(&mut self.shared, io, chunk);
        }
        self.slots.get(slot).after_forward(&mut self.shared, io, more);
    }
}
