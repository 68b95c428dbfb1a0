//! Wait queues to check again: something was available, and not all waiters were notified. The notified ones may be forgotten futures
//! (see `waiters`).

use annulus_driver::SlotId;
use std::rc::Weak;
use std::task::Waker;

/// Queues to check once the tasks that were woken have run.
///
/// A task that is woken while tasks run, or by an event of this turn, runs before the next turn. So what was pushed before the end
/// of a turn is due in the next.
#[derive(Debug)]
pub(crate) struct Rechecks<T> {
    list: Vec<T>,
    /// How many of them, from the first, are due.
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

    /// Takes out the entries that are due.
    pub(crate) fn take_due(&mut self) -> Vec<T> {
        self.list.drain(..std::mem::take(&mut self.due)).collect()
    }

    /// A turn ends.
    #[inline]
    pub(crate) fn age(&mut self) {
        self.due = self.list.len();
    }
}

/// A wait queue.
pub(crate) enum Recheck {
    /// The queue of accepts of a listener.
    Accept(SlotId),
    /// The queue of receives of a datagram socket.
    Receive(SlotId),
    /// The queue of a file's cursor.
    Queue(Weak<dyn RecheckQueue>),
}

/// An object with a wait queue of its own.
pub(crate) trait RecheckQueue {
    /// Notifies the next waiters of the items that the first have not taken. True if it has to be checked again.
    fn recheck(&self, wakes: &mut Vec<Waker>) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_due_after_the_turn() {
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
