//! Telling tasks that something happened.

use super::permits::Permits;
use crate::base::budget;
use crate::waiters::WaiterId;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Tells one task, or all that wait, that something happened. It carries no value.
///
/// [`notify_one`](Self::notify_one) is not lost if no task waits: the next one that waits goes on at once. Several that come
/// before a task waits count as one.
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::Notify;
/// use std::rc::Rc;
///
/// let ready = Rc::new(Notify::new());
/// let waits = annulus::spawn({
///     let ready = ready.clone();
///     async move { ready.notified().await }
/// });
/// ready.notify_one();
/// waits.await.unwrap();
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Notify {
    /// Notifications that no task has taken.
    permits: Rc<Permits>,
    /// Calls of [`notify_waiters`](Self::notify_waiters).
    rounds: Cell<u64>,
}

impl Notify {
    /// Without a notification.
    pub fn new() -> Self {
        Self { permits: Permits::new(0), rounds: Cell::new(0) }
    }

    /// Waits for a notification. Cancel-safe: one that was meant for a future that is dropped goes to the next.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, round: self.rounds.get(), id: None }
    }

    /// Notifies the task that has waited longest, or the next that will.
    pub fn notify_one(&self) {
        self.permits.give_to_waiting();
    }

    /// Notifies all futures that there are, polled or not. Later ones are not concerned.
    pub fn notify_waiters(&self) {
        self.rounds.set(self.rounds.get() + 1);
        self.permits.wake_all();
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notify(notified: {})", self.permits.available() > 0)
    }
}

/// Waits for a notification: see [`Notify::notified`].
#[must_use = "a future does nothing unless awaited"]
pub struct Notified<'a> {
    notify: &'a Notify,
    /// The calls of `notify_waiters` before this was made.
    round: u64,
    id: Option<WaiterId>,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { notify, round, id } = &mut *self;
        if *round != notify.rounds.get() {
            ready!(budget::poll_take(cx));
            notify.permits.leave(id);
            return Poll::Ready(());
        }
        // They are never closed, so an answer is a notification.
        notify.permits.poll_take(1, id, cx).map(|_notification| ())
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        self.notify.permits.leave(&mut self.id);
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notified")
    }
}
