//! Bytes that can be shared between threads.
#![allow(unsafe_code)]

use annulus_driver::PoolMemory;
use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

/// Reference-counted, read-only bytes. They are `Send` and `Sync`, and are cloned and sliced
/// without a copy.
///
/// Bytes from a [`Lease`](crate::Lease) return their memory to its pool when the last clone is
/// dropped, on any thread. The memory outlives the runtime.
///
/// ```
/// use annulus::SharedBytes;
///
/// let page = SharedBytes::from(format!("HTTP/1.1 200 OK\r\n\r\n{}", "hello"));
/// let body = page.slice(19..);
/// let length = std::thread::spawn({
///     let body = body.clone(); // A count goes up; the bytes are not copied.
///     move || body.len()
/// });
/// assert_eq!((&*body, length.join().unwrap()), (&b"hello"[..], 5));
/// ```
#[derive(Clone)]
pub struct SharedBytes {
    start: NonNull<u8>,
    len: usize,
    owner: Arc<SharedOwner>,
}

enum SharedOwner {
    Lent { memory: Arc<PoolMemory>, id: u16 },
    Heap(Box<[u8]>),
}

impl Drop for SharedOwner {
    fn drop(&mut self) {
        if let Self::Lent { memory, id } = self {
            memory.give_back_remotely(*id);
        }
    }
}

// SAFETY: the bytes are only read, and their owner is counted atomically.
unsafe impl Send for SharedBytes {}
// SAFETY: shared references only read the bytes, and the owner is counted atomically.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// # Safety
    /// The `len` bytes at `start` must lie in buffer `id` of `memory`. The buffer must be lent, and
    /// only this value may return it.
    pub(crate) unsafe fn lent(
        memory: Arc<PoolMemory>,
        id: u16,
        start: NonNull<u8>,
        len: usize,
    ) -> Self {
        Self { start, len, owner: Arc::new(SharedOwner::Lent { memory, id }) }
    }

    /// Copies bytes into new heap memory.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self::from(Box::<[u8]>::from(bytes))
    }

    /// Returns a part of the bytes, without a copy.
    ///
    /// # Panics
    /// If the range is out of bounds, as for slices.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let part = &self[(range.start_bound().cloned(), range.end_bound().cloned())];
        Self { start: NonNull::from(part).cast(), len: part.len(), owner: self.owner.clone() }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the owner keeps the memory alive, and it is only read.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Box<[u8]>> for SharedBytes {
    fn from(bytes: Box<[u8]>) -> Self {
        let owner = Arc::new(SharedOwner::Heap(bytes));
        let SharedOwner::Heap(bytes) = &*owner else { unreachable!("the owner is heap memory") };
        Self { start: NonNull::from(&**bytes).cast(), len: bytes.len(), owner }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.into_boxed_slice().into()
    }
}

impl From<String> for SharedBytes {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

/// Copies the text.
impl From<&str> for SharedBytes {
    fn from(text: &str) -> Self {
        Self::copy_of(text.as_bytes())
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_and_cross_threads() {
        let whole = SharedBytes::from("across the threads");
        let part = whole.slice(7..10);
        drop(whole);
        let text = std::thread::spawn(move || part.to_vec()).join().unwrap();
        assert_eq!(text, b"the");
    }
}
