//! A channel that keeps the latest value only.
//!
//! ```
//! # annulus::run(async {
//! use annulus::sync::watch;
//!
//! let (sender, mut receiver) = watch::channel("starting");
//! let seen = annulus::spawn(async move {
//!     receiver.wait_for(|state| *state == "ready").await.unwrap();
//! });
//! sender.send("loading").unwrap();
//! sender.send("ready").unwrap();
//! seen.await.unwrap();
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```

use super::until::Queue;
use crate::tasks::consume_budget;
use crate::waiters::WaiterId;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

pub use crate::base::send_error::SendError;

/// All senders were dropped, and the last value was seen.
#[derive(Debug, PartialEq, Eq)]
pub struct RecvError(());

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel's senders were dropped")
    }
}

impl std::error::Error for RecvError {}

struct Channel<T> {
    value: RefCell<Rc<T>>,
    /// How often it was sent.
    version: Cell<u64>,
    /// Receivers that wait for a change, and senders that wait for the last receiver's end.
    receivers: Queue,
    senders: Queue,
    sender_count: Cell<usize>,
    receiver_count: Cell<usize>,
}

/// A channel that keeps the latest value, with its first one, which counts as seen.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let channel = Rc::new(Channel {
        value: RefCell::new(Rc::new(value)),
        version: Cell::new(0),
        receivers: Queue::default(),
        senders: Queue::default(),
        sender_count: Cell::new(1),
        receiver_count: Cell::new(1),
    });
    (Sender(channel.clone()), Receiver { channel, seen: 0, id: None })
}

impl<T> Channel<T> {
    /// Whether a receiver that has seen this version need not wait.
    fn is_ready(&self, seen: u64) -> bool {
        seen != self.version.get() || self.sender_count.get() == 0
    }

    fn current(&self) -> Ref<T> {
        Ref(self.value.borrow().clone())
    }

    fn replace(&self, value: Rc<T>) -> Rc<T> {
        let old = self.value.replace(value);
        self.version.set(self.version.get() + 1);
        self.receivers.wake_all();
        old
    }
}

/// The sending end. Cloned freely; the channel closes when the last is gone.
///
/// The value can be replaced, or changed in part:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::watch;
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct Limits {
///     clients: usize,
///     rate: u32,
/// }
///
/// let (sender, receiver) = watch::channel(Limits { clients: 100, rate: 10 });
/// sender.send_modify(|limits| limits.rate = 20);
/// assert_eq!(*receiver.borrow(), Limits { clients: 100, rate: 20 });
/// let raised = sender.send_if_modified(|limits| limits.clients < 50);
/// assert!(!raised && receiver.has_changed().unwrap());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Sender<T>(Rc<Channel<T>>);

impl<T> Sender<T> {
    /// Replaces the value, and notifies the receivers.
    ///
    /// # Errors
    /// The value itself, if there is no receiver.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError(value));
        }
        drop(self.0.replace(Rc::new(value)));
        Ok(())
    }

    /// Replaces the value, whether there is a receiver or not; returns the one before.
    pub fn send_replace(&self, value: T) -> Ref<T> {
        Ref(self.0.replace(Rc::new(value)))
    }

    /// Replaces the value by a changed clone of it, and notifies the receivers.
    pub fn send_modify(&self, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// As [`send_modify`](Self::send_modify); if `change` answers false, what it changed is discarded and nothing is notified. Returns its answer.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool
    where
        T: Clone,
    {
        let mut value = T::clone(&self.borrow());
        let changed = change(&mut value);
        if changed {
            drop(self.0.replace(Rc::new(value)));
        }
        changed
    }

    /// The latest value.
    pub fn borrow(&self) -> Ref<T> {
        self.0.current()
    }

    /// One more receiver, for which the latest value counts as seen.
    pub fn subscribe(&self) -> Receiver<T> {
        self.0.receiver_count.set(self.receiver_count() + 1);
        Receiver { channel: self.0.clone(), seen: self.0.version.get(), id: None }
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        self.0.receiver_count.get()
    }

    /// Whether there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// Waits until there is no receiver. Cancel-safe.
    pub async fn closed(&self) {
        let channel = &*self.0;
        let over = || channel.receiver_count.get() == 0;
        channel.senders.until(over).await;
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.sender_count.set(self.0.sender_count.get() + 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let left = self.0.sender_count.get() - 1;
        self.0.sender_count.set(left);
        if left == 0 {
            self.0.receivers.wake_all();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&*self.borrow()).finish()
    }
}

/// The receiving end. A clone has seen what this has seen.
///
/// A task that acts on each change, until all senders are gone; values that were replaced meanwhile are passed over:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::watch;
///
/// let (sender, mut receiver) = watch::channel(1);
/// let task = annulus::spawn(async move {
///     let mut seen = vec![*receiver.borrow()];
///     while receiver.changed().await.is_ok() {
///         seen.push(*receiver.borrow_and_update());
///     }
///     seen
/// });
/// annulus::yield_now().await;
/// sender.send(2).unwrap();
/// sender.send(3).unwrap();
/// drop(sender);
/// assert_eq!(task.await.unwrap(), [1, 3]);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Receiver<T> {
    channel: Rc<Channel<T>>,
    seen: u64,
    /// Set while a poll of it waits.
    id: Option<WaiterId>,
}

impl<T> Receiver<T> {
    /// The latest value, without counting it as seen.
    pub fn borrow(&self) -> Ref<T> {
        self.channel.current()
    }

    /// The latest value, which counts as seen from here on.
    pub fn borrow_and_update(&mut self) -> Ref<T> {
        self.seen = self.channel.version.get();
        self.channel.current()
    }

    /// Whether a value was sent that this has not seen.
    ///
    /// # Errors
    /// If all senders are gone and the last value was seen.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let changed = self.seen != self.channel.version.get();
        if changed || self.channel.sender_count.get() > 0 {
            Ok(changed)
        } else {
            Err(RecvError(()))
        }
    }

    /// Waits for a value that this has not seen, and counts it as seen. Cancel-safe.
    ///
    /// # Errors
    /// If all senders are gone and the last value was seen.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        let (channel, seen) = (&*self.channel, self.seen);
        channel.receivers.until(|| channel.is_ready(seen)).await;
        self.see()
    }

    /// As [`changed`](Self::changed), by polling.
    ///
    /// # Errors
    /// As there.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RecvError>> {
        let Self { channel, seen, id } = self;
        ready!(channel.receivers.poll_until(|| channel.is_ready(*seen), id, cx));
        channel.receivers.leave(id);
        Poll::Ready(self.see())
    }

    /// Counts the latest value as seen.
    fn see(&mut self) -> Result<(), RecvError> {
        if self.seen == self.channel.version.get() {
            return Err(RecvError(()));
        }
        self.seen = self.channel.version.get();
        Ok(())
    }

    /// Waits until the latest value is as wanted, which it may be at once. Cancel-safe.
    ///
    /// # Errors
    /// If all senders are gone and the last value is not.
    pub async fn wait_for(&mut self, wanted: impl Fn(&T) -> bool) -> Result<Ref<T>, RecvError> {
        consume_budget().await;
        loop {
            let value = self.borrow_and_update();
            if wanted(&value) {
                return Ok(value);
            }
            drop(value);
            self.changed().await?;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.channel.receiver_count.set(self.channel.receiver_count.get() + 1);
        Self { channel: self.channel.clone(), seen: self.seen, id: None }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.channel.receivers.leave(&mut self.id);
        let left = self.channel.receiver_count.get() - 1;
        self.channel.receiver_count.set(left);
        if left == 0 {
            self.channel.senders.wake_all();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&*self.borrow()).finish()
    }
}

/// A value as it was: one that is sent later does not change it.
///
/// It is counted, and locks nothing: it may be held across an `await`, and sending goes on.
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::watch;
///
/// let (sender, receiver) = watch::channel(String::from("old"));
/// let before = receiver.borrow();
/// sender.send("new".into()).unwrap();
/// assert_eq!(before.as_str(), "old");
/// assert_eq!(receiver.borrow().as_str(), "new");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Ref<T>(Rc<T>);

impl<T> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
