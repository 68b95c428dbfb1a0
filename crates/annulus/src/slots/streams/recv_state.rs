//! The receiving half of a stream's slot.

use super::buffer_queue::{BufferQueue, Links};
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

/// The recent results of the receives, in one byte: a receive into a lent buffer compares it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Brought(u8);

impl Default for Brought {
    fn default() -> Self {
        Self(Self::SILENT)
    }
}

impl Brought {
    /// Something in this period (see `silent`), and nothing has missed a buffer since.
    pub(super) const REGULARLY: Self = Self(0);
    /// Nothing in this period. The other bits: receives in a row that found no buffer and brought nothing.
    const SILENT: u8 = 0x80;

    pub(super) fn misses(self) -> u8 {
        self.0 & !Self::SILENT
    }

    pub(super) fn note_miss(&mut self) {
        self.0 += u8::from(self.misses() < Self::SILENT - 1);
    }

    pub(super) fn forget_misses(&mut self) {
        self.0 &= Self::SILENT;
    }

    pub(super) fn is_silent(self) -> bool {
        self.0 & Self::SILENT != 0
    }

    /// A period has begun.
    pub(super) fn begin(&mut self) {
        self.0 |= Self::SILENT;
    }
}

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

    /// A receive has ended, unless `more` is to come: memory for which it has brought nothing goes.
    #[inline]
    pub(super) fn drop_unused(&mut self, more: bool) {
        if !more {
            self.heap.take_if(|heap| heap.len == 0);
        }
    }

    /// The length of the bytes that are taken first; `None` if nothing is there.
    pub(super) fn first_len(&self, links: &Links) -> Option<u32> {
        match &self.heap {
            Some(heap) if heap.len > 0 => Some(heap.len),
            _ => self.queue.first_len(links),
        }
    }

    /// The waker of the task that waits, if one does.
    pub(super) fn waker(&self) -> Option<&Waker> {
        self.waker.as_ref()
    }
}
