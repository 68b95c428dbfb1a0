//! Conversions from and to `Bytes` of the crate `bytes`, without copying (feature `bytes`).
#![allow(unsafe_code)]

use crate::buf::IoBufMut;
use crate::chunk::{Chunk, Repr};
use crate::owned::owned_bytes;
use crate::shared::SharedBytes;
use bytes::{Bytes, BytesMut};

impl From<SharedBytes> for Bytes {
    /// Without a copy: the memory returns to its pool with the last clone.
    fn from(bytes: SharedBytes) -> Self {
        Self::from_owner(bytes)
    }
}

owned_bytes! {
    Bytes: |it| it, |it| Chunk(Repr::Foreign(it));
    BytesMut: |it| it, |it| it.freeze().into();
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
