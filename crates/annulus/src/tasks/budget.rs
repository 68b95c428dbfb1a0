//! The budget of a task: how many operations that are immediately ready it may complete before
//! other tasks run.
//!
//! A task that always finds something ready never returns to the loop on its own. Examples are a
//! channel that never runs empty, a peer that sends faster than the task reads, and a timer that is
//! always due. Every such operation takes one unit of the budget, which is renewed each time the
//! task is polled. At zero, the operation returns `Pending` and wakes its task at once, so the task
//! runs again after the others. Nothing is lost, since whatever was ready stays ready.
//!
//! An executor inside a task, such as `futures::executor::block_on`, polls again instead of letting
//! its task return, and would do so forever. So a task whose operations have been refused very
//! often in one poll gets a new budget.
//!
//! Outside a runtime there is no budget.

use crate::unwind::contained;
use std::cell::Cell;
use std::task::{Context, Poll};

/// Number of operations that a task may complete per poll, unless
/// [`Builder::task_budget`](crate::Builder::task_budget) changes it.
pub(crate) const DEFAULT_TASK_BUDGET: u32 = 128;

/// More units than any thread ever takes.
const UNLIMITED_BUDGET: i64 = i64::MAX;
/// Number of refused operations after which a task gets a new budget within the same poll. It is
/// larger than the number of futures that a task usually polls side by side.
const MAX_REFUSALS: i64 = 1024;

thread_local! {
    /// Units left. At zero and below, it goes down by one for each refused operation.
    static UNITS_LEFT: Cell<i64> = const { Cell::new(UNLIMITED_BUDGET) };
    /// Called when the budget runs out between two turns of a guest.
    static ON_SPENT: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Renews the budget for a task that is about to be polled.
#[inline]
pub(crate) fn renew(budget: u32) {
    set(budget.into());
}

#[inline]
fn set(units: i64) {
    _ = UNITS_LEFT.try_with(|left| left.set(units));
}

/// Sets the budget that the host loop's tasks share until the next turn. `spent` is called when an
/// operation finds it used up.
pub(crate) fn renew_for_host(budget: u32, spent: fn()) {
    renew(budget);
    _ = ON_SPENT.try_with(|call| call.set(Some(spent)));
}

/// Removes the budget, since the loop of this thread no longer runs tasks.
pub(crate) fn end() {
    set(UNLIMITED_BUDGET);
    _ = ON_SPENT.try_with(|call| call.set(None));
}

#[cold]
fn spent(cx: &Context<'_>) {
    // Waking runs foreign code, which may panic.
    contained(|| cx.waker().wake_by_ref());
    if let Ok(Some(spent)) = ON_SPENT.try_with(Cell::get) {
        spent();
    }
}

/// Takes one unit for an operation that is ready. At zero, wakes the task, so that it continues
/// after the others.
#[inline]
pub(crate) fn poll_take(cx: &Context<'_>) -> Poll<()> {
    poll_with(cx, || Poll::Ready(()))
}

/// Takes one unit. [`refuses`] must have returned false.
#[inline]
pub(crate) fn take() {
    _ = UNITS_LEFT.try_with(|left| left.set(left.get() - 1));
}

/// Polls part of an operation without a budget, since the operation takes its unit elsewhere.
#[inline]
pub(crate) fn poll_free<T>(operation: impl FnOnce() -> Poll<T>) -> Poll<T> {
    struct RestoreBudget(i64);

    impl Drop for RestoreBudget {
        fn drop(&mut self) {
            set(self.0);
        }
    }

    let _restored = RestoreBudget(
        UNITS_LEFT.try_with(|left| left.replace(UNLIMITED_BUDGET)).unwrap_or(UNLIMITED_BUDGET),
    );
    operation()
}

/// Returns true if no unit is left. Then the operation must return `Pending` and wake its task.
#[inline]
pub(crate) fn refuses() -> bool {
    UNITS_LEFT.try_with(|left| left.get() <= 0 && refuse(left)) == Ok(true)
}

/// Counts a refused operation. Returns false if the task gets a new budget instead.
#[cold]
fn refuse(left: &Cell<i64>) -> bool {
    let refused = left.get() > -MAX_REFUSALS;
    left.set(if refused { left.get() - 1 } else { DEFAULT_TASK_BUDGET.into() });
    refused
}

/// Returns `Ready` if a unit is left, without taking it. At zero, wakes the task, so that it
/// continues after the others.
#[inline]
pub(crate) fn poll_left(cx: &Context<'_>) -> Poll<()> {
    if !refuses() {
        return Poll::Ready(());
    }
    spent(cx);
    Poll::Pending
}

/// Polls an operation, and takes one unit if it is ready. At zero, wakes the task instead, so that
/// it continues after the others.
#[inline]
pub(crate) fn poll_with<T>(cx: &Context<'_>, operation: impl FnOnce() -> Poll<T>) -> Poll<T> {
    if poll_left(cx).is_pending() {
        return Poll::Pending;
    }
    let polled = operation();
    if polled.is_ready() {
        take();
    }
    polled
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn ready_operations_take_a_unit_and_at_zero_the_task_is_woken() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let cx = Context::from_waker(&waker);
        let woken = || wakes.0.load(Ordering::Relaxed);
        renew(2);
        assert_eq!(poll_with(&cx, || Poll::<()>::Pending), Poll::Pending);
        assert!(poll_take(&cx).is_ready() && poll_take(&cx).is_ready());
        assert_eq!((poll_take(&cx), woken()), (Poll::Pending, 1));
        assert_eq!(poll_with(&cx, || -> Poll<()> { panic!("polled at zero") }), Poll::Pending);
        assert!((0..9).all(|_| poll_free(|| poll_take(&cx)).is_ready()));
        assert_eq!((poll_take(&cx), woken()), (Poll::Pending, 3));
        end();
        assert!((0..1000).all(|_| poll_take(&cx).is_ready()));
        assert_eq!(woken(), 3);
    }

    #[test]
    fn a_new_budget_comes_with_each_poll_and_after_very_many_refusals() {
        let cx = Context::from_waker(Waker::noop());
        let ready = || (0..).take_while(|_| poll_take(&cx).is_ready()).count();
        let refused = || (0..).take_while(|_| poll_take(&cx).is_pending()).count();
        renew(5);
        assert_eq!(ready(), 5);
        // One more was refused at the end of the line above, and one is taken by the line below.
        assert_eq!(refused() + 1, MAX_REFUSALS as usize);
        assert_eq!(ready() + 1, DEFAULT_TASK_BUDGET as usize);
        renew(7);
        assert_eq!(ready(), 7);
        end();
    }
}
