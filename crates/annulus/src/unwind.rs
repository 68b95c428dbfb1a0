//! Runs foreign code (futures, wakers, destructors of user values) without letting its panics
//! unwind into the runtime.
//!
//! Such code may panic, and the destructor of the panic's payload may panic again. If a panic
//! unwound into the runtime, the runtime's own work would be left incomplete, and a second panic
//! during the unwinding would abort the process. So all foreign code that the runtime itself runs
//! goes through here, one call or value at a time. Collections of foreign values are never dropped
//! or cleared as a whole.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

pub(crate) type Panic = Box<dyn Any + Send>;

/// Runs foreign code. If it panics, drops the payload and returns `None`.
#[inline]
pub(crate) fn contained<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(panic) => {
            dispose_of_panic(panic);
            None
        }
    }
}

/// Wakes tasks one at a time, and contains the panics of their wakers.
#[inline]
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        contained(|| waker.wake());
    }
}

/// Drops a foreign value, and contains its panic.
#[inline]
pub(crate) fn dispose<T>(value: T) {
    contained(|| drop(value));
}

/// Like [`dispose`], but for several values, one at a time.
#[inline]
pub(crate) fn dispose_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(dispose);
}

/// Drops the payload of a panic. If the drop panics too, the second payload is leaked, because
/// dropping it could panic again, endlessly.
#[cold]
fn dispose_of_panic(panic: Panic) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::panic_any;

    /// Counts its drops, and panics in each of them.
    struct Panics<'a>(&'a Cell<u32>);

    impl Drop for Panics<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            panic_any(Endless);
        }
    }

    /// A value whose drop panics with another such value.
    struct Endless;

    impl Drop for Endless {
        fn drop(&mut self) {
            panic_any(Endless);
        }
    }

    #[test]
    fn panic_payload_that_panics_on_drop_is_contained() {
        assert_eq!(contained(|| 7), Some(7));
        assert_eq!(contained(|| panic_any(Endless)), None::<()>);
    }

    #[test]
    fn every_value_is_dropped_although_each_panics() {
        let count = Cell::new(0);
        dispose_each((0..3).map(|_| Panics(&count)));
        let mut kept: Vec<_> = (0..3).map(|_| Panics(&count)).collect();
        dispose_each(kept.drain(..));
        assert_eq!(count.get(), 6);
    }

    #[test]
    fn panics_are_contained_during_unwinding() {
        let count = Cell::new(0);
        struct Guard<'a>(&'a Cell<u32>);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                dispose_each([Panics(self.0), Panics(self.0)]);
            }
        }
        contained(|| {
            let _guard = Guard(&count);
            panic!("unwinds through the guard");
        });
        assert_eq!(count.get(), 2);
    }
}
