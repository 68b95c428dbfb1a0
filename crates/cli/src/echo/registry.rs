//! Who is connected, and when he is asked to leave: the same rules for tasks and for threads.
//!
//! No connection has a timer. Each counts what it does, and a sweep looks whose count stands still: past the idle
//! time-out, or after a signal. Who is to go is first asked, and finishes what it has; who then lingers is cut off.

use super::stats::Counts;
use annulus_load::clock;
use annulus_load::idle::{self, IdleTracker};
use std::time::Duration;

/// After a signal, a connection on which nothing moves for this long has nothing in flight: more than a round trip
/// around the world.
const QUIESCENT_AFTER: Duration = Duration::from_millis(250);
/// How long before the grace ends everyone is asked.
const CLOSE_ALL_BEFORE_END: Duration = Duration::from_millis(100);
/// How long a connection may linger once it was asked to leave.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often to look while leaving.
pub(super) const SHUTDOWN_INTERVAL: Duration = Duration::from_millis(10);

/// A connection, as the rules see it.
pub(super) trait Connection: Clone {
    /// Changes whenever bytes move.
    fn changes(&self) -> u64;
    /// Whether there are bytes that were received and not yet sent.
    fn is_busy(&self) -> bool;
    /// What it has done.
    fn counts(&self) -> Counts;
    /// Has it finish what it has received, and close.
    fn request_close(&self);
    /// Ends it now.
    fn abort(&self);
}

/// All connections there are, and what those did that are gone.
pub(super) struct Registry<G> {
    /// By number; a number is given again once its guest has left. A map would take twice the memory.
    entries: Vec<Option<Entry<G>>>,
    free: Vec<usize>,
    removed: Counts,
}

struct Entry<G> {
    connection: G,
    idle: IdleTracker,
    closing: bool,
}

/// What to do to a guest; done by the caller, when it holds no borrow or lock on the register.
pub(super) enum Action<G> {
    Close(G),
    Abort(G),
}

/// Why a sweep is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sweep {
    /// Connections at rest for this long go.
    Idle(Duration),
    /// A signal came this long ago; by the end of the grace everyone must have gone.
    ShuttingDown { elapsed: Duration, timeout: Duration },
}

impl<G: Connection> Registry<G> {
    pub(super) fn new() -> Registry<G> {
        Registry { entries: Vec::new(), free: Vec::new(), removed: Counts::default() }
    }

    /// Lets one in; the number is for [`Registry::remove`].
    pub(super) fn insert(&mut self, connection: G) -> usize {
        let idle = IdleTracker::new(connection.changes(), clock::now());
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[number] = Some(Entry { connection, idle, closing: false });
        number
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(entry) = self.entries[number].take() {
            self.removed += entry.connection.counts();
            self.free.push(number);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// What all of them did.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.removed;
        self.entries.iter().flatten().for_each(|entry| counts += entry.connection.counts());
        counts
    }

    /// Finds out who has to go.
    pub(super) fn sweep(&mut self, why: Sweep) -> Vec<Action<G>> {
        let now = clock::now();
        self.entries.iter_mut().flatten().filter_map(|entry| entry.step(why, now)).collect()
    }
}

impl<G: Connection> Entry<G> {
    fn step(&mut self, why: Sweep, now: Duration) -> Option<Action<G>> {
        let idle = self.idle.idle_for(self.connection.changes(), now);
        let due = why.is_last()
            || idle >= why.limit(self.closing) && !(why.spares_busy() && self.connection.is_busy());
        if due && (self.closing || why.is_last()) {
            return Some(Action::Abort(self.connection.clone()));
        }
        if due || !self.closing && why.closes_all() {
            self.closing = true;
            self.idle = IdleTracker::new(self.connection.changes(), now);
            return Some(Action::Close(self.connection.clone()));
        }
        None
    }
}

impl<G: Connection> Action<G> {
    pub(super) fn run(self) {
        match self {
            Action::Close(connection) => connection.request_close(),
            Action::Abort(connection) => connection.abort(),
        }
    }
}

impl Sweep {
    /// How often to make it.
    pub(super) fn interval(self) -> Duration {
        match self {
            Sweep::Idle(limit) => idle::sweep_interval(limit),
            Sweep::ShuttingDown { .. } => SHUTDOWN_INTERVAL,
        }
    }

    fn limit(self, closing: bool) -> Duration {
        match self {
            Sweep::Idle(limit) if closing => limit.min(CLOSE_TIMEOUT),
            Sweep::Idle(limit) => limit,
            Sweep::ShuttingDown { .. } => QUIESCENT_AFTER,
        }
    }

    /// After a signal, who still has bytes to send may take the whole grace; an idle reader may not.
    fn spares_busy(self) -> bool {
        matches!(self, Sweep::ShuttingDown { .. })
    }

    /// Shortly before the grace ends, those who never rest are asked too, to end after a whole answer.
    fn closes_all(self) -> bool {
        matches!(self, Sweep::ShuttingDown { elapsed, timeout } if elapsed >= timeout - (timeout / 4).min(CLOSE_ALL_BEFORE_END))
    }

    /// The grace is over.
    pub(super) fn is_last(self) -> bool {
        matches!(self, Sweep::ShuttingDown { elapsed, timeout } if elapsed >= timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[derive(Default)]
    struct Fake {
        changes: Cell<u64>,
        busy: Cell<bool>,
        closing: Cell<u32>,
        cut: Cell<u32>,
    }

    impl Connection for Rc<Fake> {
        fn changes(&self) -> u64 {
            self.changes.get()
        }
        fn is_busy(&self) -> bool {
            self.busy.get()
        }
        fn counts(&self) -> Counts {
            Counts { connections: 1, messages: self.changes.get(), bytes: 0, refused: 0 }
        }
        fn request_close(&self) {
            self.closing.set(self.closing.get() + 1);
        }
        fn abort(&self) {
            self.cut.set(self.cut.get() + 1);
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn entry(connection: &Rc<Fake>) -> Entry<Rc<Fake>> {
        Entry {
            connection: Rc::clone(connection),
            idle: IdleTracker::new(0, Duration::ZERO),
            closing: false,
        }
    }

    /// Sweeps once at `now`; returns how often the guest was asked and cut off so far.
    fn sweep(entry: &mut Entry<Rc<Fake>>, why: Sweep, now: Duration) -> (u32, u32) {
        if let Some(step) = entry.step(why, now) {
            step.run();
        }
        (entry.connection.closing.get(), entry.connection.cut.get())
    }

    #[test]
    fn the_idle_are_asked_and_then_cut_off() {
        let connection = Rc::new(Fake::default());
        let mut entry = entry(&connection);
        let why = Sweep::Idle(3 * SECOND);
        assert_eq!(sweep(&mut entry, why, 2 * SECOND), (0, 0));
        assert_eq!(sweep(&mut entry, why, 3 * SECOND), (1, 0));
        assert_eq!(sweep(&mut entry, why, 3 * SECOND + CLOSE_TIMEOUT / 2), (1, 0));
        assert_eq!(sweep(&mut entry, why, 3 * SECOND + CLOSE_TIMEOUT), (1, 1));
    }

    #[test]
    fn who_moves_stays() {
        let connection = Rc::new(Fake::default());
        let mut entry = entry(&connection);
        for second in 1..10 {
            connection.changes.set(connection.changes.get() + 1);
            assert_eq!(sweep(&mut entry, Sweep::Idle(2 * SECOND), second * SECOND), (0, 0));
        }
    }

    #[test]
    fn after_a_signal_the_busy_are_spared_until_the_grace_ends() {
        let connection = Rc::new(Fake::default());
        connection.busy.set(true);
        let mut entry = entry(&connection);
        let at = |elapsed| Sweep::ShuttingDown { elapsed, timeout: 4 * SECOND };
        assert_eq!(sweep(&mut entry, at(SECOND), SECOND), (0, 0));
        assert_eq!(
            sweep(
                &mut entry,
                at(4 * SECOND - CLOSE_ALL_BEFORE_END),
                4 * SECOND - CLOSE_ALL_BEFORE_END
            ),
            (1, 0)
        );
        assert_eq!(sweep(&mut entry, at(4 * SECOND), 4 * SECOND), (1, 1));
    }

    #[test]
    fn after_a_signal_those_at_rest_go_at_once() {
        let connection = Rc::new(Fake::default());
        let mut entry = entry(&connection);
        let at = |elapsed| Sweep::ShuttingDown { elapsed, timeout: 4 * SECOND };
        assert_eq!(sweep(&mut entry, at(QUIESCENT_AFTER), QUIESCENT_AFTER), (1, 0));
        assert_eq!(sweep(&mut entry, at(QUIESCENT_AFTER * 2), QUIESCENT_AFTER * 2), (1, 1));
    }

    #[test]
    fn without_grace_everyone_is_cut_off() {
        let connection = Rc::new(Fake::default());
        let mut entry = entry(&connection);
        let why = Sweep::ShuttingDown { elapsed: Duration::ZERO, timeout: Duration::ZERO };
        assert_eq!(sweep(&mut entry, why, Duration::ZERO), (0, 1));
    }

    #[test]
    fn the_tally_keeps_those_that_left() {
        let mut registry = Registry::new();
        let (one, two) = (Rc::new(Fake::default()), Rc::new(Fake::default()));
        let first = registry.insert(Rc::clone(&one));
        registry.insert(Rc::clone(&two));
        one.changes.set(3);
        two.changes.set(4);
        registry.remove(first);
        assert_eq!(registry.count(), 1);
        assert_eq!(registry.counts(), Counts { connections: 2, messages: 7, bytes: 0, refused: 0 });
        assert_eq!(registry.insert(one), first);
        assert_eq!(registry.count(), 2);
    }
}
