//! Heap memory that counts against the limit while it lives.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// Bytes of heap memory that a runtime's streams and datagram sockets hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Rc<Cell<usize>>);

impl Meter {
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.0.get()
    }

    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        self.0.set(self.0.get() + bytes);
    }

    #[inline]
    pub(crate) fn sub(&self, bytes: usize) {
        self.0.set(self.0.get() - bytes);
    }
}

/// A boxed slice, held by address. Moving a `Box` would assert that no other pointer to its bytes
/// exists.
pub(crate) struct HeapMemory {
    bytes: NonNull<[u8]>,
    meter: Option<Meter>,
}

impl HeapMemory {
    /// Takes over memory, which counts on the meter until it is dropped.
    pub(crate) fn new(bytes: Box<[u8]>, meter: Option<&Meter>) -> Box<Self> {
        meter.inspect(|meter| meter.add(bytes.len()));
        let bytes = NonNull::new(Box::into_raw(bytes)).expect("a box is not at address zero");
        Box::new(Self { bytes, meter: meter.cloned() })
    }

    /// Allocates `len` zeroed bytes.
    pub(crate) fn zeroed(len: usize, meter: &Meter) -> Box<Self> {
        Self::new(vec![0; len].into_boxed_slice(), Some(meter))
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.bytes.cast()
    }
}

impl Deref for HeapMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pointer comes from a box in `new`, and the box's bytes are initialised.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for HeapMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and this owner is borrowed exclusively.
        unsafe { self.bytes.as_mut() }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.sub(self.bytes.len());
        }
        // SAFETY: the pointer comes from `Box::into_raw` in `new`, and is freed only here.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}
