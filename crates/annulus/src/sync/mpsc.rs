//! Channels with many senders and one receiver, on one thread.
//!
//! ```
//! # annulus::run(async {
//! use annulus::sync::mpsc;
//!
//! let (sender, mut receiver) = mpsc::channel(16);
//! annulus::spawn(async move {
//!     for number in 0..100 {
//!         sender.send(number).await.unwrap();
//!     }
//! });
//! let mut sum = 0;
//! while let Some(number) = receiver.recv().await {
//!     sum += number;
//! }
//! assert_eq!(sum, 4950);
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```

use super::permits::{Permits, Refused};
use crate::base::budget;
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::WaiterId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub use crate::base::send_error::{SendError, TrySendError};

struct Channel<T> {
    values: RefCell<VecDeque<T>>,
    /// Room for values. Closed once none may be sent any more.
    room: Rc<Permits>,
    /// Room that was taken and not yet used.
    reserved: Cell<usize>,
    /// The receiver, while it waits.
    receiver: RefCell<Option<Waker>>,
    senders: Cell<usize>,
    receiver_gone: Cell<bool>,
}

/// A channel of at most `capacity` values; 0 counts as 1. Senders that find it full have their turns in the order of arrival.
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let channel = Channel::new(capacity.max(1));
    (Sender(channel.clone()), Receiver(channel))
}

/// A channel without a bound: sending never waits, and memory grows with what is not received.
pub fn unbounded_channel<T>() -> (UnboundedSender<T>, Receiver<T>) {
    let channel = Channel::new(usize::MAX);
    (UnboundedSender(Sender(channel.clone())), Receiver(channel))
}

impl<T> Channel<T> {
    /// With one sender.
    fn new(capacity: usize) -> Rc<Self> {
        Rc::new(Self {
            values: RefCell::default(),
            room: Permits::new(capacity),
            reserved: Cell::new(0),
            receiver: RefCell::default(),
            senders: Cell::new(1),
            receiver_gone: Cell::new(false),
        })
    }

    /// Puts in a value that has room; drops it if nothing will receive it.
    fn push(&self, value: T) {
        if self.receiver_gone.get() {
            return;
        }
        self.values.borrow_mut().push_back(value);
        self.wake_receiver();
    }

    fn wake_receiver(&self) {
        let receiver = self.receiver.borrow_mut().take();
        wake_each(receiver);
    }

    fn pop(&self) -> Option<T> {
        let value = self.values.borrow_mut().pop_front()?;
        self.room.give(1);
        Some(value)
    }

    /// Nothing comes any more.
    fn is_over(&self) -> bool {
        self.senders.get() == 0 || self.room.is_closed() && self.reserved.get() == 0
    }
}

/// The sending end of a [`channel`]. Cloned freely; the channel ends when the last is gone.
///
/// `send` waits for room, `try_send` returns the value instead, and so does either of them once the receiver is gone:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::mpsc::{self, SendError, TrySendError};
///
/// let (sender, mut receiver) = mpsc::channel(1);
/// sender.send("first").await.unwrap();
/// assert_eq!(sender.try_send("second"), Err(TrySendError::Full("second")));
/// assert_eq!(receiver.recv().await, Some("first"));
/// drop(receiver);
/// assert_eq!(sender.send("third").await, Err(SendError("third")));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Sender<T>(Rc<Channel<T>>);

impl<T> Sender<T> {
    /// Sends a value, waiting while the channel is full. Dropped before it is ready, it has sent nothing, and the value is dropped
    /// with it; to keep the value, [`reserve`](Self::reserve) first.
    ///
    /// # Errors
    /// The value itself, if the receiver is gone or closed.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        match self.reserve().await {
            Ok(room) => {
                room.send(value);
                Ok(())
            }
            Err(SendError(())) => Err(SendError(value)),
        }
    }

    /// Sends a value if there is room now.
    ///
    /// # Errors
    /// The value itself, if the channel is full, others wait to send, or the receiver is gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        match self.0.room.try_take(1) {
            Ok(()) => {
                self.0.push(value);
                Ok(())
            }
            Err(Refused::Closed) => Err(TrySendError::Closed(value)),
            Err(Refused::TooFew) => Err(TrySendError::Full(value)),
        }
    }

    /// Waits for room for one value. Cancel-safe, but the place in line is lost.
    ///
    /// # Errors
    /// If the receiver is gone or closed.
    pub fn reserve(&self) -> Reserve<'_, T> {
        Reserve { channel: &self.0, id: None }
    }

    /// Whether the receiver is gone or closed.
    pub fn is_closed(&self) -> bool {
        self.0.room.is_closed()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.set(self.0.senders.get() + 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let left = self.0.senders.get() - 1;
        self.0.senders.set(left);
        if left == 0 {
            self.0.wake_receiver();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// The sending end of an [`unbounded_channel`]. Cloned freely; the channel ends when the last is gone.
///
/// Sending is no `async` function, so that it can be called from a callback or a `Drop`:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::mpsc;
///
/// struct Session(mpsc::UnboundedSender<&'static str>);
///
/// impl Drop for Session {
///     fn drop(&mut self) {
///         _ = self.0.send("ended");
///     }
/// }
///
/// let (sender, mut receiver) = mpsc::unbounded_channel();
/// drop(Session(sender));
/// assert_eq!(receiver.recv().await, Some("ended"));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct UnboundedSender<T>(Sender<T>);

impl<T> UnboundedSender<T> {
    /// Sends a value.
    ///
    /// # Errors
    /// The value itself, if the receiver is gone or closed.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.0.try_send(value).map_err(|error| SendError(error.into_value()))
    }

    /// Whether the receiver is gone or closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for UnboundedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnboundedSender")
    }
}

/// Waits for room: see [`Sender::reserve`].
#[must_use = "a future does nothing unless awaited"]
pub struct Reserve<'a, T> {
    channel: &'a Rc<Channel<T>>,
    id: Option<WaiterId>,
}

impl<'a, T> Future for Reserve<'a, T> {
    type Output = Result<Room<'a, T>, SendError<()>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { channel, id } = &mut *self;
        channel.room.poll_take(1, id, cx).map(|taken| {
            taken.map_err(|()| SendError(()))?;
            channel.reserved.set(channel.reserved.get() + 1);
            Ok(Room(channel))
        })
    }
}

impl<T> Drop for Reserve<'_, T> {
    fn drop(&mut self) {
        self.channel.room.leave(&mut self.id);
    }
}

impl<T> fmt::Debug for Reserve<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reserve")
    }
}

/// Room for one value, given back if it is dropped.
///
/// For a value that is made only once it can be sent, or must not be lost if the wait is cut short:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::mpsc;
/// use std::collections::VecDeque;
///
/// let mut jobs = VecDeque::from(["a", "b"]);
/// let (sender, mut receiver) = mpsc::channel(8);
/// while !jobs.is_empty() {
///     // If this is cancelled, the job is still in the queue.
///     let room = sender.reserve().await.unwrap();
///     room.send(jobs.pop_front().unwrap());
/// }
/// assert_eq!(receiver.recv().await, Some("a"));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[must_use = "room that is dropped is given back at once"]
pub struct Room<'a, T>(&'a Rc<Channel<T>>);

impl<T> Room<'_, T> {
    /// Sends a value. It is dropped if the receiver is gone.
    pub fn send(self, value: T) {
        let channel = self.0;
        std::mem::forget(self);
        channel.reserved.set(channel.reserved.get() - 1);
        channel.push(value);
    }
}

impl<T> Drop for Room<'_, T> {
    fn drop(&mut self) {
        self.0.reserved.set(self.0.reserved.get() - 1);
        self.0.room.give(1);
        if self.0.is_over() {
            self.0.wake_receiver();
        }
    }
}

impl<T> fmt::Debug for Room<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Room")
    }
}

/// The receiving end. Dropping it closes the channel, and drops what was not received.
///
/// To end without losing a value, close it and receive the rest:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::mpsc;
///
/// let (sender, mut receiver) = mpsc::channel(8);
/// sender.send(1).await.unwrap();
/// sender.send(2).await.unwrap();
/// receiver.close();
/// assert!(sender.send(3).await.is_err());
/// let mut rest = Vec::new();
/// while let Some(number) = receiver.recv().await {
///     rest.push(number);
/// }
/// assert_eq!(rest, [1, 2]);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Receiver<T>(Rc<Channel<T>>);

impl<T> Receiver<T> {
    /// The next value, in the order of sending; `None` once all senders are gone, or this was closed, and everything was received.
    /// Cancel-safe.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Self::recv), by polling.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.is_empty() && !self.0.is_over() {
            let waker = cx.waker().clone();
            let stale = self.0.receiver.borrow_mut().replace(waker);
            dispose_each(stale);
            // The clone of the waker, which is foreign code, may have sent.
            if !self.is_empty() || self.0.is_over() {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        budget::poll_take(cx).map(|()| self.0.pop())
    }

    /// The next value, if there is one now.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Refuses further values. Those that were sent, and those that have room already, are still received.
    pub fn close(&mut self) {
        self.0.room.close();
    }

    /// Values that wait to be received.
    pub fn len(&self) -> usize {
        self.0.values.borrow().len()
    }

    /// Whether nothing comes any more, and everything was received.
    #[cfg(feature = "stream")]
    pub(crate) fn is_over(&self) -> bool {
        self.is_empty() && self.0.is_over()
    }

    /// Whether none waits to be received.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.set(true);
        self.close();
        let (values, own) = (self.0.values.take(), self.0.receiver.take());
        dispose_each(values);
        dispose_each(own);
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} values)", self.len())
    }
}
