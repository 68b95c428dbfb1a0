//! The run queue, the list of live tasks, and the thread that owns them.
#![allow(unsafe_code)]

use super::join::Id;
use super::raw::{self, JoinRef, Owned, TaskRef, TaskState};
use crate::tasks::budget;
use crate::tasks::remote::Remote;
use crate::unwind::dispose;
use annulus_driver::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::forget;
use std::panic::Location;
use std::ptr::{from_ref, null};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// The default of [`Builder::event_interval`](crate::Builder::event_interval): task polls between
/// two checks for events.
pub(crate) const EVENT_INTERVAL: u32 = 61;

/// About how long a turn polls tasks before it starts the sends that they have queued. The poll of
/// a single task is not interrupted.
const MAX_POLLING: Duration = Duration::from_micros(100);

/// About how long a turn without sends polls tasks before it checks for events.
const MAX_POLLING_WITHOUT_SENDS: Duration = Duration::from_micros(250);

/// Number of polls in a turn before the clock is read for the first time.
const UNTIMED_POLLS: usize = 16;

/// Maximum number of polls between two readings of the clock.
const MAX_POLLS_PER_READING: usize = 64;

/// Number of recent polls for which the spawn location of the polled task is kept.
const RECENT_POLLS: usize = 256;

/// Maximum number of refused futures that are dropped in a chain, in which the drop of each future
/// spawns the next one. Further futures are leaked, because such a chain may never end.
const MAX_REFUSED_FUTURES: u32 = 64;

thread_local! {
    /// Number of futures refused since the outermost refusal began.
    static REFUSED_FUTURES: Cell<u32> = const { Cell::new(0) };
}

/// Counts of the tasks of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tasks {
    /// Tasks that have not ended. The root future is not counted, but the task that
    /// [`Handle::stats`](crate::Handle::stats) uses to ask another thread is.
    pub alive: usize,
    /// Live tasks in the run queue: woken, and waiting to be polled.
    pub ready: usize,
    /// Tasks that other threads have spawned or woken, and that the loop has not taken in yet.
    pub inbox: usize,
    /// Tasks spawned so far.
    pub spawned: u64,
}

/// The tasks of one runtime. It is `!Send`: it stays on its runtime's thread, which owns the tasks.
pub(crate) struct RunQueue {
    /// Tasks that can run, in the order they were woken.
    queue: RefCell<VecDeque<TaskRef>>,
    /// All linked tasks that are not done, so that the end of the runtime can drop each on its own
    /// thread.
    live: RefCell<Slab<TaskRef>>,
    /// Whether spawning is refused.
    closed: Cell<bool>,
    /// Tasks linked so far.
    spawned: Cell<u64>,
    /// How many operations a task may complete per poll; see `budget`.
    pub(crate) task_budget: Cell<u32>,
    /// Number of polls after which the loop checks for events even if tasks are ready.
    pub(crate) event_interval: Cell<u32>,
    /// Number of polls so far.
    polls: Cell<u64>,
    /// Number of polls before the loop last checked for events.
    polls_at_last_check: Cell<u64>,
    /// Whether the last turn ended because of its time, so that the loop must check for events.
    time_is_over: Cell<bool>,
    /// The locations that spawned the most recently polled tasks, indexed by the number of the
    /// poll; `None` for the root future.
    recent: [Cell<Option<&'static Location<'static>>>; RECENT_POLLS],
    /// The running task, or [`Id::NONE`].
    running: Cell<Id>,
    /// The time that is recorded for the tasks that run now, in nanoseconds.
    time: Cell<u64>,
    _not_send: PhantomData<*const ()>,
}

/// A snapshot of a live task.
pub(crate) struct TaskSnapshot {
    pub(crate) id: Id,
    pub(crate) waker: Waker,
    pub(crate) spawned_at: &'static Location<'static>,
    /// Whether the task is in the run queue.
    pub(crate) queued: bool,
    pub(crate) polls: u64,
    /// The time of the last poll, or zero if there was none.
    pub(crate) polled_at: Duration,
}

impl RunQueue {
    pub(crate) fn new() -> Self {
        let queue = RefCell::new(VecDeque::with_capacity(64));
        let (live, closed) = (RefCell::new(Slab::new()), Cell::new(false));
        let (spawned, time) = (Cell::new(0), Cell::new(0));
        let task_budget = Cell::new(budget::DEFAULT_TASK_BUDGET);
        Self {
            queue,
            live,
            closed,
            spawned,
            task_budget,
            event_interval: Cell::new(EVENT_INTERVAL),
            polls: Cell::new(0),
            polls_at_last_check: Cell::new(0),
            time_is_over: Cell::new(false),
            recent: [const { Cell::new(None) }; RECENT_POLLS],
            running: Cell::new(Id::NONE),
            time,
            _not_send: PhantomData,
        }
    }

    /// Returns true if more tasks may run before the loop checks for events.
    #[inline]
    pub(crate) fn may_skip_kernel(&self) -> bool {
        let polls = self.polls.get() - self.polls_at_last_check.get();
        !self.time_is_over.get() && polls < u64::from(self.event_interval.get())
    }

    /// Records that the loop has checked for events.
    #[inline]
    pub(crate) fn note_event_check(&self) {
        self.polls_at_last_check.set(self.polls.get());
        self.time_is_over.set(false);
    }

    /// Sets the time that is recorded for tasks polled from now on, in nanoseconds.
    #[inline]
    pub(crate) fn set_time(&self, nanos: u64) {
        self.time.set(nanos);
    }

    /// Returns the time that is recorded for tasks polled now, in nanoseconds: when the loop last
    /// checked for events, or slightly earlier, because the clock is coarse.
    pub(crate) fn time(&self) -> u64 {
        self.time.get()
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    /// Returns the locations that spawned the tasks polled since the loop last checked for events,
    /// limited to the most recent polls.
    pub(crate) fn polled(&self) -> impl Iterator<Item = Option<&'static Location<'static>>> {
        let (from, to) = (self.polls_at_last_check.get(), self.polls.get());
        let from = from.max(to.saturating_sub(RECENT_POLLS as u64));
        (from..to).map(|number| self.recent[number as usize % RECENT_POLLS].get())
    }

    /// Records that a task spawned at this location, or the root future, is about to be polled, and
    /// renews the task budget.
    #[inline]
    pub(crate) fn poll_begins(&self, place: Option<&'static Location<'static>>) {
        let number = self.polls.get();
        self.recent[number as usize % RECENT_POLLS].set(place);
        self.polls.set(number + 1);
        budget::renew(self.task_budget.get());
    }

    /// Refuses tasks from now on: the future of a spawned task is dropped at once.
    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// Spawns a task on this runtime, whose inbox is `remote`. Returns `None`, and drops the
    /// future, if the runtime is ending.
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
        // SAFETY: the queue stays on its runtime's thread, which owns `remote`.
        let (task, join) = unsafe { raw::make(future, remote.clone(), spawned_at) };
        self.link(task);
        Some(join)
    }

    #[inline]
    pub(crate) fn push(&self, task: TaskRef) {
        self.queue.borrow_mut().push_back(task);
    }

    /// Takes in the tasks of the inbox, both new and woken.
    #[inline]
    pub(crate) fn extend(&self, tasks: Vec<TaskRef>) {
        tasks.into_iter().for_each(|task| self.take_in(task));
    }

    /// Runs the tasks that are queued now, at most `budget` of them, for about [`MAX_POLLING`] if
    /// they have queued sends, and otherwise for about [`MAX_POLLING_WITHOUT_SENDS`]. Tasks that
    /// they wake wait for the next turn. A panic ends only its own task.
    #[inline]
    pub(crate) fn run(&self, budget: usize, probe: &impl Probe, turn: &impl TurnState) {
        let count = self.len().min(budget);
        let mut clock = (count > UNTIMED_POLLS).then(|| PollingClock::new(turn.now()));
        probe.polls_begin();
        for number in 0..count {
            if let Some(clock) = &mut clock
                && clock.is_over(number, turn)
            {
                self.time_is_over.set(true);
                break;
            }
            let Some(task) = self.pop() else { break };
            probe.task_taken();
            self.poll_begins(Some(task.spawned_at()));
            self.running.set(task.id());
            // SAFETY: a task in the queue is in the state queued.
            let state = unsafe { self.owned(&task).run() };
            self.owned(&task).note_poll(self.time.get());
            probe.polled(Some(task.spawned_at()));
            match state {
                TaskState::Queued => self.push(task),
                TaskState::Done => self.unlink(&task),
                _ => {}
            }
        }
        self.running.set(Id::NONE);
        probe.polls_end();
    }

    /// Returns the running task, if there is one.
    pub(crate) fn running(&self) -> Option<Id> {
        Some(self.running.get()).filter(|id| *id != Id::NONE)
    }

    /// Returns the number of tasks that can run.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Drops all tasks, including the ones that `inbox` returns, which other threads have just
    /// spawned or woken.
    pub(crate) fn drop_all(&self, inbox: impl Fn() -> Vec<TaskRef>) {
        loop {
            self.extend(inbox());
            // More tasks may arrive in the inbox while tasks are dropped.
            let ended = self.live_tasks().into_iter().filter(|task| self.cancel(task)).count();
            if ended == 0 {
                break;
            }
        }
        while self.pop().is_some() {}
    }

    /// Returns the counts of tasks, except the inbox, which the caller adds.
    pub(crate) fn stats(&self) -> Tasks {
        let (alive, ready) = (self.live.borrow().len(), self.len());
        Tasks { alive, ready, inbox: 0, spawned: self.spawned.get() }
    }

    /// Returns all live tasks except the running one.
    pub(crate) fn tasks(&self) -> Vec<TaskSnapshot> {
        let rests = |task: &TaskRef| {
            !matches!(self.owned(task).state(), TaskState::Running | TaskState::Notified)
        };
        let task = |task: TaskRef| {
            let (polls, polled_at) = self.owned(&task).polls();
            let queued = self.owned(&task).state() == TaskState::Queued;
            let (id, waker, spawned_at) = (task.id(), task.waker(), task.spawned_at());
            TaskSnapshot { id, waker, spawned_at, polls, polled_at, queued }
        };
        self.live_tasks().into_iter().filter(rests).map(task).collect()
    }

    fn live_tasks(&self) -> Vec<TaskRef> {
        let mut live = self.live.borrow_mut();
        live.values().map(|task| task.clone()).collect()
    }

    #[inline]
    fn owned<'a>(&self, task: &'a TaskRef) -> Owned<'a> {
        // SAFETY: the queue stays on its runtime's thread, and contains only tasks of that runtime,
        // which this thread owns.
        unsafe { task.owned() }
    }

    #[inline]
    fn pop(&self) -> Option<TaskRef> {
        self.queue.borrow_mut().pop_front()
    }

    fn take_in(&self, task: TaskRef) {
        if self.owned(&task).state() == TaskState::New {
            return self.link(task);
        }
        task.leave_inbox();
        if self.owned(&task).notify() {
            self.push(task);
        }
    }

    /// Links a new task into the list and queues it.
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

    /// Removes a finished task from the list.
    fn unlink(&self, task: &TaskRef) {
        let index = self.owned(task).index();
        let removed = self.live.borrow_mut().remove(index);
        drop(removed);
    }
}

/// The facts about a turn that decide whether it polls more tasks.
pub(crate) trait TurnState {
    fn now(&self) -> Duration;
    /// Returns how long the turn may poll tasks before it ends, or `None` if it must run all that
    /// were ready.
    fn max_polling(&self) -> Option<Duration>;
}

/// Returns how long a turn may poll tasks that have, or have not, queued sends.
pub(crate) fn max_polling(has_sends: bool) -> Duration {
    if has_sends { MAX_POLLING } else { MAX_POLLING_WITHOUT_SENDS }
}

/// Decides when a turn has polled tasks for long enough. It estimates from the polls so far when to
/// read the clock next.
struct PollingClock {
    turn_began: Duration,
    /// The start of the current time window, and the number of its first poll.
    began: (Duration, usize),
    /// The length of the current time window.
    window: Duration,
    /// The number of the poll before which the clock is read.
    next_reading: usize,
}

impl PollingClock {
    fn new(now: Duration) -> Self {
        Self { turn_began: now, began: (now, 0), window: MAX_POLLING, next_reading: UNTIMED_POLLS }
    }

    /// Returns true if the turn has polled tasks for long enough. Called before the poll with this
    /// number.
    #[inline]
    fn is_over(&mut self, number: usize, turn: &impl TurnState) -> bool {
        number == self.next_reading && self.read(number, turn)
    }

    #[inline(never)]
    fn read(&mut self, number: usize, turn: &impl TurnState) -> bool {
        let (now, (began, first)) = (turn.now(), self.began);
        let elapsed = now.saturating_sub(began).as_nanos() as usize;
        let left = (self.window.as_nanos() as usize).saturating_sub(elapsed);
        if left > 0 {
            let polls = (number - first) * left / elapsed.max(1);
            self.next_reading = number + polls.clamp(1, MAX_POLLS_PER_READING);
            return false;
        }
        let turn_time = now.saturating_sub(self.turn_began);
        if turn.max_polling().is_some_and(|limit| turn_time >= limit) {
            return true;
        }
        // Sends may have to wait from now on, so a new time window begins. It ends no later than a
        // turn without sends.
        let turn_left = MAX_POLLING_WITHOUT_SENDS.saturating_sub(turn_time);
        self.window = if turn_left.is_zero() { MAX_POLLING } else { turn_left.min(MAX_POLLING) };
        self.began = (now, number);
        self.next_reading = number + UNTIMED_POLLS;
        false
    }
}

/// Drops a future that was spawned while its runtime was ending.
pub(crate) fn refuse<F>(future: F) {
    let before = REFUSED_FUTURES.get();
    if before == MAX_REFUSED_FUTURES {
        return forget(future);
    }
    REFUSED_FUTURES.set(before + 1);
    dispose(future);
    if before == 0 {
        REFUSED_FUTURES.set(0);
    }
}

thread_local! {
    /// The inbox of the runtime that this thread runs. It is compared but never dereferenced. It is
    /// separate from the queue because reading a thread-local without a destructor is a plain load.
    static OWNED_REMOTE: Cell<*const Remote> = const { Cell::new(null()) };
    static RUN_QUEUE: RefCell<Option<Rc<RunQueue>>> = const { RefCell::new(None) };
}

/// Makes this thread the owner of a runtime's tasks, until [`clear_owner_thread`]. On a thread that
/// is ending this may have no effect; wakes from this thread then use the inbox.
pub(crate) fn set_owner_thread(remote: &Remote, run_queue: &Rc<RunQueue>) {
    if RUN_QUEUE.try_with(|slot| slot.replace(Some(run_queue.clone()))).is_ok() {
        OWNED_REMOTE.set(from_ref(remote));
    }
}

/// Ends the ownership. From now on wakes from this thread use the inbox.
pub(crate) fn clear_owner_thread() {
    OWNED_REMOTE.set(null());
    _ = RUN_QUEUE.try_with(RefCell::take);
}

/// Returns true if the runtime with this inbox runs on this thread.
#[inline]
pub(crate) fn is_owner(remote: &Remote) -> bool {
    OWNED_REMOTE.get() == from_ref(remote)
}

/// Queues a task of the runtime that this thread runs.
#[inline]
pub(crate) fn push_on_this_thread(task: TaskRef) {
    RUN_QUEUE.with(|queue| {
        let queue = queue.borrow();
        queue.as_ref().expect("the owner thread has no run queue").push(task);
    });
}

/// An observer of task polls. The polling code is generic over it, so turns that are not timed pay
/// nothing for it.
pub(crate) trait Probe {
    /// Called before the root future or the first ready task is polled.
    #[inline]
    fn polls_begin(&self) {}

    /// Called when the next task has been taken out of the run queue to be polled.
    #[inline]
    fn task_taken(&self) {}

    /// Called after a poll, with the location that spawned the task, or `None` for the root future.
    #[inline]
    fn polled(&self, _spawned_at: Option<&'static Location<'static>>) {}

    /// Called after the ready tasks have been polled.
    #[inline]
    fn polls_end(&self) {}
}

pub(crate) struct Unmeasured;

impl Probe for Unmeasured {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn whose polls all take the same time. Sends wait after the poll `first_to_send`.
    #[derive(Default)]
    struct Polls {
        duration: Duration,
        /// Whether so many receive buffers are lent that all tasks must run.
        must_run_all: bool,
        first_to_send: usize,
        number: Cell<usize>,
        readings: Cell<u32>,
    }

    impl TurnState for Polls {
        fn now(&self) -> Duration {
            self.readings.set(self.readings.get() + 1);
            self.duration * self.number.get() as u32
        }

        fn max_polling(&self) -> Option<Duration> {
            let has_sends = self.number.get() > self.first_to_send;
            (!self.must_run_all).then_some(max_polling(has_sends))
        }
    }

    /// Returns after how many polls a turn ends.
    fn run(polls: &Polls) -> usize {
        let mut clock = PollingClock::new(Duration::ZERO);
        let is_over = |number: &usize| {
            polls.number.set(*number);
            clock.is_over(*number, polls)
        };
        (0..10_000).find(is_over).unwrap_or(10_000)
    }

    /// Runs a turn that has sends from the beginning, and whose polls take this time each. Returns
    /// the number of polls before the turn ends, and how often it reads the clock.
    fn polls_of(duration: Duration) -> (usize, u32) {
        let polls = Polls { duration, ..Polls::default() };
        (run(&polls), polls.readings.get())
    }

    #[test]
    fn a_turn_ends_after_a_time_whatever_the_polls_take() {
        for (micros, polls, readings) in [(1, 100, 2), (5, 20, 2), (10, 16, 1), (100, 16, 1)] {
            let (is, readings_are) = polls_of(Duration::from_micros(micros));
            assert_eq!(is, polls, "polls of {micros} µs");
            assert!(readings_are <= readings + 2, "{readings_are} readings");
        }
        let (polls, readings) = polls_of(Duration::from_nanos(100));
        assert!((1000..=1064).contains(&polls), "{polls} polls");
        assert!(readings <= 20, "{readings} readings");
    }

    #[test]
    fn a_turn_without_sends_ends_later_and_a_send_waits_no_longer_than_two_windows() {
        let duration = Duration::from_micros(3);
        let without_sends = Polls { duration, first_to_send: usize::MAX, ..Polls::default() };
        let polling = duration * run(&without_sends) as u32;
        let limits = MAX_POLLING_WITHOUT_SENDS..=MAX_POLLING_WITHOUT_SENDS + MAX_POLLING / 4;
        assert!(limits.contains(&polling), "{polling:?}");
        assert_eq!(run(&Polls { must_run_all: true, ..without_sends }), 10_000);
        for first_to_send in [10, 40, 70] {
            let ends = run(&Polls { duration, first_to_send, ..Polls::default() });
            let waited = duration * (ends - first_to_send) as u32;
            assert!(waited <= 2 * MAX_POLLING, "a send of poll {first_to_send} waited {waited:?}");
        }
    }
}
