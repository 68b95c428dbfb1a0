//! Chunks that wait to be sent; and the headers and vectors of sends that carry several of them, which do not move.
#![allow(unsafe_code)]

use crate::bytes::chunk::Chunk;
use crate::bytes::spares::Spares;
use annulus_kernel::{IoVec, MsgHeader};
use std::collections::VecDeque;
use std::mem;
use std::ptr::{self, NonNull};

/// A queue whose first chunk needs no memory of its own: the commonest has one or none.
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

    /// The first chunk, if it is one to take.
    #[inline]
    pub(super) fn pop_if(&mut self, wanted: impl FnOnce(&Chunk) -> bool) -> Option<Chunk> {
        if self.first.as_ref().is_some_and(wanted) { self.pop() } else { None }
    }

    /// The chunk, if there is only one.
    #[inline]
    pub(super) fn only(&self) -> Option<&Chunk> {
        self.first.as_ref().filter(|_| self.rest.as_ref().is_none_or(|rest| rest.is_empty()))
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    /// Copies bytes to the end: into the last chunk, if it is a buffer of the runtime's own behind the `flying` ones, which the kernel reads.
    /// The memory that they take.
    pub(super) fn push_copy<'a>(
        &mut self,
        spares: &mut Spares,
        flying: u8,
        bytes: impl Iterator<Item = &'a [u8]>,
    ) -> usize {
        let at_rest = self.len() > usize::from(flying);
        let last = self.rest.as_mut().and_then(|rest| rest.back_mut()).or(self.first.as_mut());
        if let Some(buffer) = last.filter(|_| at_rest).and_then(Chunk::copied_mut) {
            let before = buffer.len();
            bytes.for_each(|part| buffer.extend_from_slice(part));
            return buffer.len() - before;
        }
        let mut buffer = spares.take();
        bytes.for_each(|part| buffer.extend_from_slice(part));
        let chunk = Chunk::copied(buffer);
        let weight = chunk.weight();
        self.push(chunk);
        weight
    }

    /// The bytes of each chunk, but for those of the first that went already.
    pub(super) fn unsent(&self, mut gone: usize) -> impl Iterator<Item = &[u8]> {
        self.iter().map(move |chunk| &chunk.as_ref()[mem::take(&mut gone)..])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }
}

/// Most chunks a send carries.
pub(crate) const MOST: usize = 64;

/// A `struct msghdr` with the vectors it points to, on the heap, by address: a `Box` that is moved while the kernel reads it would
/// claim to be the only way to it.
pub(crate) struct Vector(NonNull<Parts>);

struct Parts {
    header: MsgHeader,
    vectors: [IoVec; MOST],
}

/// The vectors of this turn's sends. The kernel has read them once it has taken the entries that name them; then all of
/// them are free again.
#[derive(Default)]
pub(crate) struct Vectors {
    free: Vec<Vector>,
    busy: Vec<Vector>,
}

impl Vectors {
    /// Puts a send's parts into a vector, with a control message, which must last as long as the send; the address is that of its header.
    pub(super) fn describe(
        &mut self,
        parts: impl Iterator<Item = IoVec>,
        control: &[u8],
    ) -> *const u8 {
        let vector = self.free.pop().unwrap_or_else(Vector::empty);
        let address = vector.fill(parts, control);
        self.busy.push(vector);
        address
    }

    /// Takes out the vector that was described last: it must last longer.
    pub(super) fn keep(&mut self) -> Vector {
        self.busy.pop().expect("a vector was described")
    }

    /// The kernel is done with a vector that was kept.
    pub(super) fn free(&mut self, vector: Vector) {
        self.free.push(vector);
    }

    /// The kernel may still read some of them.
    #[inline]
    pub(super) fn are_lent(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Everything submitted so far has been taken by the kernel.
    pub(super) fn free_all(&mut self) {
        self.free.append(&mut self.busy);
    }
}

impl Vector {
    fn empty() -> Self {
        let vectors = [IoVec { base: ptr::null(), len: 0 }; MOST];
        let parts = Box::new(Parts { header: MsgHeader::EMPTY, vectors });
        Self(NonNull::from(Box::leak(parts)))
    }

    /// Writes the header and its vectors. Returns the header's address, which is valid as long as this value.
    fn fill(&self, parts: impl Iterator<Item = IoVec>, control: &[u8]) -> *const u8 {
        let place = self.0.as_ptr();
        // SAFETY: the memory is valid as long as this value, which is free: no send names it, and there are no references into it.
        let vectors = unsafe { &mut (*place).vectors };
        let mut count = 0;
        for (vector, part) in vectors.iter_mut().zip(parts) {
            *vector = part;
            count += 1;
        }
        // SAFETY: as above. The pointers come from the owner's own address, so that they are valid after the reference has gone.
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

impl Drop for Vector {
    fn drop(&mut self) {
        // SAFETY: the memory was leaked from a box in `empty`, and is freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
