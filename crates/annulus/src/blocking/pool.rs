//! The threads of a pool, and the calls that wait for them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A call, as the threads see it.
pub(super) trait Job: Send + Sync {
    /// Makes the call, unless it was given up. Never panics.
    fn run(&self);

    /// Fails the call, because the pool has ended.
    fn refuse(&self);
}

/// Settings of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of threads at once.
    pub(crate) threads: usize,
    /// How long a thread waits for its next call.
    pub(crate) keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { threads: 512, keep_alive: Duration::from_secs(10) }
    }
}

/// The threads of one runtime.
#[derive(Clone)]
pub(crate) struct Pool(Arc<PoolShared>);

struct PoolShared {
    limits: Limits,
    state: Mutex<PoolState>,
    /// Signalled when there is a call to make, or when the pool is closed.
    work: Condvar,
    /// Signalled when a thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct PoolState {
    /// Waiting calls by number; the lowest is made first.
    queue: BTreeMap<u64, Arc<dyn Job>>,
    /// The number of the next call.
    next: u64,
    /// Number of threads that have been started and have not ended.
    threads: usize,
    /// Number of threads that look for a call, or are about to.
    idle: usize,
    /// The runtime has ended: calls are refused, and threads end.
    closed: bool,
}

impl Pool {
    /// Creates a pool without threads.
    pub(crate) fn new(limits: Limits) -> Self {
        let (state, work, ended) = (Mutex::default(), Condvar::new(), Condvar::new());
        Self(Arc::new(PoolShared { limits, state, work, ended }))
    }

    /// Queues a call. Returns its number.
    ///
    /// # Errors
    /// Fails once the pool is closed, or if there is no thread and none can be started.
    pub(super) fn submit(&self, job: Arc<dyn Job>) -> io::Result<u64> {
        let mut state = self.0.state();
        if state.closed {
            return Err(ended());
        }
        // Existing threads will make this call too.
        if state.queue.len() >= state.idle
            && let Some(Err(error)) = self.add_thread(&mut state)
            && state.threads == 0
        {
            return Err(no_thread(&error));
        }
        let number = state.next;
        state.next += 1;
        state.queue.insert(number, job);
        drop(state);
        self.0.work.notify_one();
        Ok(number)
    }

    /// Removes a call from the queue, if it is still there.
    pub(super) fn withdraw(&self, number: u64) {
        let job = self.0.state().queue.remove(&number);
        drop(job);
    }

    /// Ends the threads that are not in a call, and refuses waiting calls and any later ones.
    pub(crate) fn close(&self) {
        let mut state = self.0.state();
        state.closed = true;
        let refused = std::mem::take(&mut state.queue);
        drop(state);
        self.0.work.notify_all();
        refused.into_values().for_each(|job| job.refuse());
    }

    /// Waits at most `limit` until all threads have ended. A thread that is still in a call
    /// continues without its runtime.
    pub(crate) fn wait(&self, limit: Duration) {
        let state = self.0.state();
        let outcome = self.0.ended.wait_timeout_while(state, limit, |state| state.threads > 0);
        drop(outcome);
    }

    /// Starts a thread, unless the limit has been reached.
    fn add_thread(&self, state: &mut PoolState) -> Option<io::Result<()>> {
        if state.threads >= self.0.limits.threads {
            return None;
        }
        let shared = self.0.clone();
        let thread = thread::Builder::new().name("annulus-blocking".into());
        let started = thread.spawn(move || shared.run_jobs()).map(drop);
        if started.is_ok() {
            state.threads += 1;
            state.idle += 1;
        }
        Some(started)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        write!(f, "Pool({} threads, {} calls waiting)", state.threads, state.queue.len())
    }
}

impl PoolShared {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of a thread. The thread counts as idle when it starts.
    fn run_jobs(&self) {
        let mut state = self.state();
        loop {
            if let Some((_, job)) = state.queue.pop_first() {
                state.idle -= 1;
                drop(state);
                job.run();
                drop(job);
                state = self.state();
                state.idle += 1;
                continue;
            }
            if state.closed {
                break;
            }
            let waits = |state: &mut PoolState| state.queue.is_empty() && !state.closed;
            let waited = self.work.wait_timeout_while(state, self.limits.keep_alive, waits);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() {
                break;
            }
        }
        state.idle -= 1;
        state.threads -= 1;
        drop(state);
        self.ended.notify_all();
    }
}

pub(super) fn ended() -> io::Error {
    io::Error::other("the runtime has ended, and blocking calls that had not begun were cancelled")
}

fn no_thread(error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "cannot start a thread for a blocking call: {error}; raise the limit on threads (`ulimit -u`, or pids.max of the \
         control group)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Signals that it is running, then waits for permission to end.
    struct HeldJob(Mutex<(Sender<()>, Receiver<()>)>);

    impl Job for HeldJob {
        fn run(&self) {
            let held = self.0.lock().unwrap();
            held.0.send(()).unwrap();
            held.1.recv().unwrap();
        }

        fn refuse(&self) {}
    }

    fn held() -> (Arc<HeldJob>, Receiver<()>, Sender<()>) {
        let ((begin, begun), (leave, left)) = (channel(), channel());
        (Arc::new(HeldJob(Mutex::new((begin, left)))), begun, leave)
    }

    fn pool(threads: usize, keep_alive: Duration) -> Pool {
        Pool::new(Limits { threads, keep_alive })
    }

    #[test]
    fn threads_start_only_when_calls_need_them() {
        let pool = pool(3, Duration::from_secs(1000));
        assert_eq!(pool.0.state().threads, 0);
        for calls in [1, 2, 2] {
            let held: Vec<_> = (0..calls).map(|_| held()).collect();
            for (job, ..) in &held {
                pool.submit(job.clone()).unwrap();
            }
            held.iter().for_each(|(_, begun, _)| begun.recv().unwrap());
            assert_eq!(pool.0.state().threads, calls);
            held.iter().for_each(|(.., leave)| leave.send(()).unwrap());
            while pool.0.state().idle < calls {
                thread::yield_now();
            }
        }
        pool.close();
        pool.wait(Duration::from_secs(1000));
        assert_eq!(pool.0.state().threads, 0);
    }

    #[test]
    fn idle_threads_end() {
        let pool = pool(3, Duration::ZERO);
        let (job, begun, leave) = held();
        pool.submit(job).unwrap();
        begun.recv().unwrap();
        leave.send(()).unwrap();
        pool.wait(Duration::from_secs(1000));
        let state = pool.0.state();
        assert_eq!((state.threads, state.idle), (0, 0));
    }
}
