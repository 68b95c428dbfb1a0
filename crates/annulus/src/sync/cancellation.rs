//! Telling many tasks, on any thread, to end.

use crate::base::budget;
use crate::unwind::{dispose_each, wake_each};
use pin_project_lite::pin_project;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// Asks tasks to end, once: a clone of the token goes to each, which looks at it where it can end, in a `select!` mostly. An abort
/// ends a task at any `await`; this lets it finish what it has begun.
///
/// A token has children, which are cancelled with it, and can be cancelled alone. Unlike the rest of this module it is `Send` and
/// `Sync`: it has a lock, which is held briefly.
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::CancellationToken;
///
/// let stop = CancellationToken::new();
/// let child = stop.child_token();
/// let worker = annulus::spawn(async move {
///     let work = std::future::pending::<()>();
///     child.run_until_cancelled(work).await
/// });
/// stop.cancel();
/// assert_eq!(worker.await.unwrap(), None);
/// # });
/// ```
#[derive(Clone)]
pub struct CancellationToken(Arc<Node>);

struct Node {
    state: Mutex<State>,
    /// The token that this one is a child of, and its number there.
    parent: Option<(Arc<Node>, u64)>,
}

type Waiting = BTreeMap<u64, Waker>;
type Children = BTreeMap<u64, Weak<Node>>;

/// The waiters and children are in the order of their numbers, so that a run of the simulator can be repeated.
#[derive(Default)]
struct State {
    cancelled: bool,
    next: u64,
    waiters: Waiting,
    children: Children,
}

impl CancellationToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self(Arc::new(Node { state: Mutex::default(), parent: None }))
    }

    /// A token that is cancelled with this one. Cancelling it does nothing to this one.
    pub fn child_token(&self) -> Self {
        let mut parent = self.0.state();
        if parent.cancelled {
            let state = Mutex::new(State { cancelled: true, ..State::default() });
            return Self(Arc::new(Node { state, parent: None }));
        }
        let number = parent.number();
        let child =
            Arc::new(Node { state: Mutex::default(), parent: Some((self.0.clone(), number)) });
        parent.children.insert(number, Arc::downgrade(&child));
        Self(child)
    }

    /// Cancels this token, its clones and all of its children, for good, and wakes what waits for them. When it returns, all of them
    /// are cancelled, also if another thread had begun to cancel them.
    pub fn cancel(&self) {
        let (mut left, mut waiting) = (vec![self.0.clone()], Vec::new());
        while let Some(node) = left.pop() {
            let (waiters, children) = node.cancel();
            waiting.extend(waiters.into_values());
            left.extend(children.into_iter().rev());
        }
        // The tasks that are woken find all tokens cancelled.
        wake_each(waiting);
    }

    /// Whether it is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.state().cancelled
    }

    /// Waits until it is cancelled. Cancel-safe.
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled(Wait { token: self, number: None })
    }

    /// As [`cancelled`](Self::cancelled), with a clone of the token, so that the future borrows nothing.
    pub fn cancelled_owned(self) -> CancelledOwned {
        CancelledOwned(Wait { token: self, number: None })
    }

    /// Runs a future until it is ready, or until this token is cancelled: then the future is dropped, and the result is `None`. If
    /// both have happened, it is `None` too.
    pub fn run_until_cancelled<F: Future>(&self, future: F) -> RunUntilCancelled<'_, F> {
        RunUntilCancelled { cancelled: Wait { token: self, number: None }, future }
    }

    /// A guard that cancels this token when it is dropped.
    pub fn drop_guard(self) -> DropGuard {
        DropGuard(Some(self))
    }
}

impl Default for CancellationToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CancellationToken(cancelled: {})", self.is_cancelled())
    }
}

impl Node {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks it as cancelled. Returns what waits for that, and its children. They stay on its list, so that each call of
    /// [`cancel`](CancellationToken::cancel) reaches all of them, whatever another one has done so far.
    fn cancel(&self) -> (Waiting, Vec<Arc<Self>>) {
        let mut state = self.state();
        state.cancelled = true;
        let waiters = take(&mut state.waiters);
        // One whose last holder drops it just now waits for this lock to leave the list.
        let children = state.children.values().filter_map(Weak::upgrade).collect();
        (waiters, children)
    }
}

impl Drop for Node {
    /// Leaves its parent. A chain of parents of which this was the last holder is dropped one by one, not within one another.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some((node, number)) = parent {
            node.state().children.remove(&number);
            parent = Arc::into_inner(node).and_then(|mut node| node.parent.take());
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// A wait for a token, which leaves no waker behind.
struct Wait<T: Borrow<CancellationToken>> {
    token: T,
    number: Option<u64>,
}

impl<T: Borrow<CancellationToken>> Wait<T> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if let Some(polled) = self.poll_known(cx) {
            return polled;
        }
        // Cloned and dropped outside of the lock: both run foreign code.
        let waker = cx.waker().clone();
        let mut state = self.token.borrow().0.state();
        if state.cancelled {
            drop(state);
            dispose_each([waker]);
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| state.number());
        let stale = state.waiters.insert(number, waker);
        drop(state);
        dispose_each(stale);
        Poll::Pending
    }

    /// The answer of a poll that has no waker to keep: the token is cancelled, or the waker that it has wakes the same task.
    fn poll_known(&self, cx: &Context<'_>) -> Option<Poll<()>> {
        let state = self.token.borrow().0.state();
        if state.cancelled {
            return Some(Poll::Ready(()));
        }
        let known = state.waiters.get(&self.number?)?;
        known.will_wake(cx.waker()).then_some(Poll::Pending)
    }
}

impl<T: Borrow<CancellationToken>> Drop for Wait<T> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.token.borrow().0.state().waiters.remove(&number);
            dispose_each(waker);
        }
    }
}

/// Waits until a token is cancelled: see [`CancellationToken::cancelled`].
///
/// ```
/// # annulus::run(async {
/// let stop = annulus::sync::CancellationToken::new();
/// stop.cancel();
/// stop.cancelled().await;
/// # });
/// ```
#[must_use = "a future does nothing unless awaited"]
pub struct Cancelled<'a>(Wait<&'a CancellationToken>);

impl Future for Cancelled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        budget::poll_with(cx, || self.0.poll(cx))
    }
}

impl fmt::Debug for Cancelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cancelled")
    }
}

/// Waits until its token is cancelled: see [`CancellationToken::cancelled_owned`].
///
/// ```
/// # annulus::run(async {
/// let stop = annulus::sync::CancellationToken::new();
/// let stopped = annulus::spawn(stop.clone().cancelled_owned());
/// stop.cancel();
/// stopped.await.unwrap();
/// # });
/// ```
#[must_use = "a future does nothing unless awaited"]
pub struct CancelledOwned(Wait<CancellationToken>);

impl Future for CancelledOwned {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        budget::poll_with(cx, || self.0.poll(cx))
    }
}

impl fmt::Debug for CancelledOwned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CancelledOwned")
    }
}

pin_project! {
    /// Runs a future until a token is cancelled: see [`CancellationToken::run_until_cancelled`].
    ///
    /// ```
    /// # annulus::run(async {
    /// let stop = annulus::sync::CancellationToken::new();
    /// assert_eq!(stop.run_until_cancelled(async { 7 }).await, Some(7));
    /// # });
    /// ```
    #[must_use = "a future does nothing unless awaited"]
    pub struct RunUntilCancelled<'a, F> {
        cancelled: Wait<&'a CancellationToken>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for RunUntilCancelled<'_, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.cancelled.poll(cx).is_ready() {
            return budget::poll_take(cx).map(|()| None);
        }
        this.future.poll(cx).map(Some)
    }
}

impl<F> fmt::Debug for RunUntilCancelled<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunUntilCancelled")
    }
}

/// Cancels a token when it is dropped: see [`CancellationToken::drop_guard`].
///
/// ```
/// let stop = annulus::sync::CancellationToken::new();
/// drop(stop.clone().drop_guard());
/// assert!(stop.is_cancelled());
/// ```
#[derive(Debug)]
#[must_use = "dropping it cancels the token"]
pub struct DropGuard(Option<CancellationToken>);

impl DropGuard {
    /// The token, which is not cancelled.
    pub fn disarm(mut self) -> CancellationToken {
        self.0.take().expect("it is there until the guard is dropped")
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            token.cancel();
        }
    }
}
