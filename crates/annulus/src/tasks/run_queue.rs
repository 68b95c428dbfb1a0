//! The run queue, and the list of live tasks.
#![allow(unsafe_code)]

use super::id::Id;
use super::raw::{self, JoinRef, Owned, State, TaskRef};
use crate::base::budget;
use crate::tasks::probe::Probe;
use crate::tasks::remote::Remote;
use crate::unwind::dispose;
use annulus_driver::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::forget;
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Polls of tasks between two looks for events, unless [`Builder::event_interval`](crate::Builder::event_interval) says otherwise.
pub(crate) const EVENT_INTERVAL: u32 = 61;

/// Polls whose places are kept.
const RECENT: usize = 256;

/// The most futures dropped within the drop of a refused one, which may spawn more: a future whose drop spawns another of its kind
/// would never end. Further ones are leaked.
const MAX_REFUSED: u32 = 64;

thread_local! {
    /// Futures refused since the outermost one that is being dropped.
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

/// The tasks of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tasks {
    /// Tasks that have not ended. The future that `block_on` runs is not among them; the task by which
    /// [`Handle::stats`](crate::Handle::stats) asks on another thread is.
    pub alive: usize,
    /// Live tasks in the run queue: woken, and waiting for their turn.
    pub ready: usize,
    /// Tasks that other threads have spawned or woken and that the loop has not taken in.
    pub inbox: usize,
    /// Tasks spawned so far.
    pub spawned: u64,
}

/// The tasks of one runtime. It is not `Send`: it stays on its runtime's thread, which is the owner of its tasks.
pub(crate) struct RunQueue {
    /// Tasks that can run, in the order they were woken.
    queue: RefCell<VecDeque<TaskRef>>,
    /// Linked tasks that are not done, so that the end of the runtime can drop each on its own thread.
    live: RefCell<Slab<TaskRef>>,
    /// No more tasks may be spawned.
    closed: Cell<bool>,
    /// Tasks linked so far.
    spawned: Cell<u64>,
    /// The operations that a task may do each time it is polled: see `budget`.
    pub(crate) task_budget: Cell<u32>,
    /// Polls after which the loop looks for events although tasks are ready; all polls so far, and those of them before it last did.
    pub(crate) event_interval: Cell<u32>,
    polls: Cell<u64>,
    looked: Cell<u64>,
    /// The places that spawned the tasks that were polled last, by the number of the poll; `None` is the future of `block_on`.
    recent: [Cell<Option<&'static Location<'static>>>; RECENT],
    /// The task that runs, or [`Id::NONE`].
    running: Cell<Id>,
    /// When the tasks that run now are noted to have run, in nanoseconds.
    time: Cell<u64>,
    _not_send: PhantomData<*const ()>,
}

/// The data of a live task.
pub(crate) struct Task {
    pub(crate) id: Id,
    pub(crate) waker: Waker,
    pub(crate) spawned_at: &'static Location<'static>,
    /// The task is in the run queue.
    pub(crate) queued: bool,
    /// How often it was polled.
    pub(crate) polls: u64,
    /// When it was polled last, if there was a poll.
    pub(crate) polled_at: Duration,
}

impl RunQueue {
    pub(crate) fn new() -> Self {
        let queue = RefCell::new(VecDeque::with_capacity(64));
        let (live, closed) = (RefCell::new(Slab::new()), Cell::new(false));
        let (spawned, time) = (Cell::new(0), Cell::new(0));
        let task_budget = Cell::new(budget::DEFAULT);
        Self {
            queue,
            live,
            closed,
            spawned,
            task_budget,
            event_interval: Cell::new(EVENT_INTERVAL),
            polls: Cell::new(0),
            looked: Cell::new(0),
            recent: [const { Cell::new(None) }; RECENT],
            running: Cell::new(Id::NONE),
            time,
            _not_send: PhantomData,
        }
    }

    /// Whether tasks may go on before the loop looks for events.
    #[inline]
    pub(crate) fn may_go_on(&self) -> bool {
        self.polls.get() - self.looked.get() < u64::from(self.event_interval.get())
    }

    /// The loop has looked for events.
    #[inline]
    pub(crate) fn note_look(&self) {
        self.looked.set(self.polls.get());
    }

    /// The time of the tasks that are polled from now on, in nanoseconds.
    #[inline]
    pub(crate) fn set_time(&self, nanos: u64) {
        self.time.set(nanos);
    }

    /// When the loop last looked for events, in nanoseconds: a little before, by as much as the clock is late.
    pub(crate) fn time(&self) -> u64 {
        self.time.get()
    }

    /// Polls so far.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// The places that spawned the tasks that were polled since the loop last looked for events, but for those of old polls.
    pub(crate) fn polled(&self) -> impl Iterator<Item = Option<&'static Location<'static>>> {
        let (from, to) = (self.looked.get(), self.polls.get());
        let from = from.max(to.saturating_sub(RECENT as u64));
        (from..to).map(|number| self.recent[number as usize % RECENT].get())
    }

    /// A task is about to be polled that was spawned at this place, or the future of `block_on`.
    #[inline]
    pub(crate) fn poll_begins(&self, place: Option<&'static Location<'static>>) {
        let number = self.polls.get();
        self.recent[number as usize % RECENT].set(place);
        self.polls.set(number + 1);
        budget::renew(self.task_budget.get());
    }

    /// Refuses tasks from now on: the future of a task that is spawned is dropped at once.
    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// Spawns a task on this runtime, which has this inbox. None if the runtime ends, and the future was dropped.
    pub(crate) fn spawn<F>(
        &self,
        remote: &Arc<Remote>,
        future: F,
        spawned_at: &'static Location<'static>,
    ) -> Option<JoinRef<F::Output>>
    where
        F: Future + 'static,
    {
        if self.closed.get() {
            refuse(future);
            return None;
        }
        // SAFETY: this is the thread that owns the remote.
        let (task, join) = unsafe { raw::make(future, remote.clone(), spawned_at) };
        self.link(task);
        Some(join)
    }

    #[inline]
    pub(crate) fn push(&self, task: TaskRef) {
        self.queue.borrow_mut().push_back(task);
    }

    /// Takes in the tasks of the inbox: new ones, and woken ones.
    #[inline]
    pub(crate) fn extend(&self, tasks: Vec<TaskRef>) {
        tasks.into_iter().for_each(|task| self.take_in(task));
    }

    /// Runs the tasks that are queued now, at most `budget`; tasks that they wake wait for the next turn. A panic ends its task
    /// only.
    #[inline]
    pub(crate) fn run(&self, budget: usize, probe: &impl Probe) {
        let count = self.len().min(budget);
        probe.polls_begin();
        for _ in 0..count {
            let Some(task) = self.pop() else { break };
            probe.task_taken();
            self.poll_begins(Some(task.spawned_at()));
            self.running.set(task.id());
            // SAFETY: tasks in the queue are queued.
            let state = unsafe { self.owned(&task).run() };
            self.owned(&task).note_poll(self.time.get());
            probe.polled(Some(task.spawned_at()));
            match state {
                State::Queued => self.push(task),
                State::Done => self.unlink(&task),
                _ => {}
            }
        }
        self.running.set(Id::NONE);
        probe.polls_end();
    }

    /// The task that runs, if one does.
    pub(crate) fn running(&self) -> Option<Id> {
        Some(self.running.get()).filter(|id| *id != Id::NONE)
    }

    /// Tasks that can run.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Drops all tasks, with those that `inbox` returns: tasks that other threads have just spawned or woken.
    pub(crate) fn drop_all(&self, inbox: impl Fn() -> Vec<TaskRef>) {
        loop {
            self.extend(inbox());
            // While these are dropped, others may enter the inbox.
            let ended = self.live_tasks().into_iter().filter(|task| self.cancel(task)).count();
            if ended == 0 {
                break;
            }
        }
        while self.pop().is_some() {}
    }

    /// How many tasks there are; those in the inbox are not known here.
    pub(crate) fn stats(&self) -> Tasks {
        let (alive, ready) = (self.live.borrow().len(), self.len());
        Tasks { alive, ready, inbox: 0, spawned: self.spawned.get() }
    }

    /// All live tasks but the one that runs.
    pub(crate) fn tasks(&self) -> Vec<Task> {
        let rests =
            |task: &TaskRef| !matches!(self.owned(task).state(), State::Running | State::Notified);
        let task = |task: TaskRef| {
            let (polls, polled_at) = self.owned(&task).polls();
            let queued = self.owned(&task).state() == State::Queued;
            let (id, waker, spawned_at) = (task.id(), task.waker(), task.spawned_at());
            Task { id, waker, spawned_at, polls, polled_at, queued }
        };
        self.live_tasks().into_iter().filter(rests).map(task).collect()
    }

    fn live_tasks(&self) -> Vec<TaskRef> {
        let mut live = self.live.borrow_mut();
        live.values().map(|task| task.clone()).collect()
    }

    #[inline]
    fn owned<'a>(&self, task: &'a TaskRef) -> Owned<'a> {
        // SAFETY: the queue stays on its runtime's thread, and has tasks of that runtime only, which this thread owns.
        unsafe { task.owned() }
    }

    #[inline]
    fn pop(&self) -> Option<TaskRef> {
        self.queue.borrow_mut().pop_front()
    }

    fn take_in(&self, task: TaskRef) {
        if self.owned(&task).state() == State::New {
            return self.link(task);
        }
        task.leave_inbox();
        if self.owned(&task).notify() {
            self.push(task);
        }
    }

    /// Links a new task into the list, and queues it.
    fn link(&self, task: TaskRef) {
        let index = self.live.borrow_mut().insert(task.clone());
        self.owned(&task).link(index);
        self.spawned.set(self.spawned.get() + 1);
        self.push(task);
    }

    fn cancel(&self, task: &TaskRef) -> bool {
        let ended = self.owned(task).cancel();
        if ended {
            self.unlink(task);
        }
        ended
    }

    /// Removes a task that is done from the list.
    fn unlink(&self, task: &TaskRef) {
        let index = self.owned(task).index();
        let removed = self.live.borrow_mut().remove(index);
        drop(removed);
    }
}

/// Drops a future that was spawned while its runtime ends.
pub(crate) fn refuse<F>(future: F) {
    let before = REFUSED.get();
    if before == MAX_REFUSED {
        return forget(future);
    }
    REFUSED.set(before + 1);
    dispose(future);
    if before == 0 {
        REFUSED.set(0);
    }
}
