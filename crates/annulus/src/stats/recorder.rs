//! Records a runtime's turns: always for its flight recorder, and for histograms if they were
//! requested.

use super::trace::{FlightRecorder, RecordKind, Trace};
use super::{SlowPoll, Timings};
use crate::tasks::RunQueue;
use crate::tasks::run_queue::Probe;
use annulus_driver::{Counters, Driver};
use annulus_kernel::Kernel;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

/// Minimum time between two rounds of timed turns, which bounds the cost of timing. The first turn
/// after that time begins a round, so a turn that follows a long pause is always timed.
const MIN_TIME_BETWEEN_TIMED_ROUNDS: Duration = Duration::from_millis(100);
/// Turns per round: two, because tasks that are woken by tasks run one turn later.
const TIMED_TURNS_PER_ROUND: u8 = 2;
/// Minimum time that a shared record of untimed turns covers: less than 4 ms, the tick of most
/// kernels' coarse clock.
const MIN_SHARED_RECORD_TIME: Duration = Duration::from_millis(3);
/// An untimed turn that takes this long gets its own record. The value exceeds any tick of the
/// coarse clock, which is at most 10 ms.
const MIN_OWN_RECORD_TIME: Duration = Duration::from_millis(12);
/// Number of polls that are recorded in each timed turn. Further polls are recorded only if they
/// take at least `MIN_LONG_POLL_TIME`, or if `slow_poll` is set.
const RECORDED_POLLS_PER_TURN: u64 = 64;
const MIN_LONG_POLL_TIME: Duration = Duration::from_millis(1);
const MAX_SLOW_POLLS_KEPT: usize = 16;
/// Initial capacity for the marks of a turn: one per poll, and a few more.
const WAKE_MARKS_CAPACITY: usize = 1100;

/// Records turns and polls. For an untimed turn it only reads the coarse clock twice.
pub(crate) struct Recorder {
    kernel: Rc<dyn Kernel>,
    /// Counts polls, and knows where the most recently polled tasks were spawned.
    run_queue: Rc<RunQueue>,
    /// If set, all turns are timed, and polls that take at least this long are slow.
    slow_poll: Option<Duration>,
    began: Duration,
    /// Turns left in this round, including the current one; constant if all turns are timed.
    timed: Cell<u8>,
    next_round: Cell<Duration>,
    /// When the shared record of untimed turns is due, in nanoseconds; 0 in a timed turn.
    due: Cell<u64>,
    /// When the shared record or the timed turn began. `turns` counts the turns since then, and
    /// `polls_before` the polls before then.
    turn_began: Cell<Duration>,
    turns: Cell<u32>,
    polls_before: Cell<u64>,
    /// The last reading of the clock in a timed turn.
    last: Cell<Duration>,
    /// The last records, from which traces are made.
    flight: RefCell<FlightRecorder>,
    /// The histograms, and when tasks were woken; `None` without
    /// [`Builder::measure`](crate::Builder::measure) and `slow_poll`.
    measured: Option<RefCell<(Timings, WakeMarks)>>,
}

impl Recorder {
    /// Creates a recorder. It has histograms if `measures` is true or `slow_poll` is set.
    pub(crate) fn new(
        measures: bool,
        slow_poll: Option<Duration>,
        kernel: Rc<dyn Kernel>,
        run_queue: Rc<RunQueue>,
    ) -> Self {
        let began = kernel.now();
        let measured = (measures || slow_poll.is_some()).then(|| {
            let last_slow_polls = Vec::with_capacity(MAX_SLOW_POLLS_KEPT);
            let timings = Timings { last_slow_polls, ..Timings::default() };
            RefCell::new((timings, WakeMarks::with_capacity(WAKE_MARKS_CAPACITY)))
        });
        Self {
            kernel,
            run_queue,
            slow_poll,
            began,
            timed: Cell::new(slow_poll.map_or(0, |_| TIMED_TURNS_PER_ROUND)),
            next_round: Cell::default(),
            due: Cell::default(),
            turn_began: Cell::new(began),
            turns: Cell::default(),
            polls_before: Cell::default(),
            last: Cell::new(began),
            flight: RefCell::new(FlightRecorder::new()),
            measured,
        }
    }

    /// Returns the timings so far, if the recorder measures any.
    pub(crate) fn timings(&self) -> Option<Timings> {
        self.measured.as_ref().map(|measured| measured.borrow().0.clone())
    }

    pub(crate) fn trace(&self) -> Trace {
        self.flight.borrow().trace()
    }

    /// Begins the next turn, after the loop has checked for events.
    #[inline]
    pub(crate) fn turn_begins(&self) {
        let now = self.kernel.tick();
        self.run_queue.set_time(now);
        if now >= self.due.get() {
            self.begin_after_wait();
        }
    }

    /// Called when tasks run again although the loop has not checked for events. In timed turns,
    /// this begins the next turn.
    #[inline]
    pub(crate) fn turn_skips_kernel(&self, driver: &mut Driver) {
        if self.is_timed() {
            self.end_record(driver);
            self.begin_after_wait();
        }
    }

    /// Resumes the turn after its thread has done other work, such as running a guest's host loop.
    pub(crate) fn turn_resumes(&self) {
        if self.is_timed() { self.begin(self.kernel.now()) } else { self.turn_begins() }
    }

    /// Begins a timed turn or a shared record.
    fn begin(&self, now: Duration) {
        self.run_queue.set_time(now.as_nanos() as u64);
        self.turn_began.set(now);
        self.turns.set(0);
        self.polls_before.set(self.run_queue.polls());
        self.last.set(now);
        let due =
            if self.is_timed() { 0 } else { (now + MIN_SHARED_RECORD_TIME).as_nanos() as u64 };
        self.due.set(due);
        self.measure(|_, wakes| {
            if self.is_timed() { wakes.note(self.run_queue.len(), now) } else { wakes.pause() }
        });
    }

    /// Called when the loop returns from the kernel after a timed turn, or when the shared record
    /// is due.
    #[cold]
    fn begin_after_wait(&self) {
        let now = self.kernel.now();
        if self.is_timed() {
            self.record(RecordKind::Wait, self.last.get(), now);
            if self.slow_poll.is_none() {
                self.timed.set(self.timed.get() - 1);
            }
        } else {
            self.record_shared(true, now);
            if now >= self.next_round.get() {
                self.next_round.set(now + MIN_TIME_BETWEEN_TIMED_ROUNDS);
                self.timed.set(TIMED_TURNS_PER_ROUND);
            }
        }
        self.begin(now);
    }

    /// Ends the turn: the loop is about to check for events.
    #[inline]
    pub(crate) fn turn_ends(&self, driver: &mut Driver) {
        self.turns.set(self.turns.get().wrapping_add(1));
        if self.kernel.tick() >= self.due.get() {
            self.end_record(driver);
        }
    }

    /// Ends a timed turn, or an untimed one at which the shared record is due.
    #[cold]
    fn end_record(&self, driver: &mut Driver) {
        let now = self.kernel.now();
        let began = self.turn_began.get();
        if self.is_timed() {
            self.last.set(now);
            self.measure(|timings, _| timings.turn.record(now.saturating_sub(began)));
            self.record(RecordKind::Turn, began, now);
        } else {
            let began = Duration::from_nanos(self.run_queue.time()).max(began);
            if now.saturating_sub(began) < MIN_OWN_RECORD_TIME {
                self.record_shared(false, now);
            } else {
                self.turns.set(self.turns.get() - 1);
                self.record_shared(false, began);
                self.record(RecordKind::Turn, began, now);
                let mut flight = self.flight.borrow_mut();
                self.run_queue.polled().for_each(|place| flight.add_poll(place, began));
            }
            self.begin(now);
        }
        let Counters { cqes: all, late_completions: late, .. } = *driver.counters();
        self.record(RecordKind::Completions { all, late }, now, now);
    }

    fn record_shared(&self, waited: bool, ended: Duration) {
        let polls = (self.run_queue.polls() - self.polls_before.get()) as u32;
        let what = RecordKind::Turns { turns: self.turns.get(), polls, waited };
        self.record(what, self.turn_began.get(), ended);
    }

    fn record(&self, what: RecordKind, began: Duration, ended: Duration) {
        self.flight.borrow_mut().push(what, began, ended.saturating_sub(began));
    }

    /// Returns true if the exact clock is read in this turn.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed.get() > 0
    }

    /// Reads the clock and returns the time since the last reading.
    #[inline]
    fn lap(&self) -> Duration {
        let now = self.kernel.now();
        now.saturating_sub(self.last.replace(now))
    }

    fn measure(&self, work: impl FnOnce(&mut Timings, &mut WakeMarks)) {
        if let Some(measured) = &self.measured {
            let (timings, wakes) = &mut *measured.borrow_mut();
            work(timings, wakes);
        }
    }

    /// Records a slow poll, and logs it if the feature `tracing` is on.
    #[cold]
    fn record_slow_poll(&self, spawned_at: Option<&'static Location<'static>>, took: Duration) {
        let ended = self.last.get().saturating_sub(self.began);
        let slow = SlowPoll { spawned_at, took, ended };
        self.measure(|timings, _| {
            timings.slow_polls += 1;
            if timings.last_slow_polls.len() == MAX_SLOW_POLLS_KEPT {
                timings.last_slow_polls.remove(0);
            }
            timings.last_slow_polls.push(slow);
        });
        #[cfg(feature = "tracing")]
        crate::unwind::contained(|| {
            tracing::warn!(target: "annulus", took = ?slow.took, "{slow}");
        });
    }
}

impl Probe for Recorder {
    fn polls_begin(&self) {
        self.lap();
    }

    fn task_taken(&self) {
        let last = self.last.get();
        self.measure(|timings, wakes| {
            if let Some(woken) = wakes.take() {
                timings.wake_to_poll.record(last.saturating_sub(woken));
            }
            // Tasks that this poll wakes are queued after this mark.
            wakes.note(self.run_queue.len(), last);
        });
    }

    fn polled(&self, spawned_at: Option<&'static Location<'static>>) {
        let took = self.lap();
        self.measure(|timings, _| timings.poll.record(took));
        let ended = self.last.get();
        let nth = self.run_queue.polls() - self.polls_before.get();
        if nth <= RECORDED_POLLS_PER_TURN || took >= MIN_LONG_POLL_TIME || self.slow_poll.is_some()
        {
            self.record(RecordKind::Poll(spawned_at), ended.saturating_sub(took), ended);
        }
        if self.slow_poll.is_some_and(|limit| took >= limit) {
            self.record_slow_poll(spawned_at, took);
        }
    }

    fn polls_end(&self) {
        self.measure(|_, wakes| wakes.note(self.run_queue.len(), self.last.get()));
    }
}

/// A reading of the clock: the number of the next task to be queued, and the time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    next: u64,
    time: Duration,
}

/// Tracks when the tasks in the run queue were woken, without storing a time per task.
///
/// The queue is first in, first out. A mark stores how many tasks had been queued when the clock
/// was read, so tasks with higher numbers were woken after that reading.
#[derive(Debug, Default)]
pub(super) struct WakeMarks {
    marks: VecDeque<Mark>,
    /// Tasks taken from the queue so far, except those taken while the clock was not read.
    taken: u64,
}

impl WakeMarks {
    /// Creates a list with room for this many marks, so that adding them does not allocate.
    pub(super) fn with_capacity(marks: usize) -> Self {
        Self { marks: VecDeque::with_capacity(marks), taken: 0 }
    }

    /// Records that the clock was read while `queued` tasks waited to run. Tasks that are queued
    /// from now on were woken after this reading.
    pub(super) fn note(&mut self, queued: usize, time: Duration) {
        let next = self.taken + queued as u64;
        match self.marks.back_mut() {
            // No task has been queued since the last reading.
            Some(last) if last.next == next => last.time = time,
            _ => self.marks.push_back(Mark { next, time }),
        }
    }

    /// Records that the task at the front was taken from the queue. Returns the last reading before
    /// it was woken, or `None` if the clock was not read then.
    pub(super) fn take(&mut self) -> Option<Duration> {
        let number = self.taken;
        self.taken += 1;
        while self.marks.get(1).is_some_and(|mark| mark.next <= number) {
            self.marks.pop_front();
        }
        self.marks.front().filter(|mark| mark.next <= number).map(|mark| mark.time)
    }

    /// Forgets all readings, because the clock is not read from now on.
    pub(super) fn pause(&mut self) {
        self.marks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Duration {
        Duration::from_nanos(n)
    }

    #[test]
    fn wake_time_is_the_last_reading_before_the_task_was_queued() {
        let mut marks = WakeMarks::default();
        // Two tasks were queued before the first reading.
        marks.note(2, at(10));
        // Two more are queued after that reading, and a fifth after the last one.
        marks.note(4, at(20));
        marks.note(4, at(25));
        let times: Vec<_> = (0..5).map(|_| marks.take()).collect();
        assert_eq!(times, [None, None, Some(at(10)), Some(at(10)), Some(at(25))]);
    }

    #[test]
    fn wake_time_is_unknown_for_tasks_queued_during_a_pause() {
        let mut marks = WakeMarks::default();
        marks.note(0, at(10));
        assert_eq!(marks.take(), Some(at(10)));
        marks.pause();
        assert_eq!(marks.take(), None);
        marks.note(1, at(20));
        assert_eq!((marks.take(), marks.take()), (None, Some(at(20))));
    }
}
