//! What the kernel may read or write. Leaking it is the rule, freeing it the exception.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// Owns memory that the kernel may know. Dropped, it leaks what it holds: whatever unwinds, an operation in flight finds its
/// memory. Only [`open`](Self::open) gives it out to be freed.
pub(crate) struct KernelHeld<T>(ManuallyDrop<T>);

impl<T> KernelHeld<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// Gives out what was held, to be freed.
    ///
    /// # Safety
    /// The kernel must know none of its memory any more: every operation that named some has had its terminal event.
    pub(crate) unsafe fn open(self) -> T {
        ManuallyDrop::into_inner(self.0)
    }

    /// As [`open`](Self::open), in place.
    ///
    /// # Safety
    /// As there; and what was held must not be used any more.
    pub(crate) unsafe fn take(&mut self) -> T {
        // SAFETY: the caller's promise.
        unsafe { ManuallyDrop::take(&mut self.0) }
    }
}

impl<T> Deref for KernelHeld<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for KernelHeld<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn what_is_dropped_leaks_and_what_is_opened_goes() {
        let value = Rc::new(());
        _ = KernelHeld::new(value.clone());
        assert_eq!(Rc::strong_count(&value), 2);
        let held = KernelHeld::new(value.clone());
        // SAFETY: no kernel knows it.
        drop(unsafe { held.open() });
        assert_eq!(Rc::strong_count(&value), 2);
        // SAFETY: the count that the first one leaked.
        unsafe { Rc::decrement_strong_count(Rc::as_ptr(&value)) };
    }
}
