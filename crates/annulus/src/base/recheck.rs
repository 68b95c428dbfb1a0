//! Wait queues to check again: something was available, and not all waiters were notified. The
//! notified waiters may be futures that are never polled again (see `waiters`).

use annulus_driver::SlotId;
use std::rc::Weak;
use std::task::Waker;

/// Queues to check once the tasks that were woken have run.
///
/// A task that is woken while tasks run, or by an event of this turn, runs before the next turn. So
/// entries that were pushed before the end of a turn are due in the next turn.
#[derive(Debug)]
pub(crate) struct Rechecks<T> {
    list: Vec<T>,
    /// Number of entries at the front that are due.
    due: usize,
}

impl<T> Default for Rechecks<T> {
    fn default() -> Self {
        Self { list: Vec::new(), due: 0 }
    }
}

impl<T> Rechecks<T> {
    #[cold]
    pub(crate) fn push(&mut self, one: T) {
        self.list.push(one);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Removes and returns the entries that are due.
    pub(crate) fn take_due(&mut self) -> Vec<T> {
        self.list.drain(..std::mem::take(&mut self.due)).collect()
    }

    /// Makes all entries due, since a turn ends.
    #[inline]
    pub(crate) fn age(&mut self) {
        self.due = self.list.len();
    }
}

/// A wait queue.
pub(crate) enum Recheck {
    /// The accepts of a listener.
    Accept(SlotId),
    /// The receives of a datagram socket.
    Receive(SlotId),
    /// Any other wait queue, such as the one of a file's cursor.
    Queue(Weak<dyn RecheckQueue>),
}

/// An object with a wait queue of its own.
pub(crate) trait RecheckQueue {
    /// Notifies further waiters of the items that notified ones have not taken. Returns true if the
    /// queue must be checked again.
    fn recheck(&self, wakes: &mut Vec<Waker>) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_due_after_the_turn() {
        let mut rechecks = Rechecks::default();
        rechecks.push("while tasks ran");
        assert!(rechecks.take_due().is_empty() && !rechecks.is_empty());
        rechecks.push("by an event");
        rechecks.age();
        rechecks.push("while the next tasks ran");
        assert_eq!(rechecks.take_due(), ["while tasks ran", "by an event"]);
        rechecks.age();
        assert_eq!(rechecks.take_due(), ["while the next tasks ran"]);
        assert!(rechecks.is_empty());
    }
}
