//! The registry of connections and the rules for closing them, shared by tasks and threads.
//!
//! Connections have no timers. Each connection counts its activity, and a periodic sweep finds
//! connections that have been inactive for the idle timeout or, during a shutdown, for
//! `QUIESCENT_AFTER`. The sweep asks an inactive connection to send its remaining replies and
//! close. If the connection does not close in time, a later sweep aborts it.

use super::stats::Counts;
use annulus_load::clock;
use annulus_load::idle::{self, IdleTracker};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// After a signal, a connection without activity for this long is assumed to have nothing in
/// flight. The time is longer than a usual round trip.
const QUIESCENT_AFTER: Duration = Duration::from_millis(250);
/// Busy connections are also asked to close this long before the end of the shutdown timeout, or in
/// its last quarter if that is shorter.
const CLOSE_ALL_BEFORE_END: Duration = Duration::from_millis(100);
/// How long an idle connection may take to close after the request, unless the idle timeout is
/// shorter.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval between sweeps during a shutdown.
pub(super) const SHUTDOWN_INTERVAL: Duration = Duration::from_millis(10);

pub(super) trait Connection: Clone {
    fn traffic(&self) -> &Traffic;
    /// Returns true if received bytes have not been sent yet.
    fn is_busy(&self) -> bool {
        self.traffic().is_unanswered()
    }
    /// Makes the connection echo everything it has received, and close.
    fn request_close(&self);
    /// Ends the connection at once.
    fn abort(&self);
}

/// Counters of what a connection has received and answered. Only one thread writes them, so a load
/// followed by a store is enough.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    received: AtomicU64,
    answered: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    pub(super) fn received(&self, bytes: usize) {
        add(&self.received, 1);
        add(&self.bytes, bytes as u64);
    }

    pub(super) fn answered(&self) {
        add(&self.answered, 1);
    }

    /// Returns true if a receive has not been answered yet.
    pub(super) fn is_unanswered(&self) -> bool {
        self.received.load(Ordering::Relaxed) != self.answered.load(Ordering::Relaxed)
    }

    /// Returns a number that changes with any activity.
    fn changes(&self) -> u64 {
        self.received.load(Ordering::Relaxed) + self.answered.load(Ordering::Relaxed)
    }

    fn counts(&self) -> Counts {
        let [messages, bytes] = [&self.received, &self.bytes].map(|n| n.load(Ordering::Relaxed));
        Counts { connections: 1, messages, bytes, refused: 0 }
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// All open connections, and the totals of the closed ones.
pub(super) struct Registry<G> {
    /// Connections by number. Numbers are reused. A vector uses less memory than a map.
    entries: Vec<Option<Entry<G>>>,
    free: Vec<usize>,
    removed: Counts,
}

struct Entry<G> {
    connection: G,
    idle: IdleTracker,
    closing: bool,
}

/// An action on a connection. The caller runs it after it has released the registry.
pub(super) type Action<G> = (G, fn(&G));

/// The reason for a sweep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sweep {
    /// Closes connections without activity for this long.
    Idle(Duration),
    /// Closes all connections: a signal arrived `elapsed` ago, and none may stay open past
    /// `timeout`.
    ShuttingDown { elapsed: Duration, timeout: Duration },
}

impl<G: Connection> Registry<G> {
    pub(super) fn new() -> Registry<G> {
        Registry { entries: Vec::new(), free: Vec::new(), removed: Counts::default() }
    }

    /// Adds a connection; returns the number for [`Registry::remove`].
    pub(super) fn insert(&mut self, connection: G) -> usize {
        let idle = IdleTracker::new(connection.traffic().changes(), clock::now());
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[number] = Some(Entry { connection, idle, closing: false });
        number
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(entry) = self.entries[number].take() {
            self.removed += entry.connection.traffic().counts();
            self.free.push(number);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns the counts of all connections, open or closed.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.removed;
        self.entries
            .iter()
            .flatten()
            .for_each(|entry| counts += entry.connection.traffic().counts());
        counts
    }

    /// Returns the actions that are due now, and marks the connections that are asked to close.
    pub(super) fn sweep(&mut self, why: Sweep) -> Vec<Action<G>> {
        let now = clock::now();
        self.entries.iter_mut().flatten().filter_map(|entry| entry.due_action(why, now)).collect()
    }
}

impl<G: Connection> Entry<G> {
    fn due_action(&mut self, why: Sweep, now: Duration) -> Option<Action<G>> {
        let idle = self.idle.idle_for(self.connection.traffic().changes(), now);
        let due = why.is_last()
            || idle >= why.limit(self.closing)
                && !(why.keeps_busy_connections() && self.connection.is_busy());
        if due && (self.closing || why.is_last()) {
            return Some((self.connection.clone(), G::abort));
        }
        if due || !self.closing && why.closes_busy_connections() {
            self.closing = true;
            self.idle = IdleTracker::new(self.connection.traffic().changes(), now);
            return Some((self.connection.clone(), G::request_close));
        }
        None
    }
}

impl Sweep {
    /// Returns the interval between sweeps of this kind.
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

    /// Returns true during a shutdown: a connection with bytes to send may then stay open until
    /// shortly before the end of the timeout.
    fn keeps_busy_connections(self) -> bool {
        matches!(self, Sweep::ShuttingDown { .. })
    }

    /// Returns true shortly before the end of the timeout. Busy connections are then asked to
    /// close, so that they end after a complete reply.
    fn closes_busy_connections(self) -> bool {
        matches!(self, Sweep::ShuttingDown { elapsed, timeout } if elapsed >= timeout - (timeout / 4).min(CLOSE_ALL_BEFORE_END))
    }

    /// Returns true once the timeout is over.
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
    struct FakeConnection {
        traffic: Traffic,
        closing: Cell<u32>,
        aborts: Cell<u32>,
    }

    impl Connection for Rc<FakeConnection> {
        fn traffic(&self) -> &Traffic {
            &self.traffic
        }
        fn request_close(&self) {
            self.closing.set(self.closing.get() + 1);
        }
        fn abort(&self) {
            self.aborts.set(self.aborts.get() + 1);
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn entry(connection: &Rc<FakeConnection>) -> Entry<Rc<FakeConnection>> {
        Entry {
            connection: Rc::clone(connection),
            idle: IdleTracker::new(connection.traffic.changes(), Duration::ZERO),
            closing: false,
        }
    }

    /// Sweeps once at `now`. Returns the number of requests to close the connection, and of aborts,
    /// so far.
    fn sweep(entry: &mut Entry<Rc<FakeConnection>>, why: Sweep, now: Duration) -> (u32, u32) {
        if let Some((connection, act)) = entry.due_action(why, now) {
            act(&connection);
        }
        (entry.connection.closing.get(), entry.connection.aborts.get())
    }

    #[test]
    fn idle_connections_are_requested_to_close_and_then_aborted() {
        let connection = Rc::new(FakeConnection::default());
        let mut entry = entry(&connection);
        let why = Sweep::Idle(3 * SECOND);
        assert_eq!(sweep(&mut entry, why, 2 * SECOND), (0, 0));
        assert_eq!(sweep(&mut entry, why, 3 * SECOND), (1, 0));
        assert_eq!(sweep(&mut entry, why, 3 * SECOND + CLOSE_TIMEOUT / 2), (1, 0));
        assert_eq!(sweep(&mut entry, why, 3 * SECOND + CLOSE_TIMEOUT), (1, 1));
    }

    #[test]
    fn an_active_connection_stays_open() {
        let connection = Rc::new(FakeConnection::default());
        let mut entry = entry(&connection);
        for second in 1..10 {
            connection.traffic.received(1);
            assert_eq!(sweep(&mut entry, Sweep::Idle(2 * SECOND), second * SECOND), (0, 0));
        }
    }

    #[test]
    fn after_a_signal_busy_connections_may_take_the_whole_timeout() {
        let connection = Rc::new(FakeConnection::default());
        connection.traffic.received(1);
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
    fn after_a_signal_idle_connections_close_at_once() {
        let connection = Rc::new(FakeConnection::default());
        let mut entry = entry(&connection);
        let at = |elapsed| Sweep::ShuttingDown { elapsed, timeout: 4 * SECOND };
        assert_eq!(sweep(&mut entry, at(QUIESCENT_AFTER), QUIESCENT_AFTER), (1, 0));
        assert_eq!(sweep(&mut entry, at(QUIESCENT_AFTER * 2), QUIESCENT_AFTER * 2), (1, 1));
    }

    #[test]
    fn without_a_timeout_all_connections_are_aborted() {
        let connection = Rc::new(FakeConnection::default());
        let mut entry = entry(&connection);
        let why = Sweep::ShuttingDown { elapsed: Duration::ZERO, timeout: Duration::ZERO };
        assert_eq!(sweep(&mut entry, why, Duration::ZERO), (0, 1));
    }

    #[test]
    fn the_counts_include_removed_connections() {
        let mut registry = Registry::new();
        let (one, two) = (Rc::new(FakeConnection::default()), Rc::new(FakeConnection::default()));
        let first = registry.insert(Rc::clone(&one));
        registry.insert(Rc::clone(&two));
        (0..3).for_each(|_| one.traffic.received(2));
        (0..4).for_each(|_| two.traffic.received(1));
        registry.remove(first);
        assert_eq!(registry.count(), 1);
        assert_eq!(
            registry.counts(),
            Counts { connections: 2, messages: 7, bytes: 10, refused: 0 }
        );
        assert_eq!(registry.insert(one), first);
        assert_eq!(registry.count(), 2);
    }
}
