//! The receiving half of a stream's slot.

use crate::memory::{HeapMemory, Meter};
use crate::slots::arming::Arming;
use rustix::io::Errno;
use std::task::Waker;

/// How a stream ended. Sticky, and behind the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Eof,
    Failed(Errno),
}

/// The receiving half of a stream's slot.
#[derive(Default)]
pub(super) struct RecvState {
    pub(super) arming: Arming,
    pub(super) end: Option<End>,
    /// The last poll for readiness has said that there is something to receive.
    pub(super) is_ready: bool,
    pub(super) brought: Brought,
    /// Bytes that the multishot receive was armed to bring.
    pub(super) limit: u32,
    /// Received and not yet taken.
    pub(super) queue: BufferQueue,
    /// Bytes received and not yet taken, in the queue and on the heap.
    pub(super) bytes: u32,
    /// Heap memory of a single receive in flight, or received; ahead of the queue.
    pub(super) heap: Option<Box<OnHeap>>,
    pub(super) waker: Option<Waker>,
}

/// The recent results of the receives: a receive into a lent buffer compares them once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brought {
    /// Something has come in this period: see `silent`.
    pub(super) is_heard: bool,
    /// Receives in a row that found no buffer and brought nothing.
    pub(super) misses: u8,
}

pub(super) const REGULARLY: Brought = Brought { is_heard: true, misses: 0 };

/// Heap memory of a receive: in flight while `len` is zero, then received.
pub(super) struct OnHeap {
    pub(super) memory: Box<HeapMemory>,
    pub(super) len: u32,
}

impl RecvState {
    /// Bytes received earlier, elsewhere: they come first.
    pub(super) fn with_bytes(bytes: Vec<u8>, meter: &Meter) -> Self {
        let len = bytes.len() as u32;
        let memory = || HeapMemory::new(bytes.into_boxed_slice(), Some(meter));
        let heap = (len > 0).then(|| Box::new(OnHeap { memory: memory(), len }));
        Self { bytes: len, heap, ..Self::default() }
    }
}

/// No buffer.
const NONE: u16 = u16::MAX;

/// Received bytes of one stream in lent buffers, in the order in which they came: the first buffer and the last.
pub(super) struct BufferQueue {
    first: u16,
    last: u16,
}

/// For each buffer of the pool: how much is in it, and which one is next in its stream's queue. They lie in one table, so that the queue of
/// a stream takes four bytes and no allocation.
#[derive(Default)]
pub(super) struct Links(Box<[Link]>);

#[derive(Clone, Copy)]
struct Link {
    len: u32,
    next: u16,
}

impl Links {
    pub(super) fn new(buffers: u32) -> Self {
        Self(vec![Link { len: 0, next: NONE }; buffers as usize].into_boxed_slice())
    }
}

impl Default for BufferQueue {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl BufferQueue {
    /// The last buffer, and how much is in it.
    #[inline]
    pub(super) fn last_mut<'a>(&self, links: &'a mut Links) -> Option<(u16, &'a mut u32)> {
        (self.first != NONE).then(|| (self.last, &mut links.0[usize::from(self.last)].len))
    }

    /// Adds a buffer with `len` bytes at the end.
    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, id: u16, len: u32) {
        if self.first == NONE {
            self.first = id;
        } else {
            links.0[usize::from(self.last)].next = id;
        }
        self.last = id;
        links.0[usize::from(id)] = Link { len, next: NONE };
    }

    /// How much is in the first buffer.
    pub(super) fn first_len(&self, links: &Links) -> Option<u32> {
        (self.first != NONE).then(|| links.0[usize::from(self.first)].len)
    }

    /// Takes the first buffer, with its length.
    #[inline]
    pub(super) fn pop(&mut self, links: &Links) -> Option<(u16, u32)> {
        let id = self.first;
        if id == NONE {
            return None;
        }
        let Link { len, next } = links.0[usize::from(id)];
        self.first = next;
        Some((id, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_queues_over_one_table_keep_their_order() {
        let mut links = Links::new(4);
        let (mut one, mut other) = (BufferQueue::default(), BufferQueue::default());
        assert!(one.pop(&links).is_none() && one.last_mut(&mut links).is_none());
        one.push(&mut links, 2, 20);
        other.push(&mut links, 0, 5);
        one.push(&mut links, 1, 10);
        let (id, len) = one.last_mut(&mut links).unwrap();
        assert_eq!((id, *len), (1, 10));
        *len += 1;
        assert_eq!(
            (one.pop(&links), one.pop(&links), one.pop(&links)),
            (Some((2, 20)), Some((1, 11)), None)
        );
        one.push(&mut links, 2, 7);
        assert_eq!((one.pop(&links), other.pop(&links)), (Some((2, 7)), Some((0, 5))));
    }
}
