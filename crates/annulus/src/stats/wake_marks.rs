//! When the tasks in the run queue were woken, without a note for each.
//!
//! The queue is first in, first out. So the number of tasks that were ever put in shows at each reading of the clock which tasks come
//! later: those were woken after it, and, if it is the last reading before, not long after.

use std::collections::VecDeque;
use std::time::Duration;

/// A reading of the clock: the number of the next task to be put into the queue, and the time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    next: u64,
    time: Duration,
}

/// The readings that say when tasks in the queue were woken.
#[derive(Debug, Default)]
pub(super) struct WakeMarks {
    marks: VecDeque<Mark>,
    /// Tasks taken out of the queue so far, but for those that were while the clock was not read.
    taken: u64,
}

impl WakeMarks {
    /// With space for this many marks, so that noting them allocates nothing.
    pub(super) fn with_capacity(marks: usize) -> Self {
        Self { marks: VecDeque::with_capacity(marks), taken: 0 }
    }

    /// The clock was read while `queued` tasks waited to run: tasks that are put in from now on were woken after this reading.
    pub(super) fn note(&mut self, queued: usize, time: Duration) {
        let next = self.taken + queued as u64;
        match self.marks.back_mut() {
            // Nothing was put in since the last reading.
            Some(last) if last.next == next => last.time = time,
            _ => self.marks.push_back(Mark { next, time }),
        }
    }

    /// The first task is taken out of the queue. The last reading before it was woken; `None` if the clock was not read then.
    pub(super) fn take(&mut self) -> Option<Duration> {
        let number = self.taken;
        self.taken += 1;
        while self.marks.get(1).is_some_and(|mark| mark.next <= number) {
            self.marks.pop_front();
        }
        self.marks.front().filter(|mark| mark.next <= number).map(|mark| mark.time)
    }

    /// The clock is not read from now on.
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
    fn a_task_was_woken_after_the_last_reading_before_it_was_queued() {
        let mut marks = WakeMarks::default();
        // Two tasks are queued, unknown when.
        marks.note(2, at(10));
        // Two more, then one.
        marks.note(4, at(20));
        marks.note(4, at(25));
        let times: Vec<_> = (0..5).map(|_| marks.take()).collect();
        assert_eq!(times, [None, None, Some(at(10)), Some(at(10)), Some(at(25))]);
    }

    #[test]
    fn tasks_queued_after_a_pause_were_woken_at_an_unknown_time() {
        let mut marks = WakeMarks::default();
        marks.note(0, at(10));
        assert_eq!(marks.take(), Some(at(10)));
        marks.pause();
        assert_eq!(marks.take(), None);
        marks.note(1, at(20));
        assert_eq!((marks.take(), marks.take()), (None, Some(at(20))));
    }
}
