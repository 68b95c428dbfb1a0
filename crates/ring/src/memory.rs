//! The descriptor and the memory of a ring. The kernel reads and writes the memory concurrently.
#![allow(unsafe_code)]

use annulus_kernel::{Fd, Kernel};
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The descriptor of the ring, closed on drop.
pub(crate) struct RingHandle {
    pub(crate) kernel: Rc<dyn Kernel>,
    pub(crate) fd: Fd,
}

impl Drop for RingHandle {
    fn drop(&mut self) {
        self.kernel.close(self.fd);
    }
}

/// A mapping of a ring, unmapped on drop.
pub(crate) struct RingMemory {
    area: MappedArea,
    kernel: Rc<dyn Kernel>,
}

impl RingMemory {
    /// Maps `len` bytes of a ring's memory, starting at `offset`.
    pub(crate) fn map(
        kernel: &Rc<dyn Kernel>,
        ring: Fd,
        offset: u64,
        len: usize,
    ) -> io::Result<Self> {
        let start =
            NonNull::new(kernel.map(ring, offset, len)?).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { area: MappedArea { start, len }, kernel: kernel.clone() })
    }

    pub(crate) fn area(&self) -> MappedArea {
        self.area
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: `map` returned this range, and only this code unmaps it, once. The ring drops its
        // queues, which point into the range, before its mappings.
        unsafe { self.kernel.unmap(self.area.start.as_ptr(), self.area.len) };
    }
}

/// The range of a mapping. It does not keep the mapping alive.
#[derive(Clone, Copy)]
pub(crate) struct MappedArea {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
}

impl MappedArea {
    #[cfg(test)]
    pub(crate) fn of(mapping: &annulus_kernel::Mapping) -> Self {
        let start = NonNull::new(mapping.as_ptr()).expect("a mapping is at address zero");
        Self { start, len: mapping.len() }
    }

    /// Returns the address of `size` bytes at `offset`.
    ///
    /// Panics if the bytes are not inside the range, which means that the kernel returned a wrong
    /// offset.
    pub(crate) fn at(self, offset: u32, size: usize) -> *mut u8 {
        let end = (offset as usize).checked_add(size);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "the kernel returned an offset outside its mapping"
        );
        // SAFETY: offset and size lie inside the range, as asserted.
        unsafe { self.start.as_ptr().add(offset as usize) }
    }
}

/// A 32-bit word that is shared with the kernel.
#[derive(Clone, Copy)]
pub(crate) struct SharedWord(*const AtomicU32);

impl SharedWord {
    /// # Safety
    /// The area must stay mapped as long as the word and its copies are used, and `offset` must be
    /// a multiple of four.
    pub(crate) unsafe fn at(area: MappedArea, offset: u32) -> Self {
        Self(area.at(offset, size_of::<u32>()).cast())
    }

    #[inline]
    pub(crate) fn load(self, order: Ordering) -> u32 {
        // SAFETY: the caller of `at` guarantees that the word is mapped and aligned. Both sides
        // access it only atomically.
        unsafe { (*self.0).load(order) }
    }

    #[inline]
    pub(crate) fn store(self, value: u32, order: Ordering) {
        // SAFETY: the caller of `at` guarantees that the word is mapped and aligned. Both sides
        // access it only atomically.
        unsafe { (*self.0).store(value, order) }
    }
}
