//! The ready queue and the list of living tasks.
#![allow(unsafe_code)]

use super::JoinHandle;
use super::budget;
use super::raw::{self, Phase, TaskRef};
use super::refused::refuse;
use crate::runtime::remote::Remote;
use annulus_driver::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;

/// The tasks of one runtime. It stays on its runtime's thread, so that where it is, its tasks are at home.
pub(crate) struct Ready {
    /// Tasks that can run, in the order they were woken.
    queue: RefCell<VecDeque<TaskRef>>,
    /// Tasks that home knows and that are not over: so that the runtime's end can drop each on its own thread.
    living: RefCell<Slab<TaskRef>>,
    /// Nothing may be spawned any more.
    closed: Cell<bool>,
    /// What a task may do each time it is polled: see `budget`.
    task_budget: Cell<u32>,
    _stays_here: PhantomData<*const ()>,
}

/// A living task, as it stands.
pub(crate) struct Task {
    pub(crate) waker: Waker,
    /// Where it was spawned.
    pub(crate) born: &'static Location<'static>,
    /// It is going to run.
    pub(crate) queued: bool,
}

impl Ready {
    pub(crate) fn new() -> Self {
        let queue = RefCell::new(VecDeque::with_capacity(64));
        let (living, closed) = (RefCell::new(Slab::new()), Cell::new(false));
        let task_budget = Cell::new(budget::DEFAULT);
        Self { queue, living, closed, task_budget, _stays_here: PhantomData }
    }

    pub(crate) fn set_task_budget(&self, budget: u32) {
        self.task_budget.set(budget);
    }

    /// A task is about to be polled.
    #[inline]
    pub(crate) fn renew_budget(&self) {
        budget::renew(self.task_budget.get());
    }

    /// No more tasks may be spawned from here on: what is spawned is dropped at once.
    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// A new task of this runtime's, which has this inbox.
    pub(super) fn spawn<F>(
        &self,
        remote: &Arc<Remote>,
        future: F,
        born: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        if self.closed.get() {
            refuse(future);
            return JoinHandle::refused();
        }
        // SAFETY: this is the remote's home.
        let (task, link) = unsafe { raw::make(future, remote.clone(), born) };
        self.settle_in(task);
        JoinHandle::new(link)
    }

    #[inline]
    pub(super) fn push(&self, task: TaskRef) {
        self.queue.borrow_mut().push_back(task);
    }

    /// Takes in what came through the inbox: new tasks, and woken ones.
    #[inline]
    pub(crate) fn extend(&self, tasks: Vec<TaskRef>) {
        tasks.into_iter().for_each(|task| self.take_in(task));
    }

    /// Runs what is ready now, at most `budget` tasks; what they wake waits for the next turn. A panic stays with its
    /// task.
    #[inline]
    pub(crate) fn run(&self, budget: usize) {
        let count = self.queue.borrow().len().min(budget);
        for _ in 0..count {
            let Some(task) = self.pop() else { break };
            self.renew_budget();
            // SAFETY: at home, and what was in the queue is queued.
            match unsafe { task.run() } {
                Phase::Queued => self.push(task),
                Phase::Over => self.bury(&task),
                _ => {}
            }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Drops every task. `inbox` brings those that other threads have just spawned or woken.
    pub(crate) fn drop_all(&self, inbox: impl Fn() -> Vec<TaskRef>) {
        loop {
            self.extend(inbox());
            // While these were dropped, others may have come through the inbox.
            let ended = self.living().into_iter().filter(|task| self.cancel(task)).count();
            if ended == 0 {
                break;
            }
        }
        while self.pop().is_some() {}
    }

    /// All living tasks.
    pub(crate) fn tasks(&self) -> Vec<Task> {
        let task = |task: TaskRef| Task {
            waker: task.waker(),
            born: task.born(),
            // SAFETY: at home.
            queued: unsafe { task.phase() } == Phase::Queued,
        };
        self.living().into_iter().map(task).collect()
    }

    fn living(&self) -> Vec<TaskRef> {
        let mut living = self.living.borrow_mut();
        living.indices().into_iter().map(|index| living.get(index).clone()).collect()
    }

    #[inline]
    fn pop(&self) -> Option<TaskRef> {
        self.queue.borrow_mut().pop_front()
    }

    fn take_in(&self, task: TaskRef) {
        // SAFETY: at home.
        if unsafe { task.phase() } == Phase::Fresh {
            return self.settle_in(task);
        }
        task.answer();
        // SAFETY: at home.
        if unsafe { task.rouse() } {
            self.push(task);
        }
    }

    /// A new task gets a place on the list, and its first turn.
    fn settle_in(&self, task: TaskRef) {
        let place = self.living.borrow_mut().insert(task.clone());
        // SAFETY: at home.
        unsafe { task.settle_in(place) };
        self.push(task);
    }

    fn cancel(&self, task: &TaskRef) -> bool {
        // SAFETY: at home.
        let ended = unsafe { task.cancel() };
        if ended {
            self.bury(task);
        }
        ended
    }

    /// Strikes a task that is over off the list.
    fn bury(&self, task: &TaskRef) {
        // SAFETY: at home.
        let place = unsafe { task.place() };
        let struck = self.living.borrow_mut().remove(place);
        drop(struck);
    }
}
