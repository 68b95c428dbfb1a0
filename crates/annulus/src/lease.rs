//! Memory lent by the ring.
#![allow(unsafe_code)]

use crate::runtime::memory::{HeapMemory, Meter};
use crate::shared::SharedBytes;
use annulus_driver::Pool;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::rc::Rc;

/// Bytes that the kernel has placed, borrowed from the ring: read them, change them in place, send them on, keep them.
///
/// A lease belongs to the thread of its runtime. Dropping it gives the memory back with the next turn. It keeps its
/// memory alive, beyond its stream and even beyond its runtime. When the pool is short, a lease owns heap memory
/// instead; nothing else changes. To take bytes to another thread, use [`into_shared`](Self::into_shared).
pub struct Lease {
    start: NonNull<u8>,
    len: usize,
    hold: Hold,
}

/// What keeps a lease's memory.
enum Hold {
    /// Nothing: only while a lease is being split.
    Nothing,
    /// One of the pool's buffers, whole or in part.
    Lent(Lent),
    /// A share of what another lease held before it was split.
    Part(Rc<Hold>),
    /// Memory of its own.
    Heap(#[expect(dead_code, reason = "held for its drop")] Box<HeapMemory>),
}

/// One of the pool's buffers, given back on drop.
struct Lent {
    pool: Rc<Pool>,
    id: u16,
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        self.pool.give_back(self.id);
    }
}

impl Lease {
    /// The first `len` bytes of a buffer that was taken from `pool` and not given back.
    #[inline]
    pub(crate) fn lent(pool: Rc<Pool>, id: u16, len: usize) -> Self {
        debug_assert!(len <= pool.buffer_size() as usize);
        // SAFETY: the buffer was taken from the pool.
        let start =
            NonNull::new(unsafe { pool.address(id) }).expect("a mapping is not at address zero");
        Self { start, len, hold: Hold::Lent(Lent { pool, id }) }
    }

    /// Heap memory that counts nowhere: the first `len` bytes of it.
    pub(crate) fn heap(bytes: Box<[u8]>, len: usize) -> Self {
        Self::of_heap(HeapMemory::new(bytes, None), len)
    }

    /// The first `len` bytes of heap memory, which counts until the lease is dropped.
    pub(crate) fn of_heap(memory: Box<HeapMemory>, len: usize) -> Self {
        let (start, len) = (memory.start(), len.min(memory.len()));
        Self { start, len, hold: Hold::Heap(memory) }
    }

    /// Copies a lent buffer out, giving it back at once.
    pub(crate) fn copied(self, meter: &Meter) -> Self {
        let len = self.len;
        Self::of_heap(HeapMemory::new(Box::from(&*self), Some(meter)), len)
    }

    /// How many bytes there are. (No look at them: some may be those of a part that was split off.)
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a slice's `is_empty`, by `Deref`")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Takes the first `n` bytes off into a lease of their own, without copying. From here on the memory goes back when
    /// the last part is dropped.
    ///
    /// # Panics
    /// If `n` is more than the length.
    pub fn split_to(&mut self, n: usize) -> Self {
        let mut head = self.share();
        head.truncate(self.checked(n));
        self.advance(n);
        head
    }

    /// Takes the bytes from `n` on off into a lease of their own, without copying.
    ///
    /// # Panics
    /// If `n` is more than the length.
    pub fn split_off(&mut self, n: usize) -> Self {
        let mut tail = self.share();
        tail.advance(self.checked(n));
        self.truncate(n);
        tail
    }

    /// Drops the bytes from `n` on; nothing happens if there are no more than `n`.
    pub fn truncate(&mut self, n: usize) {
        self.len = self.len.min(n);
    }

    /// Drops the first `n` bytes.
    ///
    /// # Panics
    /// If `n` is more than the length.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        let n = self.checked(n);
        // SAFETY: `n` is at most the length of the memory held.
        self.start = unsafe { self.start.add(n) };
        self.len -= n;
    }

    /// The same bytes, counted and read-only: `Send`, `Sync`, cloned without copying. The memory goes back to the pool,
    /// from whichever thread drops the last of them; it outlives the runtime.
    ///
    /// A lease that was split, or that owns heap memory, is copied.
    pub fn into_shared(self) -> SharedBytes {
        let Self { start, len, hold } = self;
        match hold {
            Hold::Lent(lent) => {
                let lent = std::mem::ManuallyDrop::new(lent);
                // SAFETY: the buffer was lent to this lease, which ends here without giving it back; the pool's count
                // is read once and its reference released below.
                let pool = unsafe { std::ptr::read(&raw const lent.pool) };
                // SAFETY: start and len lie in the buffer `id` of this memory.
                unsafe { SharedBytes::lent(pool.memory().clone(), lent.id, start, len) }
            }
            hold => SharedBytes::copy_of(&Self { start, len, hold }),
        }
    }

    fn checked(&self, n: usize) -> usize {
        assert!(n <= self.len, "{n} bytes of a lease of {}", self.len);
        n
    }

    /// The bytes of a range, without a look at those around it: they may be another lease's.
    #[inline]
    pub(crate) fn part(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: as for `deref`, of fewer bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// A second lease on the same bytes. The callers part the ranges that are written before the two are used.
    pub(crate) fn share(&mut self) -> Self {
        let whole = match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Part(whole) => whole,
            whole => Rc::new(whole),
        };
        self.hold = Hold::Part(whole.clone());
        Self { start: self.start, len: self.len, hold: Hold::Part(whole) }
    }
}

impl Deref for Lease {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the hold keeps the memory alive; the kernel wrote at least `len` bytes from `start` before it handed
        // the buffer over, and no other lease covers them (split parts are disjoint).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and this lease is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(text: &str) -> Lease {
        Lease::heap(text.as_bytes().into(), text.len())
    }

    #[test]
    fn parts_are_disjoint_and_whole() {
        let mut tail = lease("head-middle-tail");
        let mut head = tail.split_to(5);
        let mut rest = tail.split_off(7);
        head[0] = b'H';
        rest[0] = b'T';
        assert_eq!((&*head, &*tail, &*rest), (&b"Head-"[..], &b"middle-"[..], &b"Tail"[..]));
        drop(head);
        drop(rest);
        assert_eq!(&*tail, b"middle-");
    }

    #[test]
    fn advance_and_truncate_leave_the_middle() {
        let mut lease = lease("0123456789");
        lease.advance(2);
        lease.truncate(3);
        lease.truncate(100);
        assert_eq!(&*lease, b"234");
    }

    #[test]
    #[should_panic(expected = "11 bytes of a lease of 10")]
    fn going_past_the_end_is_a_bug_of_the_caller() {
        lease("0123456789").advance(11);
    }
}
