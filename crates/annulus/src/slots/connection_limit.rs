//! A limit on open connections, which listeners may share.

use crate::unwind::wake_each;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// A limit on the number of accepted connections that are open at once. Any number of listeners, on
/// any threads, can share it.
///
/// A listener with a limit accepts a connection only while a task waits for one and the limit is
/// not reached. Other connections stay in the kernel's backlog. The listener accepts one connection
/// at a time, which costs one extra turn per connection.
///
/// A connection counts from just before it is accepted until its descriptor is closed, including
/// while it is in transit to another shard. It stops counting earlier if its descriptor leaves the
/// runtime for good: through `into_std`, or when the socket is taken out of its
/// [`Parts`](crate::net::Parts).
///
/// Clones share the limit.
///
/// One limit for two ports:
///
/// ```
/// use annulus::net::{ConnectionLimit, ListenOptions, TcpStream};
///
/// # annulus::run(async {
/// let limit = ConnectionLimit::new(1000);
/// let options = ListenOptions::new().limit(&limit);
/// let plain = options.bind("127.0.0.1:0")?;
/// let admin = options.bind("127.0.0.1:0")?;
/// let _client = TcpStream::connect(plain.local_addr()?).await?;
/// let (stream, _peer) = plain.accept().await?;
/// assert_eq!((limit.open(), limit.max()), (1, 1000));
/// # drop((admin, stream));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ConnectionLimit(Arc<SharedLimit>);

struct SharedLimit {
    max: usize,
    state: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    open: usize,
    /// Tasks to wake when a connection closes.
    waiting: Vec<WaitingTask>,
    /// The id of the next listener.
    next_listener: u64,
}

struct WaitingTask {
    /// The listener whose accept the task awaits.
    listener: u64,
    waker: Waker,
}

/// A listener that observes a limit.
pub(crate) struct LimitedListener {
    limit: ConnectionLimit,
    id: u64,
}

/// Counts one connection against a limit until the permit is released or dropped. The default
/// permit counts against no limit.
#[derive(Default)]
pub(crate) struct Permit(Option<Arc<SharedLimit>>);

impl ConnectionLimit {
    /// Creates a limit of `max` open connections. With 0, no connection is accepted.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(SharedLimit { max, state: Mutex::default() }))
    }

    /// Returns the maximum number of open connections.
    pub fn max(&self) -> usize {
        self.0.max
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.0.state().open
    }

    /// Adds a listener that observes the limit.
    pub(crate) fn add_listener(&self) -> LimitedListener {
        let mut state = self.0.state();
        state.next_listener += 1;
        LimitedListener { limit: self.clone(), id: state.next_listener }
    }
}

impl LimitedListener {
    /// Returns a permit. If the limit is reached, takes the waker out of `task` instead, and wakes
    /// it once a connection has closed. A waker that is already waiting stays in `task`, so that it
    /// is not dropped while the lock is held.
    pub(crate) fn take(&self, task: &mut Option<Waker>) -> Option<Permit> {
        let (shared, listener) = (&self.limit.0, self.id);
        let mut state = shared.state();
        if state.open < shared.max {
            state.open += 1;
            return Some(Permit(Some(shared.clone())));
        }
        let mut of_listener = state.waiting.iter().filter(|waiting| waiting.listener == listener);
        let new = task.take_if(|task| !of_listener.any(|waiting| waiting.waker.will_wake(task)));
        state.waiting.extend(new.map(|waker| WaitingTask { listener, waker }));
        None
    }

    /// If the limit would wake more than `max` tasks for this listener, makes it forget them, and
    /// returns their wakers: most of these tasks have stopped waiting. The caller wakes those that
    /// still wait, so that they poll again.
    pub(crate) fn forget_above(&self, max: usize) -> Vec<Waker> {
        let mut state = self.limit.0.state();
        let count = state.waiting.iter().filter(|waiting| waiting.listener == self.id).count();
        if count <= max {
            return Vec::new();
        }
        let forgotten = state.waiting.extract_if(.., |waiting| waiting.listener == self.id);
        forgotten.map(|waiting| waiting.waker).collect()
    }
}

impl SharedLimit {
    /// Ignores poisoning: every change is a single step, so the state is consistent even if a
    /// thread panicked while it held the lock.
    fn state(&self) -> MutexGuard<'_, OpenConnections> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops counting one connection. Returns the tasks to wake.
    fn release(&self) -> Vec<Waker> {
        let mut state = self.state();
        state.open -= 1;
        state.waiting.drain(..).map(|waiting| waiting.waker).collect()
    }
}

impl Permit {
    /// Returns `None` for a permit that counts against no limit.
    pub(crate) fn counted(self) -> Option<Self> {
        self.0.is_some().then_some(self)
    }

    /// Releases the permit of a connection that has closed. Returns the tasks that the caller must
    /// wake.
    pub(crate) fn release(mut self) -> Vec<Waker> {
        self.0.take().map(|limit| limit.release()).unwrap_or_default()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(limit) = self.0.take() {
            wake_each(limit.release());
        }
    }
}

impl fmt::Debug for ConnectionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionLimit({} of {})", self.open(), self.max())
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_released_permit_wakes_each_task_once_and_is_available_again() {
        let limit = ConnectionLimit::new(2);
        let woken = Arc::new(Woken::default());
        let task = Waker::from(woken.clone());
        let listener = limit.add_listener();
        let take = || listener.take(&mut Some(task.clone()));
        let (first, second) = (take(), take());
        assert!(first.is_some() && second.is_some());
        assert!(take().is_none() && take().is_none());
        assert_eq!(limit.open(), 2);
        drop(first);
        assert_eq!((woken.0.load(Ordering::Relaxed), limit.open()), (1, 1));
        let third = take();
        assert!(third.is_some() && take().is_none());
        second.unwrap().release().into_iter().for_each(Waker::wake);
        assert_eq!((woken.0.load(Ordering::Relaxed), limit.open()), (2, 1));
        drop(third);
        assert_eq!(limit.open(), 0);
        assert!(ConnectionLimit::new(0).add_listener().take(&mut None).is_none());
    }

    #[test]
    fn tasks_of_one_listener_are_forgotten_without_those_of_another() {
        let limit = ConnectionLimit::new(0);
        let listeners = [limit.add_listener(), limit.add_listener()];
        let woken: Vec<_> = (0..6).map(|_| Arc::new(Woken::default())).collect();
        for (number, woken) in woken.iter().enumerate() {
            assert!(listeners[number % 2].take(&mut Some(woken.clone().into())).is_none());
        }
        assert!(listeners[0].forget_above(3).is_empty());
        assert_eq!(listeners[0].forget_above(2).len(), 3);
        assert!(listeners[0].forget_above(0).is_empty());
        let held = |woken: &Arc<Woken>| Arc::strong_count(woken) > 1;
        assert!(woken.iter().enumerate().all(|(number, woken)| held(woken) == (number % 2 == 1)));
    }
}
