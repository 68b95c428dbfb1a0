//! Slots of streams, datagram sockets, listeners, connection attempts, polls, file calls and the
//! operations of programs. A slot holds the state and the memory that operations in flight need.

use crate::slots::loop_state::LoopState;
use crate::unwind::contained;
use annulus_driver::{Event, Slab};
use std::collections::HashMap;
use std::task::Waker;

mod arming;
pub(crate) mod connection_limit;
pub(crate) mod connects;
pub(crate) mod custom_ops;
pub(crate) mod datagrams;
pub(crate) mod file_ops;
pub(crate) mod interest;
pub(crate) mod listeners;
pub(crate) mod loop_state;
pub(crate) mod op_state;
pub(crate) mod polls;
pub(crate) mod streams;
pub(crate) mod turn_lists;

/// Returns the slot that `event` belongs to. If the slot has been freed or reused, counts the event
/// as late, reclaims its buffer or connection, and returns `None`.
#[inline]
pub(crate) fn find_or_late<'a, T>(
    slots: &'a mut Slab<T>,
    state: &mut LoopState,
    event: &Event,
) -> Option<&'a mut T> {
    let slot = slots.find(event.token.id());
    if slot.is_none() {
        state.late(*event);
    }
    slot
}

/// Collects either what each task of a set waits for, or the wakers of all waiting tasks.
pub(crate) struct Waits {
    /// Maps the data pointer of a task's waker to the task's index.
    tasks: HashMap<*const (), usize>,
    wakers: Vec<Waker>,
    found: Vec<Vec<String>>,
    /// Whether to collect every waker, instead of what a set of tasks waits for.
    keeps_all: bool,
}

impl Waits {
    /// Creates a collection of what the tasks with these wakers wait for.
    pub(crate) fn new(wakers: Vec<Waker>) -> Self {
        let tasks = wakers.iter().enumerate().map(|(task, waker)| (waker.data(), task)).collect();
        let found = vec![Vec::new(); wakers.len()];
        Self { tasks, wakers, found, keeps_all: false }
    }

    /// Creates a collection of the wakers of everything that waits, whether or not it is a task of
    /// this runtime.
    pub(crate) fn of_all() -> Self {
        Self { keeps_all: true, ..Self::new(Vec::new()) }
    }

    /// Records what the task of `waker` waits for, or keeps the waker if all wakers are wanted.
    /// Does nothing if `waker` belongs to none of the tasks.
    pub(crate) fn note(&mut self, waker: &Waker, what: impl FnOnce() -> String) {
        if self.keeps_all {
            self.wakers.extend(contained(|| waker.clone()));
            return;
        }
        let Some(&task) = self.tasks.get(&waker.data()) else { return };
        // A waker of another kind may have the same data pointer.
        if self.wakers[task].will_wake(waker) {
            self.found[task].push(what());
        }
    }

    /// Returns the wakers collected by `of_all`.
    pub(crate) fn into_wakers(self) -> Vec<Waker> {
        self.wakers
    }

    /// Returns the waits of each task, in the order of the wakers passed to [`new`](Self::new).
    pub(crate) fn into_found(self) -> Vec<Vec<String>> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    struct NoopWake;

    impl Wake for NoopWake {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn wait_is_recorded_for_the_task_of_its_waker() {
        let [one, two, other] = [(); 3].map(|()| Waker::from(Arc::new(NoopWake)));
        let mut waits = Waits::new(vec![one.clone(), two.clone()]);
        waits.note(&two.clone(), || "for a".into());
        waits.note(&two, || "for b".into());
        waits.note(&other, || unreachable!("the waker belongs to no task"));
        waits.note(Waker::noop(), || unreachable!("the waker belongs to no task"));
        assert_eq!(waits.into_found(), [vec![], vec!["for a".to_owned(), "for b".into()]]);
    }
}
