//! Foreign code kept from unwinding into the runtime: futures, wakers, destructors of values that are not ours.
//!
//! Such code may panic, and what it panics with has a destructor of its own, which may panic again. If that unwound into the
//! runtime, its own work would be left half done, and a second panic on the way would abort the process. So everything foreign
//! that the runtime runs on its own account goes through here, one call and one value at a time: a collection of foreign values
//! is not dropped or cleared as a whole.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// What a panic leaves behind.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Runs foreign code; `None` if it panicked. The panic ends here, with what it left behind.
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

/// Wakes tasks, one after the other.
#[inline]
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        contained(|| waker.wake());
    }
}

/// Drops a foreign value.
#[inline]
pub(crate) fn dispose<T>(value: T) {
    contained(|| drop(value));
}

/// Drops foreign values, one after the other.
#[inline]
pub(crate) fn dispose_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(dispose);
}

/// Drops what a panic left behind. If that panics too, the second payload is forgotten: the next could panic again, without end.
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

    /// Counts its drops, and panics there with another of its kind.
    struct Panics<'a>(&'a Cell<u32>);

    impl Drop for Panics<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            panic_any(Endless);
        }
    }

    /// Panics with another of its kind when it is dropped.
    struct Endless;

    impl Drop for Endless {
        fn drop(&mut self) {
            panic_any(Endless);
        }
    }

    #[test]
    fn payloads_that_panic_without_end_end_here() {
        assert_eq!(contained(|| 7), Some(7));
        assert_eq!(contained(|| panic_any(Endless)), None::<()>);
    }

    #[test]
    fn values_go_one_by_one() {
        let count = Cell::new(0);
        dispose_each((0..3).map(|_| Panics(&count)));
        let mut kept: Vec<_> = (0..3).map(|_| Panics(&count)).collect();
        dispose_each(kept.drain(..));
        assert_eq!(count.get(), 6);
    }

    #[test]
    fn a_panic_is_contained_while_another_unwinds() {
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
