//! A future that ends when its tasks have.

use crate::runtime::spawn::spawn_at;
use crate::tasks::AbortHandle;
use crate::tasks::JoinHandle;
use crate::tasks::consume_budget;
use crate::tasks::guarded::Guarded;
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::renew;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Runs `body`, then waits until every task that was spawned in its scope has ended, and returns what `body` returned. Tasks of the
/// scope may spawn others in it: a [`Scope`] is cloned freely.
///
/// If this future is dropped, its tasks are aborted. So no task outlives it, unless the future is forgotten (`mem::forget`). That is
/// safe code, so tasks cannot borrow from outside: they are `'static`, as those of [`spawn`](crate::spawn), and share by `Rc`. A panic
/// of a task is its join handle's, and ends neither the scope nor the other tasks.
///
/// ```
/// # annulus::run(async {
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// let sum = Rc::new(Cell::new(0));
/// annulus::task::scope(async |scope| {
///     for number in 1..=10 {
///         let sum = sum.clone();
///         scope.spawn(async move { sum.set(sum.get() + number) });
///     }
/// })
/// .await;
/// assert_eq!(sum.get(), 55);
/// # });
/// ```
///
/// # Panics
/// With the panic of `body`; its tasks are aborted then.
pub async fn scope<T>(body: impl AsyncFnOnce(Scope) -> T) -> T {
    consume_budget().await;
    let aborts = AbortsOnDrop(Scope { tasks: Rc::default() });
    let value = body(aborts.0.clone()).await;
    aborts.0.tasks.ended().await;
    value
}

/// Spawns tasks that a [`scope`] waits for.
///
/// ```
/// # annulus::run(async {
/// annulus::task::scope(async |scope| {
///     let inner = scope.clone();
///     scope.spawn(async move {
///         inner.spawn(async { /* the scope waits for this one too */ });
///     });
/// })
/// .await;
/// # });
/// ```
#[derive(Clone)]
pub struct Scope {
    tasks: Rc<Tasks>,
}

#[derive(Default)]
struct Tasks {
    /// The tasks that have not ended, in the order in which they were spawned; without a handle while one is being spawned.
    live: RefCell<BTreeMap<u64, Option<AbortHandle>>>,
    next: Cell<u64>,
    /// The scope has ended: tasks are aborted as they come.
    over: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Scope {
    /// Spawns a task, as [`spawn`](crate::spawn) does, which the scope waits for whether the handle is kept or not. If the scope has
    /// ended, the task is aborted before it runs.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        let number = self.tasks.next.get();
        self.tasks.next.set(number + 1);
        self.tasks.live.borrow_mut().insert(number, None);
        let leave = Leave { number, tasks: self.tasks.clone() };
        let task = spawn_at(Guarded::new(future, leave), Location::caller());
        if self.tasks.over.get() {
            task.abort();
        }
        if let Some(aborts) = self.tasks.live.borrow_mut().get_mut(&number) {
            *aborts = Some(task.abort_handle());
        }
        task
    }

    /// How many of its tasks have not ended.
    pub fn len(&self) -> usize {
        self.tasks.live.borrow().len()
    }

    /// Whether all of its tasks have ended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Aborts all of its tasks. The scope still waits until the future of each is dropped.
    pub fn abort_all(&self) {
        let aborts: Vec<_> = self.tasks.live.borrow().values().flatten().cloned().collect();
        aborts.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({} tasks)", self.len())
    }
}

impl Tasks {
    /// Waits until no task is live.
    async fn ended(&self) {
        poll_fn(|cx| {
            let stale = renew(&mut self.waiter.borrow_mut(), cx.waker());
            dispose_each(stale);
            if self.live.borrow().is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

struct AbortsOnDrop(Scope);

impl Drop for AbortsOnDrop {
    fn drop(&mut self) {
        self.0.tasks.over.set(true);
        self.0.abort_all();
    }
}

/// Takes a task off the list when it is dropped.
struct Leave {
    number: u64,
    tasks: Rc<Tasks>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut live = self.tasks.live.borrow_mut();
        let task = live.remove(&self.number);
        let is_last = live.is_empty();
        drop((live, task));
        if is_last {
            let waiter = self.tasks.waiter.borrow_mut().take();
            wake_each(waiter);
        }
    }
}
