//! `Bytes` of the crate of that name, in and out, without copying (feature `bytes`).
#![allow(unsafe_code)]

use crate::chunk::Chunk;
use crate::current;
use crate::fs::{IoBuf, IoBufMut};
use crate::shared::SharedBytes;
use bytes::{Bytes, BytesMut};
use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes on their way out. Dropping the last of some runs their owner's drop, which is anybody's code: on a runtime's
/// thread that is put off until the runtime is not borrowed.
pub(crate) struct Foreign(Bytes);

impl Foreign {
    /// Takes the first `n` bytes off.
    pub(crate) fn split_to(&mut self, n: usize) -> Self {
        Self(self.0.split_to(n))
    }

    /// Apart, so that dropping a chunk that has none stays small.
    #[cold]
    #[inline(never)]
    fn put_off(&mut self) {
        let mut bytes = Some(mem::take(&mut self.0));
        current::with(|core| core.done.put(bytes.take()));
        // Where no runtime is running, none is borrowed.
        drop(bytes);
    }
}

impl Deref for Foreign {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Foreign {
    #[inline]
    fn drop(&mut self) {
        self.put_off();
    }
}

/// Bytes that are done with, and not dropped yet.
#[derive(Default)]
pub(crate) struct Done {
    bytes: RefCell<Vec<Bytes>>,
    /// There are some: every turn asks, and hardly ever are there any.
    any: Cell<bool>,
}

impl Done {
    fn put(&self, bytes: Option<Bytes>) {
        self.bytes.borrow_mut().extend(bytes);
        self.any.set(true);
    }

    /// Drops them. The runtime must not be borrowed.
    #[inline]
    pub(crate) fn clear(&self) {
        if self.any.get() {
            self.any.set(false);
            self.drop_all();
        }
    }

    #[cold]
    fn drop_all(&self) {
        // One at a time: a drop may put others here. One that panics goes no further.
        while let Some(bytes) = self.take() {
            _ = catch_unwind(AssertUnwindSafe(|| drop(bytes)));
        }
    }

    fn take(&self) -> Option<Bytes> {
        self.bytes.borrow_mut().pop()
    }
}

impl From<SharedBytes> for Bytes {
    /// The memory stays where it is, and goes back to its pool with the last clone.
    fn from(bytes: SharedBytes) -> Self {
        Self::from_owner(bytes)
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Self::foreign(Foreign(bytes))
    }
}

// SAFETY: the bytes are shared and never change; handles move, the memory does not.
unsafe impl IoBuf for Bytes {
    fn as_ptr(&self) -> *const u8 {
        self[..].as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }
}

// SAFETY: the memory is this handle's alone, and does not move with it.
unsafe impl IoBuf for BytesMut {
    fn as_ptr(&self) -> *const u8 {
        self[..].as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }
}

// SAFETY: the capacity is this handle's alone, too.
unsafe impl IoBufMut for BytesMut {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self[..].as_mut_ptr()
    }

    fn bytes_total(&mut self) -> usize {
        self.capacity()
    }

    unsafe fn set_init(&mut self, count: usize) {
        if count > self.len() {
            // SAFETY: the caller's promise; what was read fitted the capacity.
            unsafe { self.set_len(count) };
        }
    }
}
