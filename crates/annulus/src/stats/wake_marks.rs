//! Tracks when the tasks in the run queue were woken, without storing a time per task.
//!
//! The queue is first in, first out. So the number of tasks queued up to a reading of the clock
//! tells which tasks were queued later: these were woken after that reading and, if it is the last
//! one before them, not long after.

use std::collections::VecDeque;
use std::time::Duration;

/// A reading of the clock: the number of the next task to be queued, and the time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    next: u64,
    time: Duration,
}

/// The readings that tell when tasks in the queue were woken.
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

    /// Records that the first task was taken from the queue. Returns the last reading before it was
    /// woken, or `None` if the clock was not read then.
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
        // Two tasks were queued at an unknown time.
        marks.note(2, at(10));
        // Two more tasks, then one.
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
