//! The probe of a runtime that is measured.

use super::timings::{SlowPoll, Timings};
use super::trace::{FlightRecorder, Trace, What};
use super::wake_marks::WakeMarks;
use crate::tasks::RunQueue;
use crate::tasks::probe::Probe;
use annulus_driver::Counters;
use annulus_kernel::Kernel;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

/// The least time between two rounds of timed turns, in nanoseconds: it bounds what timing costs. The first turn after that time begins a
/// round, so that a turn that follows a long pause is always timed.
const PERIOD: u64 = 100_000_000;
/// Turns of a round: two, since tasks that are woken by tasks run one turn later.
const TIMED: u8 = 2;
/// Slow polls that are kept.
const KEPT: usize = 16;
/// Marks of a turn: one for each poll, and a few.
const MARKS: usize = 1100;

/// The measurements to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Measuring {
    #[default]
    Nothing,
    /// Some turns.
    Sampled,
    /// All turns; polls that take this long or longer are slow.
    EveryPoll(Duration),
}

/// Measures turns and polls.
pub(crate) struct Recorder {
    kernel: Rc<dyn Kernel>,
    run_queue: Rc<RunQueue>,
    slow_poll: Option<Duration>,
    /// When the runtime was built.
    began: Duration,
    /// Turns of this round that are left, this one included; constant if all turns are timed.
    timed: Cell<u8>,
    /// When the next round begins, in nanoseconds of the kernel's clock.
    next: Cell<u64>,
    /// In a timed turn: when it began, and the last reading.
    turn_began: Cell<Duration>,
    last: Cell<Duration>,
    /// A timed turn has ended, and the next has not begun.
    in_kernel: Cell<bool>,
    wakes: RefCell<WakeMarks>,
    timings: RefCell<Timings>,
    flight: RefCell<FlightRecorder>,
}

impl Recorder {
    /// `None` if nothing is to be measured.
    pub(crate) fn new(
        measuring: Measuring,
        kernel: Rc<dyn Kernel>,
        run_queue: Rc<RunQueue>,
    ) -> Option<Box<Self>> {
        let slow_poll = match measuring {
            Measuring::Nothing => return None,
            Measuring::Sampled => None,
            Measuring::EveryPoll(limit) => Some(limit),
        };
        let began = kernel.now();
        let timings = Timings { last_slow_polls: Vec::with_capacity(KEPT), ..Timings::default() };
        Some(Box::new(Self {
            kernel,
            run_queue,
            slow_poll,
            began,
            timed: Cell::new(slow_poll.map_or(0, |_| TIMED)),
            next: Cell::new(0),
            turn_began: Cell::new(began),
            last: Cell::new(began),
            in_kernel: Cell::new(false),
            wakes: RefCell::new(WakeMarks::with_capacity(MARKS)),
            timings: RefCell::new(timings),
            flight: RefCell::new(FlightRecorder::new()),
        }))
    }

    /// The timings that were measured so far.
    pub(crate) fn timings(&self) -> Timings {
        self.timings.borrow().clone()
    }

    /// The timed turns of the last seconds.
    pub(crate) fn trace(&self) -> Trace {
        self.flight.borrow().trace()
    }

    /// The loop has returned from the kernel.
    #[inline]
    pub(crate) fn turn_begins(&self) {
        if self.is_timed() {
            return self.after_timed_turn();
        }
        let now = nanos(self.kernel.tick());
        self.run_queue.set_time(now);
        if now >= self.next.get() {
            self.next.set(now + PERIOD);
            self.timed.set(TIMED);
            self.timed_turn_begins(self.kernel.now());
        }
    }

    #[cold]
    fn after_timed_turn(&self) {
        let now = self.kernel.now();
        if self.in_kernel.take() {
            self.record(What::Wait, self.last.get(), now);
        }
        if self.slow_poll.is_none() {
            self.timed.set(self.timed.get() - 1);
        }
        if self.is_timed() {
            return self.timed_turn_begins(now);
        }
        self.wakes.borrow_mut().pause();
        self.run_queue.set_time(nanos(self.kernel.tick()));
    }

    /// The turn goes on after its thread did something else, as that of a guest does.
    pub(crate) fn turn_resumes(&self) {
        if self.is_timed() {
            let now = self.kernel.now();
            self.run_queue.set_time(nanos(now));
            self.turn_began.set(now);
            self.last.set(now);
        }
    }

    #[cold]
    fn timed_turn_begins(&self, now: Duration) {
        self.run_queue.set_time(nanos(now));
        self.turn_began.set(now);
        self.last.set(now);
        self.note_wakes(now);
    }

    /// The loop is about to enter the kernel.
    #[inline]
    pub(crate) fn turn_ends(&self, counters: &Counters) {
        if self.is_timed() {
            self.timed_turn_ends(counters);
        }
    }

    #[cold]
    fn timed_turn_ends(&self, counters: &Counters) {
        self.lap();
        let (began, now) = (self.turn_began.get(), self.last.get());
        self.timings.borrow_mut().turn.record(now.saturating_sub(began));
        self.in_kernel.set(true);
        self.record(What::Turn, began, now);
        self.flight.borrow_mut().note_completions(counters, now);
    }

    fn record(&self, what: What, began: Duration, ended: Duration) {
        self.flight.borrow_mut().push(what, began, ended.saturating_sub(began));
    }

    /// Whether the clock is read in this turn.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed.get() > 0
    }

    /// Reads the clock; the time since the last reading.
    #[inline]
    fn lap(&self) -> Duration {
        let now = self.kernel.now();
        now.saturating_sub(self.last.replace(now))
    }

    fn note_wakes(&self, since: Duration) {
        self.wakes.borrow_mut().note(self.run_queue.len(), since);
    }

    #[cold]
    fn slow(&self, spawned_at: Option<&'static Location<'static>>, took: Duration) {
        let ended = self.last.get().saturating_sub(self.began);
        let slow = SlowPoll { spawned_at, took, ended };
        let mut timings = self.timings.borrow_mut();
        timings.slow_polls += 1;
        if timings.last_slow_polls.len() == KEPT {
            timings.last_slow_polls.remove(0);
        }
        timings.last_slow_polls.push(slow);
        drop(timings);
        log_slow(&slow);
    }
}

/// The probe of a turn in which the clock is read.
impl Probe for Recorder {
    fn polls_begin(&self) {
        self.lap();
    }

    fn task_taken(&self) {
        let last = self.last.get();
        let woken = self.wakes.borrow_mut().take();
        if let Some(woken) = woken {
            self.timings.borrow_mut().wake_to_poll.record(last.saturating_sub(woken));
        }
        // For the tasks that this poll wakes.
        self.note_wakes(last);
    }

    fn polled(&self, spawned_at: Option<&'static Location<'static>>) {
        let took = self.lap();
        self.timings.borrow_mut().poll.record(took);
        let ended = self.last.get();
        self.record(What::Poll(spawned_at), ended.saturating_sub(took), ended);
        if self.slow_poll.is_some_and(|limit| took >= limit) {
            self.slow(spawned_at, took);
        }
    }

    fn polls_end(&self) {
        self.note_wakes(self.last.get());
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Notes a slow poll in the log, if there is one.
fn log_slow(slow: &SlowPoll) {
    #[cfg(feature = "tracing")]
    crate::unwind::contained(|| {
        tracing::warn!(target: "annulus", took = ?slow.took, "{slow}");
    });
    _ = slow;
}
