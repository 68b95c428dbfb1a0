//! Values that own memory which operations in flight use.
#![allow(unsafe_code)]

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};

/// A value that may be moved while the kernel, or another thread, uses memory that it owns.
///
/// Moving a `Box` asserts that no other pointer to its content is in use. So a value that contains
/// a box must not be moved while an operation uses that content. `MaybeUninit` makes no such
/// assertion about its content.
///
/// Take the address of the memory through this value. A pointer taken before the move into it would
/// be invalid.
pub(crate) struct Parked<T>(MaybeUninit<T>);

impl<T> Parked<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(MaybeUninit::new(value))
    }

    /// Returns the value. No operation may still use its memory.
    #[inline]
    pub(crate) fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is initialised, and is not dropped here.
        unsafe { this.0.assume_init_read() }
    }
}

impl<T> Deref for Parked<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is initialised until it is dropped or taken out.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<T> DerefMut for Parked<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`.
        unsafe { self.0.assume_init_mut() }
    }
}

impl<T> Drop for Parked<T> {
    fn drop(&mut self) {
        // SAFETY: the value is initialised, and dropped once.
        unsafe { self.0.assume_init_drop() };
    }
}
