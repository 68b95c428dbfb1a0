//! Threads for calls that block, such as those of `spawn_blocking`, and name lookups.
//!
//! A pool belongs to a runtime. Threads start only when calls need them, and a thread that has had
//! nothing to do for a while ends. Calls above the limit wait for a thread in the order in which
//! they were made. Under a simulated kernel, which has no other threads, polling the future makes
//! the call.

use crate::tasks::{JoinState, Outcome, budget};
use crate::unwind::{Panic, dispose_each};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io, thread};

/// A queued call, without the types of its function and its result.
trait Job: Send + Sync {
    /// Makes the call, unless it was given up. Never panics.
    fn run(&self);

    /// Fails the call, because the pool has been closed.
    fn refuse(&self);

    /// Returns whether the end of the runtime waits for the call once it has begun.
    fn at_end(&self) -> AtEnd;
}

/// How the end of a runtime treats a call that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// It waits for the call, within the shutdown timeout.
    Waits,
    /// It leaves the call alone, because the call has no effect but its result.
    Leaves,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
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
    next: u64,
    /// Number of threads that have been started and have not ended.
    threads: usize,
    /// Number of threads that look for a call, or are about to.
    idle: usize,
    /// Number of threads in calls that the end of the runtime [leaves alone](AtEnd::Leaves).
    left_alone: usize,
    /// Whether the runtime has ended. Then calls are refused, and threads end.
    closed: bool,
}

impl Pool {
    pub(crate) fn new(limits: Limits) -> Self {
        let (state, work, ended) = (Mutex::default(), Condvar::new(), Condvar::new());
        Self(Arc::new(PoolShared { limits, state, work, ended }))
    }

    /// Queues a call. Returns its number.
    ///
    /// # Errors
    /// Fails once the pool is closed, or if there is no thread and none can be started.
    fn submit(&self, job: Arc<dyn Job>) -> io::Result<u64> {
        let mut state = self.0.state();
        if state.closed {
            return Err(ended());
        }
        // If no thread can be started, the existing ones make this call later.
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
    fn withdraw(&self, number: u64) {
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

    /// Waits at most `limit` until all threads have ended, except those in calls that are left
    /// alone. A thread that is still in a call continues without its runtime. The pool is closed.
    pub(crate) fn wait(&self, limit: Duration) {
        let state = self.0.state();
        let waits = |state: &mut PoolState| state.threads > state.left_alone;
        drop(self.0.ended.wait_timeout_while(state, limit, waits));
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
                let left_alone = usize::from(job.at_end() == AtEnd::Leaves);
                state.idle -= 1;
                state.left_alone += left_alone;
                drop(state);
                job.run();
                drop(job);
                state = self.state();
                state.idle += 1;
                state.left_alone -= left_alone;
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

fn ended() -> io::Error {
    io::Error::other("the runtime has ended, and blocking calls that had not begun were cancelled")
}

fn no_thread(error: &io::Error) -> io::Error {
    io::Error::other(format!(
        "cannot start a thread for a blocking call: {error}; raise the limit on threads (`ulimit -u`, or pids.max of the \
         control group)"
    ))
}

/// The future of a blocking call. It returns the call's result or its panic. If it is dropped
/// before the call has begun, the call is not made. If it is dropped while the call runs, the
/// thread drops the result.
///
/// It returns an error if no thread can be started, or if the pool has been closed.
pub(crate) struct BlockingCall<F, T>(CallRoute<F, T>);

enum CallRoute<F, T> {
    Pooled {
        pool: Pool,
        number: u64,
        shared: Arc<SharedCall<F, T>>,
    },
    /// The first poll makes the call.
    Inline(Option<F>),
    Refused(Option<io::Error>),
}

/// What the pool and the future of a call share.
struct SharedCall<F, T> {
    /// Taken by the thread that makes the call, or when the call is given up or refused.
    call: Mutex<Option<F>>,
    /// No outcome means that the pool was closed before the call.
    outcome: JoinState<T>,
    at_end: AtEnd,
}

impl<F, T> BlockingCall<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    pub(crate) fn new(pool: &Pool, at_end: AtEnd, call: F) -> Self {
        let (call, outcome) = (Mutex::new(Some(call)), JoinState::new());
        let shared = Arc::new(SharedCall { call, outcome, at_end });
        Self(match pool.submit(shared.clone()) {
            Ok(number) => CallRoute::Pooled { pool: pool.clone(), number, shared },
            Err(error) => CallRoute::Refused(Some(error)),
        })
    }

    /// Creates a call that is made when it is polled.
    pub(crate) fn inline(call: F) -> Self {
        Self(CallRoute::Inline(Some(call)))
    }
}

// No field is pinned.
impl<F, T> Unpin for BlockingCall<F, T> {}

impl<F: FnOnce() -> T, T> Future for BlockingCall<F, T> {
    type Output = io::Result<Result<T, Panic>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const POLLED_AFTER_READY: &str = "polled after it was ready";
        budget::poll_with(cx, || match &mut self.0 {
            CallRoute::Pooled { shared, .. } => {
                let outcome = shared.outcome.poll(cx);
                outcome.map(|outcome| outcome.and_then(Outcome::take).ok_or_else(ended))
            }
            CallRoute::Inline(call) => {
                let call = call.take().expect(POLLED_AFTER_READY);
                Poll::Ready(Ok(catch_unwind(AssertUnwindSafe(call))))
            }
            CallRoute::Refused(error) => Poll::Ready(Err(error.take().expect(POLLED_AFTER_READY))),
        })
    }
}

impl<F, T> Drop for BlockingCall<F, T> {
    fn drop(&mut self) {
        if let CallRoute::Pooled { pool, number, shared } = &self.0 {
            pool.withdraw(*number);
            dispose_each(shared.take_call());
            drop(shared.outcome.detach());
        }
    }
}

impl<F, T> SharedCall<F, T> {
    fn take_call(&self) -> Option<F> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<F: FnOnce() -> T + Send, T: Send> Job for SharedCall<F, T> {
    fn run(&self) {
        if let Some(call) = self.take_call() {
            let result = catch_unwind(AssertUnwindSafe(call));
            drop(self.outcome.complete(Some(Outcome::new(result))));
        }
    }

    fn refuse(&self) {
        dispose_each(self.take_call());
        self.outcome.complete(None);
    }

    fn at_end(&self) -> AtEnd {
        self.at_end
    }
}

#[derive(Clone, Default)]
pub(crate) enum Resolver {
    /// The system's resolver, with its files and servers.
    #[default]
    System,
    Given(Arc<Lookup>),
    /// For a simulated network, because the machine's answers could differ between runs.
    Simulated,
}

pub(crate) type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Resolver {
    /// Returns the addresses of a host, with this port. Blocks the thread.
    pub(crate) fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let with_port = |addresses: Vec<IpAddr>| {
            addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()
        };
        match self {
            Self::System => (host, port).to_socket_addrs().map(Vec::from_iter),
            Self::Given(lookup) => lookup(host).map(with_port),
            Self::Simulated if host == "localhost" => {
                Ok(with_port(vec![Ipv4Addr::LOCALHOST.into()]))
            }
            Self::Simulated => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "a simulated network only knows the name localhost; set a resolver with `Builder::resolver`",
            )),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Blocking {
    pub(crate) pool: Pool,
    pub(crate) resolver: Resolver,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A job that reports that it is running, and then waits for permission to end.
    struct HeldJob(Mutex<(Sender<()>, Receiver<()>)>);

    impl Job for HeldJob {
        fn run(&self) {
            let held = self.0.lock().unwrap();
            held.0.send(()).unwrap();
            held.1.recv().unwrap();
        }

        fn refuse(&self) {}

        fn at_end(&self) -> AtEnd {
            AtEnd::Waits
        }
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
