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
    waiting: Vec<Waker>,
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

    /// Returns a permit. If the limit is reached, takes the waker out of `task` instead, and wakes
    /// it once a connection has closed. A waker that is already waiting stays in `task`, so that it
    /// is not dropped while the lock is held.
    pub(crate) fn take(&self, task: &mut Option<Waker>) -> Option<Permit> {
        let mut state = self.0.state();
        if state.open < self.0.max {
            state.open += 1;
            return Some(Permit(Some(self.0.clone())));
        }
        let known = |task: &Waker| state.waiting.iter().any(|waiting| waiting.will_wake(task));
        let new = task.take_if(|task| !known(task));
        state.waiting.extend(new);
        None
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
        std::mem::take(&mut state.waiting)
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
        let take = || limit.take(&mut Some(task.clone()));
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
        assert!(ConnectionLimit::new(0).take(&mut None).is_none());
    }
}
