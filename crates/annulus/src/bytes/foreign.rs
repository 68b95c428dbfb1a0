//! Conversions between our types and `Bytes` of the crate `bytes`, without copying (feature
//! `bytes`).
#![allow(unsafe_code)]

use crate::bytes::buf::IoBufMut;
use crate::bytes::chunk::{Chunk, ChunkRepr};
use crate::bytes::owned::owned_bytes;
use crate::bytes::shared::SharedBytes;
use bytes::{Bytes, BytesMut};

impl From<SharedBytes> for Bytes {
    /// Converts without copying. Pool memory returns to its pool when the last clone is dropped.
    fn from(bytes: SharedBytes) -> Self {
        Self::from_owner(bytes)
    }
}

owned_bytes! {
    Bytes: |it| it, |it| Chunk(ChunkRepr::Foreign(it));
    BytesMut: |it| it, |it| it.freeze().into();
}

// SAFETY: only this handle can use the capacity, and the memory does not move with the handle.
unsafe impl IoBufMut for BytesMut {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        let len = self.len();
        // SAFETY: a length of 0 requires no initialised bytes.
        unsafe { self.set_len(0) };
        // With a length above 0, `as_mut_ptr` of the slice would be valid only for the initialised
        // bytes.
        let start = self.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the first `len` bytes are still initialised.
        unsafe { self.set_len(len) };
        start
    }

    fn bytes_total(&mut self) -> usize {
        self.capacity()
    }

    unsafe fn set_init(&mut self, count: usize) {
        if count > self.len() {
            // SAFETY: the contract of `set_init` guarantees that these bytes are initialised and
            // within the capacity.
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
            // SAFETY: `bytes_total` bytes are writable, and all of them are written before
            // `set_init`.
            unsafe {
                buf.as_mut_ptr().write_bytes(7, total);
                buf.set_init(total);
            }
            assert!(buf.len() == total && buf.iter().all(|byte| *byte == 7));
        }
    }
}
