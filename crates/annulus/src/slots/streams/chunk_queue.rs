//! Chunks waiting to be sent, and the headers and vectors of sends that carry several chunks.
//! Headers and vectors do not move, because the kernel reads them.
#![allow(unsafe_code)]

use crate::bytes::chunk::Chunk;
use annulus_kernel::{IoVec, MsgHeader};
use std::collections::VecDeque;
use std::mem;
use std::ptr::{self, NonNull};

/// A queue whose first chunk needs no allocation: most queues hold one chunk or none.
#[derive(Default)]
#[expect(
    clippy::box_collection,
    reason = "slots are small, and hardly any stream queues a second chunk"
)]
pub(super) struct ChunkQueue {
    pub(super) first: Option<Chunk>,
    rest: Option<Box<VecDeque<Chunk>>>,
}

impl ChunkQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub(super) fn push(&mut self, chunk: Chunk) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.rest.get_or_insert_default().push_back(chunk);
        }
    }

    pub(super) fn push_front(&mut self, chunk: Chunk) {
        if let Some(second) = self.first.replace(chunk) {
            self.rest.get_or_insert_default().push_front(second);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Chunk> {
        let next = self.rest.as_mut().and_then(|rest| rest.pop_front());
        mem::replace(&mut self.first, next)
    }

    /// Removes the last chunk if there are more than `kept` chunks.
    pub(super) fn pop_back_beyond(&mut self, kept: usize) -> Option<Chunk> {
        if self.len() <= kept {
            return None;
        }
        let last = self.rest.as_mut().and_then(|rest| rest.pop_back());
        last.or_else(|| self.first.take())
    }

    /// Removes the first chunk if `wanted` returns true for it.
    #[inline]
    pub(super) fn pop_if(&mut self, wanted: impl FnOnce(&Chunk) -> bool) -> Option<Chunk> {
        if self.first.as_ref().is_some_and(wanted) { self.pop() } else { None }
    }

    /// Returns the chunk if there is exactly one.
    #[inline]
    pub(super) fn only(&self) -> Option<&Chunk> {
        self.first.as_ref().filter(|_| self.rest.as_ref().is_none_or(|rest| rest.is_empty()))
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    /// Returns the last chunk, unless it is one of the first `flying` chunks, which the kernel
    /// reads.
    #[inline]
    pub(super) fn last_at_rest(&mut self, flying: u8) -> Option<&mut Chunk> {
        let flying = usize::from(flying);
        match self.rest.as_mut().filter(|rest| !rest.is_empty()) {
            Some(rest) if rest.len() >= flying => rest.back_mut(),
            None if flying == 0 => self.first.as_mut(),
            _ => None,
        }
    }

    /// Returns the unsent bytes of each chunk. The first `gone` bytes of the first chunk have been
    /// sent.
    pub(super) fn unsent(&self, mut gone: usize) -> impl Iterator<Item = &[u8]> {
        self.iter().map(move |chunk| &chunk.as_ref()[mem::take(&mut gone)..])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }
}

pub(crate) const MAX_CHUNKS_PER_SEND: usize = 64;

/// A `struct msghdr` with the vectors it points to, on the heap. It is held by a raw pointer,
/// because moving a `Box` would assert unique access while the kernel reads the memory.
pub(crate) struct SendVector(NonNull<HeaderAndVectors>);

struct HeaderAndVectors {
    header: MsgHeader,
    vectors: [IoVec; MAX_CHUNKS_PER_SEND],
}

/// Vectors for the sends of a turn. Once the kernel has consumed the entries that refer to them, it
/// has read them, so they can be reused.
#[derive(Default)]
pub(crate) struct SendVectors {
    free: Vec<SendVector>,
    busy: Vec<SendVector>,
}

impl SendVectors {
    /// Writes a send's parts into a vector and returns the address of its header. The bytes of
    /// `control` must stay valid as long as the send.
    pub(super) fn describe(
        &mut self,
        parts: impl Iterator<Item = IoVec>,
        control: &[u8],
    ) -> *const u8 {
        let vector = self.free.pop().unwrap_or_else(SendVector::empty);
        let address = vector.fill(parts, control);
        self.busy.push(vector);
        address
    }

    /// Removes the vector that [`describe`](Self::describe) filled last, so that the caller can
    /// keep it longer than the turn.
    pub(super) fn keep(&mut self) -> SendVector {
        self.busy.pop().expect("no vector was described")
    }

    /// Frees a kept vector that the kernel no longer reads.
    pub(super) fn free(&mut self, vector: SendVector) {
        self.free.push(vector);
    }

    /// Returns true if the kernel may still read some of the vectors.
    #[inline]
    pub(super) fn are_lent(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Frees all vectors, after the kernel has consumed all submitted entries.
    pub(super) fn free_all(&mut self) {
        self.free.append(&mut self.busy);
    }
}

impl SendVector {
    fn empty() -> Self {
        let vectors = [IoVec { base: ptr::null(), len: 0 }; MAX_CHUNKS_PER_SEND];
        let parts = Box::new(HeaderAndVectors { header: MsgHeader::EMPTY, vectors });
        Self(NonNull::from(Box::leak(parts)))
    }

    /// Writes the header and its vectors. Returns the header's address, which stays valid as long
    /// as this value.
    fn fill(&self, parts: impl Iterator<Item = IoVec>, control: &[u8]) -> *const u8 {
        let place = self.0.as_ptr();
        // SAFETY: the memory is valid as long as this value. The vector is free: no send refers to
        // it, and no references into it exist.
        let vectors = unsafe { &mut (*place).vectors };
        let mut count = 0;
        for (vector, part) in vectors.iter_mut().zip(parts) {
            *vector = part;
            count += 1;
        }
        // SAFETY: the memory is valid as long as this value, and no send refers to it yet. The
        // pointers are derived from the owner's raw pointer, so they stay valid after the reference
        // is gone.
        unsafe {
            (*place).header = MsgHeader {
                vectors: (&raw const (*place).vectors).cast(),
                vector_count: count,
                control: control.as_ptr(),
                control_len: control.len(),
                ..MsgHeader::EMPTY
            };
            (&raw const (*place).header).cast()
        }
    }
}

impl Drop for SendVector {
    fn drop(&mut self) {
        // SAFETY: `empty` leaked the memory from a box, and only this destructor frees it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
