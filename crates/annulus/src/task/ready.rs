//! The ready queue and the list of living tasks.

use super::Runnable;
use annulus_driver::Slab;
use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::panic::Location;
use std::task::Waker;

/// Tasks that can run, in the order they were woken.
pub(crate) struct Ready {
    queue: RefCell<VecDeque<Runnable>>,
    living: RefCell<Slab<Task>>,
}

/// A task that was polled and not yet dropped.
pub(crate) struct Task {
    pub(crate) waker: Waker,
    /// Where it was spawned.
    pub(crate) born: &'static Location<'static>,
}

impl Ready {
    pub(crate) fn new() -> Self {
        Self { queue: RefCell::new(VecDeque::with_capacity(64)), living: RefCell::new(Slab::new()) }
    }

    #[inline]
    pub(crate) fn push(&self, task: Runnable) {
        self.queue.borrow_mut().push_back(task);
    }

    pub(crate) fn extend(&self, tasks: Vec<Runnable>) {
        self.queue.borrow_mut().extend(tasks);
    }

    /// Runs what is ready now, at most `budget` tasks; what they wake waits for the next turn. A panic stays with its
    /// task.
    #[inline]
    pub(crate) fn run(&self, budget: usize) {
        let count = self.queue.borrow().len().min(budget);
        for _ in 0..count {
            let Some(task) = self.pop() else { break };
            task.run();
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// All tasks that were polled and not yet dropped.
    pub(crate) fn living(&self) -> RefMut<'_, Slab<Task>> {
        self.living.borrow_mut()
    }

    /// Drops every task. `inbox` brings those that other threads have just woken.
    pub(crate) fn drop_all(&self, inbox: impl Fn() -> Vec<Runnable>) {
        loop {
            self.extend(inbox());
            while let Some(task) = self.pop() {
                drop(task);
            }
            let tasks = self.tasks();
            if tasks.is_empty() {
                break;
            }
            // Waking puts a sleeping task in the queue, from where it is dropped above.
            tasks.into_iter().for_each(|(waker, _)| waker.wake());
        }
    }

    fn pop(&self) -> Option<Runnable> {
        self.queue.borrow_mut().pop_front()
    }

    /// Each living task's waker, and where it was spawned.
    pub(crate) fn tasks(&self) -> Vec<(Waker, &'static Location<'static>)> {
        let mut living = self.living.borrow_mut();
        let indices = living.indices();
        let task = |index| {
            let Task { waker, born } = living.get(index);
            (waker.clone(), *born)
        };
        indices.into_iter().map(task).collect()
    }
}
