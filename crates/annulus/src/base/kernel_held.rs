//! Memory that the kernel may read or write: leaked by default, freed only on purpose.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// Owns memory that operations in flight may use. Dropping it leaks that memory, so unwinding never
/// frees memory that the kernel uses. Only [`open`](Self::open) and [`take`](Self::take) return the
/// memory to be freed.
pub(crate) struct KernelHeld<T>(ManuallyDrop<T>);

impl<T> KernelHeld<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// Returns the value, to be freed.
    ///
    /// # Safety
    /// The kernel must no longer use the memory: every operation that refers to it has had its
    /// terminal event.
    pub(crate) unsafe fn open(self) -> T {
        ManuallyDrop::into_inner(self.0)
    }

    /// Like [`open`](Self::open), but in place.
    ///
    /// # Safety
    /// Like [`open`](Self::open). In addition, the value must not be used through `self` again.
    pub(crate) unsafe fn take(&mut self) -> T {
        // SAFETY: the caller guarantees that the kernel no longer uses the memory and that the
        // value is not used again.
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
    fn dropping_leaks_the_value_and_opening_frees_it() {
        let value = Rc::new(());
        _ = KernelHeld::new(value.clone());
        assert_eq!(Rc::strong_count(&value), 2);
        let held = KernelHeld::new(value.clone());
        // SAFETY: no kernel uses the value.
        drop(unsafe { held.open() });
        assert_eq!(Rc::strong_count(&value), 2);
        // SAFETY: this is the count that the first value leaked.
        unsafe { Rc::decrement_strong_count(Rc::as_ptr(&value)) };
    }
}
