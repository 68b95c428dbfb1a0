//! Conversions from and to `Bytes` of the crate `bytes`, without copying (feature `bytes`).
#![allow(unsafe_code)]

use crate::chunk::Chunk;
use crate::fs::{IoBuf, IoBufMut};
use crate::shared::SharedBytes;
use bytes::{Bytes, BytesMut};

impl From<SharedBytes> for Bytes {
    /// Without a copy: the memory returns to its pool with the last clone.
    fn from(bytes: SharedBytes) -> Self {
        Self::from_owner(bytes)
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Self::foreign(bytes)
    }
}

// SAFETY: the bytes are shared, never change, and do not move with the handle.
unsafe impl IoBuf for Bytes {
    fn as_ptr(&self) -> *const u8 {
        self[..].as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }
}

// SAFETY: only this handle can change the bytes, and they do not move with it.
unsafe impl IoBuf for BytesMut {
    fn as_ptr(&self) -> *const u8 {
        self[..].as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }
}

// SAFETY: only this handle can use the capacity, which does not move with it.
unsafe impl IoBufMut for BytesMut {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self[..].as_mut_ptr()
    }

    fn bytes_total(&mut self) -> usize {
        self.capacity()
    }

    unsafe fn set_init(&mut self, count: usize) {
        if count > self.len() {
            // SAFETY: by the contract of `set_init` that many bytes are initialised, and within the capacity.
            unsafe { self.set_len(count) };
        }
    }
}
