//! A set of tasks whose results are taken as they finish.

use crate::blocking::AtEnd;
use crate::runtime::current;
use crate::runtime::spawn::{offload, result_of, spawn_at};
use crate::tasks::budget;
use crate::tasks::{AbortHandle, JoinError, JoinHandle};
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::renew;
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem::take;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A set of tasks with results of one type, returned in the order in which the tasks finish. The
/// cost per task hardly grows with the number of tasks.
///
/// Dropping the set aborts the tasks that are still in it.
///
/// ```
/// # annulus::run(async {
/// use annulus::task::JoinSet;
///
/// let mut set = JoinSet::new();
/// for number in 0..100 {
///     set.spawn(async move { number * number });
/// }
/// let mut sum = 0;
/// while let Some(square) = set.join_next().await {
///     sum += square.unwrap();
/// }
/// assert_eq!(sum, 328_350);
/// # });
/// ```
pub struct JoinSet<T> {
    /// Tasks whose results have not been taken, in the order in which they were spawned.
    tasks: BTreeMap<u64, JoinHandle<T>>,
    finished: Rc<Finished>,
    next: u64,
}

/// Reports from the tasks of a set.
#[derive(Default)]
struct Finished {
    /// Numbers of tasks that have finished, or whose future was dropped.
    tasks: RefCell<VecDeque<u64>>,
    /// The waker of the task that waits for the next report.
    waiter: RefCell<Option<Waker>>,
}

impl<T> JoinSet<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self { tasks: BTreeMap::new(), finished: Rc::default(), next: 0 }
    }

    /// Returns the number of tasks whose results have not been taken.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Spawns a task on the current runtime, as [`spawn`](crate::spawn) does. It starts in the next
    /// turn, whether or not this set is polled.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn(&mut self, future: impl Future<Output = T> + 'static) -> AbortHandle {
        let number = self.next;
        self.next += 1;
        let report = Report { number, finished: self.finished.clone() };
        let task = spawn_at(Guarded::new(future, report), Location::caller());
        let aborts = task.abort_handle();
        self.tasks.insert(number, task);
        aborts
    }

    /// Makes a blocking call, as [`spawn_blocking`](crate::task::spawn_blocking) does.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, call: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let core = current::expect("JoinSet::spawn_blocking");
        self.spawn(result_of(offload(&core, AtEnd::Waits, call)))
    }

    /// Returns the result of the next task that finishes, or `None` at once if the set is empty.
    /// Cancel-safe. A `select!` in a loop must check for an empty set, otherwise it spins.
    ///
    /// # Errors
    /// [`JoinError`] if the task panicked or was aborted.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// Polls for the next result, like [`join_next`](Self::join_next).
    ///
    /// # Errors
    /// The errors of [`join_next`](Self::join_next).
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        budget::poll_with(cx, || {
            if self.is_empty() {
                return Poll::Ready(None);
            }
            match self.try_join_next() {
                Some(result) => Poll::Ready(Some(result)),
                None => self.poll_forked(cx).map(Some),
            }
        })
    }

    /// Waits until a task reports to the set. In a forked child, where the tasks of the parent do
    /// not run, returns the error of the first one instead.
    fn poll_forked(&mut self, cx: &Context<'_>) -> Poll<Result<T, JoinError>> {
        let first = self.tasks.first_entry().filter(|first| first.get().is_in_forked_child());
        let Some(mut first) = first else { return self.finished.poll_wait(cx) };
        let cx = &mut Context::from_waker(cx.waker());
        let polled = budget::poll_free(|| Pin::new(first.get_mut()).poll(cx));
        if polled.is_ready() {
            first.remove();
        }
        polled
    }

    /// Returns the result of a task that has already finished, if any.
    ///
    /// # Errors
    /// The errors of [`join_next`](Self::join_next).
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        loop {
            let number = self.finished.pop()?;
            let Entry::Occupied(mut task) = self.tasks.entry(number) else { continue };
            if !task.get().is_finished() {
                // The task's future is being dropped, and the result becomes available right after
                // the drop.
                self.finished.tasks.borrow_mut().push_front(number);
                return None;
            }
            let cx = &mut Context::from_waker(Waker::noop());
            let polled = budget::poll_free(|| Pin::new(task.get_mut()).poll(cx));
            let Poll::Ready(result) = polled else {
                unreachable!("a finished task is still pending")
            };
            task.remove();
            return Some(result);
        }
    }

    /// Returns the results of all tasks, in the order in which they finish.
    ///
    /// # Panics
    /// If a task panicked (with the same payload) or was aborted. The other tasks are then aborted.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut results = Vec::with_capacity(self.len());
        while let Some(result) = self.join_next().await {
            match result.map_err(JoinError::try_into_panic) {
                Ok(value) => results.push(value),
                Err(Ok(payload)) => std::panic::resume_unwind(payload),
                Err(Err(aborted)) => panic!("a task of a JoinSet has no result: {aborted}"),
            }
        }
        results
    }

    /// Aborts all tasks. They stay in the set: [`join_next`](Self::join_next) returns a result or
    /// an error for each.
    pub fn abort_all(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }

    /// Aborts all tasks, waits until their futures have been dropped, and discards their results.
    /// If this future is dropped, the remaining tasks stay in the set, aborted.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while let Some(result) = self.join_next().await {
            dispose_each([result]);
        }
    }

    /// Empties the set. Its tasks continue, detached.
    pub fn detach_all(&mut self) {
        dispose_each(take(&mut self.tasks).into_values());
        self.finished = Rc::default();
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
        // Drops the results one by one, because each drop may panic.
        self.detach_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinSet({} tasks)", self.len())
    }
}

impl<T, F: Future<Output = T> + 'static> FromIterator<F> for JoinSet<T> {
    /// Spawns a task for each future.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        for future in futures {
            set.spawn(future);
        }
        set
    }
}

impl Finished {
    fn pop(&self) -> Option<u64> {
        self.tasks.borrow_mut().pop_front()
    }

    /// Waits until a task reports to the set.
    fn poll_wait<R>(&self, cx: &Context<'_>) -> Poll<R> {
        let stale = renew(&mut self.waiter.borrow_mut(), cx.waker());
        dispose_each(stale);
        // A report can be present only if a task is being dropped right now, or if cloning the
        // waker has ended a task.
        if !self.tasks.borrow().is_empty() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn push(&self, number: u64) {
        self.tasks.borrow_mut().push_back(number);
        let waiter = self.waiter.borrow_mut().take();
        wake_each(waiter);
    }
}

/// A guard of a task. Dropping it tells the set that the task's future has ended.
struct Report {
    number: u64,
    finished: Rc<Finished>,
}

impl Drop for Report {
    fn drop(&mut self) {
        self.finished.push(self.number);
    }
}

pin_project! {
    /// A task's future and a guard. The guard is dropped after the future, so its drop shows that
    /// the future has ended.
    struct Guarded<F, G> {
        #[pin]
        future: F,
        _guard: G,
    }
}

impl<F, G> Guarded<F, G> {
    fn new(future: F, guard: G) -> Self {
        Self { future, _guard: guard }
    }
}

impl<F: Future, G> Future for Guarded<F, G> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}
