//! Virtual time: the clock and the scheduled events. Time passes only in calls to the kernel.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A time in nanoseconds since the start of the simulation.
pub(crate) type Nanos = u64;

/// The clock and the scheduled events. Events at the same time happen in the order they were
/// scheduled.
pub(crate) struct Timeline<E> {
    now: Nanos,
    scheduled: u64,
    ahead: BinaryHeap<ScheduledEvent<E>>,
}

struct ScheduledEvent<E> {
    at: Nanos,
    order: u64,
    event: E,
}

impl<E> Timeline<E> {
    pub(crate) fn new() -> Self {
        Self { now: 0, scheduled: 0, ahead: BinaryHeap::new() }
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    #[inline]
    pub(crate) fn schedule(&mut self, at: Nanos, event: E) {
        self.scheduled += 1;
        self.ahead.push(ScheduledEvent { at: at.max(self.now), order: self.scheduled, event });
    }

    /// Returns when the next event is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.ahead.peek().map(|due| due.at)
    }

    /// Removes and returns the next event, if it is due.
    #[inline]
    pub(crate) fn pop_due(&mut self) -> Option<E> {
        if self.next()? > self.now {
            return None;
        }
        self.ahead.pop().map(|due| due.event)
    }

    /// Advances the clock; never moves it back.
    #[inline]
    pub(crate) fn advance_to(&mut self, at: Nanos) {
        self.now = self.now.max(at);
    }
}

impl<E> PartialEq for ScheduledEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for ScheduledEvent<E> {}

impl<E> PartialOrd for ScheduledEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for ScheduledEvent<E> {
    /// Reversed, because the heap pops the greatest element and the earliest event must come first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Converts a duration to nanoseconds, at most 584 years.
#[inline]
pub(crate) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_by_scheduling() {
        let mut time = Timeline::new();
        for (at, name) in [(5, "late"), (1, "first"), (3, "tie 1"), (3, "tie 2")] {
            time.schedule(at, name);
        }
        assert_eq!((time.pop_due(), time.next()), (None, Some(1)));
        time.advance_to(3);
        let due: Vec<_> = std::iter::from_fn(|| time.pop_due()).collect();
        assert_eq!(due, ["first", "tie 1", "tie 2"]);
    }

    #[test]
    fn time_never_goes_back() {
        let mut time = Timeline::new();
        time.advance_to(10);
        time.advance_to(4);
        time.schedule(2, ());
        assert_eq!((time.now(), time.next()), (10, Some(10)));
    }
}
