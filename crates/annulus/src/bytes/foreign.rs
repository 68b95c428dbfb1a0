//! Conversions from and to `Bytes` of the crate `bytes`, without copying (feature `bytes`).
#![allow(unsafe_code)]

use crate::bytes::buf::IoBufMut;
use crate::bytes::chunk::{Chunk, Repr};
use crate::bytes::owned::owned_bytes;
use crate::bytes::shared::SharedBytes;
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
        let len = self.len();
        // SAFETY: no byte is initialised in a length of 0.
        unsafe { self.set_len(0) };
        // A pointer from the slice of the initialised bytes would be valid for these only.
        let start = self.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: `len` bytes were initialised before, and are still.
        unsafe { self.set_len(len) };
        start
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_capacity_is_written_through_one_pointer() {
        for len in [0, 3, 16] {
            let mut buf = BytesMut::with_capacity(16);
            buf.resize(len, 1);
            let total = buf.bytes_total();
            // SAFETY: `bytes_total` bytes are writable, and all of them are written before they are called initialised.
            unsafe {
                buf.as_mut_ptr().write_bytes(7, total);
                buf.set_init(total);
            }
            assert!(buf.len() == total && buf.iter().all(|byte| *byte == 7));
        }
    }
}
