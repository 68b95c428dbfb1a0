//! Leases of received bytes.
#![allow(unsafe_code)]

use crate::bytes::shared::SharedBytes;
use crate::bytes::thread_bound::stays;
use crate::memory::{HeapMemory, Meter};
use annulus_driver::Pool;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::rc::Rc;

/// Minimum size of the memory in which received bytes are gathered, unless fewer bytes are needed.
const MIN_GATHER_BYTES: usize = 4 * 1024;

/// Received bytes in a buffer lent by the runtime. They can be read, changed in place, sent, and
/// kept.
///
/// A lease belongs to the thread of its runtime. Dropping it returns the memory in the next turn. A
/// lease keeps its memory alive, even after its stream or its runtime has ended. If the pool is
/// short of buffers, a lease owns heap memory instead, and nothing else changes. To move bytes to
/// another thread, use [`into_shared`](Self::into_shared). Moving the lease itself does not
/// compile; the compiler's error suggests this method.
///
/// ```compile_fail,E0277
/// fn count(lease: annulus::Lease) -> std::thread::JoinHandle<usize> {
///     std::thread::spawn(move || lease.len())
/// }
/// ```
///
/// ```
/// use annulus::net::UnixStream;
///
/// # annulus::run(async {
/// # let (mut stream, mut peer) = UnixStream::pair()?;
/// # peer.send("key=value").await?;
/// let mut key = stream.recv().await?.expect("the stream ended too early");
/// let at = key.iter().position(|byte| *byte == b'=').unwrap();
/// let mut value = key.split_off(at + 1); // Both parts share the memory.
/// key.truncate(at);
/// value.make_ascii_uppercase(); // In place.
/// assert_eq!((&*key, &*value), (&b"key"[..], &b"VALUE"[..]));
/// stream.send(value).await?; // Not copied.
/// assert_eq!(&*peer.recv().await?.unwrap(), b"VALUE");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Lease {
    start: NonNull<u8>,
    len: usize,
    hold: LeaseOwner,
}

stays!(Send Lease Sync Lease);

/// The owner that keeps the memory of a lease alive.
enum LeaseOwner {
    /// A placeholder while a lease is being split.
    Nothing,
    /// A buffer of the pool, or a part of one.
    Lent(Lent),
    /// Memory shared with the other parts of a lease that was split.
    Part(Rc<LeaseOwner>),
    Heap(Box<HeapMemory>),
}

/// A buffer of the pool, returned on drop.
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
    /// Creates a lease of the first `len` bytes of a buffer that was taken from `pool` and not
    /// returned.
    #[inline]
    pub(crate) fn lent(pool: Rc<Pool>, id: u16, len: usize) -> Self {
        debug_assert!(len <= pool.room(id) as usize);
        // SAFETY: the buffer was taken from the pool, so `id` is one of its buffers.
        let start =
            NonNull::new(unsafe { pool.address(id) }).expect("a mapping is at address zero");
        Self { start, len, hold: LeaseOwner::Lent(Lent { pool, id }) }
    }

    /// Creates a lease of the first `len` bytes of heap memory that is not metered.
    pub(crate) fn heap(bytes: Box<[u8]>, len: usize) -> Self {
        Self::of_heap(HeapMemory::new(bytes, None), len)
    }

    /// Creates a lease of the first `len` bytes of heap memory, which may be metered.
    pub(crate) fn of_heap(memory: Box<HeapMemory>, len: usize) -> Self {
        let (start, len) = (memory.start(), len.min(memory.len()));
        Self { start, len, hold: LeaseOwner::Heap(memory) }
    }

    /// Copies bytes to heap memory that is not metered.
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        Self::heap(Box::from(bytes), bytes.len())
    }

    /// Appends a copy of `bytes`. The copy goes into free space of the lease's heap memory, if
    /// there is enough. Otherwise all bytes are copied into new memory, with free space for more of
    /// the `wanted` bytes. The memory is at most twice as large as the bytes received so far, or
    /// 4 KiB, so that a large `wanted` takes no memory before its bytes arrive.
    pub(crate) fn append(&mut self, bytes: &[u8], wanted: usize, meter: &Meter) {
        let len = self.len + bytes.len();
        if let LeaseOwner::Heap(memory) = &mut self.hold {
            let end = self.start.as_ptr().addr() - memory.start().as_ptr().addr() + self.len;
            if let Some(free) = memory.get_mut(end..end + bytes.len()) {
                free.copy_from_slice(bytes);
                self.len = len;
                return;
            }
        }
        let mut memory =
            HeapMemory::zeroed(wanted.min((2 * len).max(MIN_GATHER_BYTES)).max(len), meter);
        memory[..self.len].copy_from_slice(self);
        memory[self.len..len].copy_from_slice(bytes);
        *self = Self::of_heap(memory, len);
    }

    /// Copies the bytes to the heap, so that the buffer is returned at once.
    pub(crate) fn copied(self, meter: &Meter) -> Self {
        let len = self.len;
        Self::of_heap(HeapMemory::new(Box::from(&*self), Some(meter)), len)
    }

    /// Returns the number of bytes.
    // Does not create a slice, because some of the bytes belong to another lease during a split.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a slice's `is_empty`, by `Deref`")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Splits off the first `n` bytes as another lease, without a copy. The memory is returned when
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

    /// Splits off the bytes from `n` on as another lease, without a copy.
    ///
    /// # Panics
    /// If `n` is more than the length.
    pub fn split_off(&mut self, n: usize) -> Self {
        let mut tail = self.share();
        tail.advance(self.checked(n));
        self.truncate(n);
        tail
    }

    /// Drops the bytes from `n` on, if there are any.
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

    /// Converts the lease into reference-counted, read-only bytes, which are `Send` and `Sync`, and
    /// which are cloned without a copy. The memory is returned to the pool when the last clone is
    /// dropped, on any thread. The clones may outlive the runtime.
    ///
    /// A lease that was split, or that owns heap memory, is copied.
    pub fn into_shared(self) -> SharedBytes {
        let Self { start, len, hold } = self;
        match hold {
            LeaseOwner::Lent(lent) => {
                let lent = std::mem::ManuallyDrop::new(lent);
                // SAFETY: `lent.pool` is not used again, so the reference is moved out only once.
                // `ManuallyDrop` prevents the drop, which would use it and return the buffer.
                let pool = unsafe { std::ptr::read(&raw const lent.pool) };
                // SAFETY: `start` and `len` lie in buffer `id` of this memory, which was lent to
                // this lease alone.
                unsafe { SharedBytes::lent(pool.memory().clone(), lent.id, start, len) }
            }
            hold => SharedBytes::copy_of(&Self { start, len, hold }),
        }
    }

    #[inline]
    fn checked(&self, n: usize) -> usize {
        assert!(n <= self.len, "{n} bytes are more than the {} bytes of the lease", self.len);
        n
    }

    /// Returns the bytes of a range. This creates no slice of the bytes outside the range, which
    /// may belong to another lease.
    #[inline]
    pub(crate) fn part(&self, range: Range<usize>) -> &[u8] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} is out of range for a lease of {} bytes",
            self.len
        );
        // SAFETY: `hold` keeps the memory alive. The range lies within the lease, whose bytes are
        // initialised, and no other lease writes to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// Returns a second lease on the same bytes. Callers must make the ranges disjoint before
    /// either lease is used.
    pub(crate) fn share(&mut self) -> Self {
        let whole = match std::mem::replace(&mut self.hold, LeaseOwner::Nothing) {
            LeaseOwner::Part(whole) => whole,
            whole => Rc::new(whole),
        };
        self.hold = LeaseOwner::Part(whole.clone());
        Self { start: self.start, len: self.len, hold: LeaseOwner::Part(whole) }
    }
}

impl Deref for Lease {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `hold` keeps the memory alive. The `len` bytes from `start` are initialised, and
        // no other lease covers them, since the parts of a split are disjoint.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `hold` keeps the memory alive. The `len` bytes from `start` are initialised, no
        // other lease covers them, and this lease is borrowed exclusively.
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
    fn appended_bytes_share_the_memory_while_they_fit() {
        let meter = Meter::default();
        let mut gathered = lease("01");
        gathered.append(b"234", 8, &meter);
        let address = gathered.as_ptr();
        gathered.advance(1);
        gathered.append(b"567", 8, &meter);
        assert_eq!((&*gathered, gathered.as_ptr().addr()), (&b"1234567"[..], address.addr() + 1));
        gathered.append(b"89", 8, &meter);
        assert_eq!((&*gathered, meter.bytes()), (&b"123456789"[..], 9));
        drop(gathered);
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn wanted_bytes_take_no_memory_before_they_arrive() {
        let meter = Meter::default();
        let mut gathered = lease("0");
        gathered.append(b"1", usize::MAX, &meter);
        assert_eq!(meter.bytes(), MIN_GATHER_BYTES);
    }

    #[test]
    #[should_panic(expected = "11 bytes are more than the 10 bytes of the lease")]
    fn advancing_past_the_end_panics() {
        lease("0123456789").advance(11);
    }
}
