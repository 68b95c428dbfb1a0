//! `Bytes` of the crate of that name, in and out, without copying (feature `bytes`).
#![allow(unsafe_code)]

use crate::chunk::Chunk;
use crate::fs::{IoBuf, IoBufMut};
use crate::shared::SharedBytes;
use bytes::{Bytes, BytesMut};

impl From<SharedBytes> for Bytes {
    /// The memory stays where it is, and goes back to its pool with the last clone.
    fn from(bytes: SharedBytes) -> Self {
        Self::from_owner(bytes)
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Self::foreign(bytes)
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
