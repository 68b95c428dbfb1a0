//! A range of the submitter's memory, and checks that the submitter does not touch it while the
//! kernel owns it.
#![allow(unsafe_code)]

use crate::random::mix;
use annulus_kernel::file::FileStat;
use std::collections::VecDeque;

/// The pattern that fills memory while the kernel owns it. Neighbouring bytes differ, and none is
/// ASCII.
const POISON_PATTERN: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = 0x80 | (i as u8).wrapping_mul(37) ^ 0x5A;
        i += 1;
    }
    bytes
};

/// A range of memory that the kernel owns or may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryRange {
    address: u64,
    len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl MemoryRange {
    /// # Safety
    /// The kernel must be allowed to use the memory until it posts the terminal completion.
    pub(crate) unsafe fn new(address: u64, len: usize) -> Self {
        Self { address, len }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Returns the range without its first `count` bytes.
    #[inline]
    pub(crate) fn skip(self, count: usize) -> Self {
        let count = count.min(self.len);
        Self { address: self.address + count as u64, len: self.len - count }
    }

    /// Returns the first `count` bytes of the range.
    #[inline]
    pub(crate) fn first(self, count: usize) -> Self {
        Self { len: self.len.min(count), ..self }
    }

    /// Appends all bytes of the range to `bytes`.
    #[inline]
    pub(crate) fn append_to(self, bytes: &mut VecDeque<u8>) {
        if self.len > 0 {
            bytes.extend(self.slice());
        }
    }

    /// Moves at most `most` bytes from the front of `bytes` into the range, as many as fit, and
    /// returns their number.
    #[inline]
    pub(crate) fn fill_from(self, bytes: &mut VecDeque<u8>, most: usize) -> usize {
        let count = self.len.min(most).min(bytes.len());
        let (front, back) = bytes.as_slices();
        let head = front.len().min(count);
        self.write(&front[..head]);
        self.skip(head).write(&back[..count - head]);
        bytes.drain(..count);
        count
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = VecDeque::with_capacity(self.len);
        self.append_to(&mut bytes);
        bytes.into()
    }

    /// Writes the beginning of `bytes`, as much as fits. Does nothing if the address is zero.
    #[inline]
    pub(crate) fn put(self, bytes: &[u8]) {
        if self.address != 0 {
            self.write(bytes);
        }
    }

    pub(crate) fn put_stat(self, stat: &FileStat) {
        let start = std::ptr::from_ref(stat).cast::<u8>();
        // SAFETY: the structure consists of integers without padding.
        self.put(unsafe { std::slice::from_raw_parts(start, size_of::<FileStat>()) });
    }

    pub(crate) fn address(self) -> u64 {
        self.address
    }

    /// Fills the first and last `span` bytes with the pattern.
    #[inline]
    pub(crate) fn poison(self, span: usize) {
        self.for_each_edge(span, |part| part.write(&POISON_PATTERN));
    }

    /// Returns the offset of the first byte of the pattern that was overwritten, if any.
    #[inline]
    pub(crate) fn overwritten_at(self, span: usize) -> Option<u64> {
        let mut found = None;
        self.for_each_edge(span, |part| {
            let bytes = part.slice();
            if found.is_none() && *bytes != POISON_PATTERN[..part.len] {
                let at = bytes.iter().zip(&POISON_PATTERN).position(|(a, b)| a != b).unwrap_or(0);
                found = Some(part.address - self.address + at as u64);
            }
        });
        found
    }

    /// Returns a checksum of the first and last `span` bytes, which must be initialised.
    pub(crate) fn checksum(self, span: usize) -> Checksum {
        let mut hash = self.len as u64;
        self.for_each_edge(span, |part| {
            let bytes = part.slice();
            for chunk in bytes.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                hash = mix(hash ^ u64::from_le_bytes(word));
            }
        });
        Checksum(hash)
    }

    /// Calls `apply` with the parts of both edges, each at most as long as the pattern.
    #[inline]
    fn for_each_edge(self, span: usize, mut apply: impl FnMut(Self)) {
        let span = span.min(self.len);
        let tail = self.len.saturating_sub(span).max(span);
        for edge in [self.first(span), self.skip(tail)] {
            let mut rest = edge;
            while rest.len > 0 {
                apply(rest.first(POISON_PATTERN.len()));
                rest = rest.skip(POISON_PATTERN.len());
            }
        }
    }

    /// Writes the bytes that fit.
    #[inline]
    fn write(self, bytes: &[u8]) {
        let count = self.len.min(bytes.len());
        // SAFETY: the kernel may write to this memory, and no other code uses it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer(), count) };
    }

    /// Returns the bytes. They must be initialised, by the submitter or by `poison`, and the
    /// address must not be zero.
    #[inline]
    fn slice(&self) -> &[u8] {
        // SAFETY: no other code writes to the memory while the kernel owns it. The bytes are
        // initialised: the submitter has written what it sends, and `poison` has filled the edges
        // that `overwritten_at` reads.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.len) }
    }

    #[inline]
    fn pointer(self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

impl Checksum {
    /// Combines the checksums of several ranges.
    pub(crate) fn join(self, other: Self) -> Self {
        Self(mix(self.0 ^ other.0.rotate_left(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(memory: &mut [u8]) -> MemoryRange {
        // SAFETY: the tests never use the memory and the range at the same time.
        unsafe { MemoryRange::new(memory.as_mut_ptr().expose_provenance() as u64, memory.len()) }
    }

    #[test]
    fn bytes_pass_through_a_wrapped_queue() {
        let mut queue: VecDeque<u8> = VecDeque::with_capacity(8);
        let mut text = *b"abcdefgh";
        range(&mut text).append_to(&mut queue);
        let mut got = [0; 6];
        assert_eq!(range(&mut got).fill_from(&mut queue, 5), 5);
        assert_eq!(&got, b"abcde\0");
        range(&mut text).first(5).append_to(&mut queue);
        let mut rest = [0; 16];
        assert_eq!(range(&mut rest).fill_from(&mut queue, 100), 8);
        assert_eq!(&rest[..9], b"fghabcde\0");
    }

    #[test]
    fn overwritten_byte_is_found_at_both_edges() {
        for len in [1, 7, 256, 600, 4096] {
            for at in [0, len / 2, len - 1] {
                let mut memory = vec![0; len];
                range(&mut memory).poison(512);
                assert_eq!(range(&mut memory).overwritten_at(512), None);
                memory[at] ^= 1;
                let within = at < 512 || at + 512 >= len;
                assert_eq!(
                    range(&mut memory).overwritten_at(512),
                    within.then_some(at as u64),
                    "{at} of {len}"
                );
            }
        }
    }

    #[test]
    fn checksum_detects_a_change() {
        let mut memory = vec![3; 1000];
        let checksum = range(&mut memory).checksum(64);
        assert_eq!(range(&mut memory).checksum(64), checksum);
        memory[999] = 4;
        assert_ne!(range(&mut memory).checksum(64), checksum);
    }
}
