//! A channel for one value.
//!
//! ```
//! # annulus::run(async {
//! let (sender, receiver) = annulus::sync::oneshot::channel();
//! annulus::spawn(async move { sender.send("done") });
//! assert_eq!(receiver.await, Ok("done"));
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```

use crate::base::budget;
use crate::unwind::{dispose_each, wake_each};
use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct State<T> {
    value: Option<T>,
    /// The receiver, while it waits.
    receiver: Option<Waker>,
    /// The sender, while it waits for the receiver's end.
    sender: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

/// A channel for one value.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State {
        value: None,
        receiver: None,
        sender: None,
        sender_gone: false,
        receiver_gone: false,
    };
    let state = Rc::new(RefCell::new(state));
    (Sender(state.clone()), Receiver(state))
}

/// The sending end of a [`channel`].
///
/// With [`closed`](Self::closed), the task that makes the value ends early if it is no longer wanted:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::oneshot;
///
/// let (mut sender, receiver) = oneshot::channel::<u64>();
/// let work = annulus::spawn(async move {
///     sender.closed().await;
///     sender.send(42) // Gives the value back: nothing receives it.
/// });
/// drop(receiver);
/// assert_eq!(work.await.unwrap(), Err(42));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Sender<T>(Rc<RefCell<State<T>>>);

impl<T> Sender<T> {
    /// Sends the value. It may still be dropped unread, with its receiver.
    ///
    /// # Errors
    /// The value itself, if the receiver is gone.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut state = self.0.borrow_mut();
        if state.receiver_gone {
            return Err(value);
        }
        state.value = Some(value);
        Ok(())
        // The end of `self` wakes the receiver.
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.0.borrow().receiver_gone
    }

    /// Waits until the receiver is gone. Cancel-safe.
    pub async fn closed(&mut self) {
        poll_fn(|cx| self.poll_closed(cx)).await;
    }

    /// As [`closed`](Self::closed), by polling.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        budget::poll_with(cx, || {
            let waker = cx.waker().clone();
            let mut state = self.0.borrow_mut();
            let gone = state.receiver_gone;
            let stale = if gone { Some(waker) } else { state.sender.replace(waker) };
            drop(state);
            dispose_each(stale);
            if gone { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.sender_gone = true;
        let (receiver, own) = (state.receiver.take(), state.sender.take());
        drop(state);
        wake_each(receiver);
        dispose_each(own);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// The receiving end of a [`channel`]: a future of the value. Cancel-safe.
///
/// It answers [`RecvError`] if the sender is gone without having sent, if this was closed before, and if it is polled once more after it
/// was ready.
#[must_use = "a receiver does nothing unless awaited"]
pub struct Receiver<T>(Rc<RefCell<State<T>>>);

impl<T> Receiver<T> {
    /// The value, if it is there.
    ///
    /// # Errors
    /// If it is not there yet, or cannot come any more.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let mut state = self.0.borrow_mut();
        match state.value.take() {
            Some(value) => Ok(value),
            None if state.sender_gone || state.receiver_gone => Err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Refuses the value from here on. One that was sent can still be received.
    pub fn close(&mut self) {
        let mut state = self.0.borrow_mut();
        state.receiver_gone = true;
        let sender = state.sender.take();
        drop(state);
        wake_each(sender);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        budget::poll_with(cx, || {
            match self.try_recv() {
                Ok(value) => return Poll::Ready(Ok(value)),
                Err(TryRecvError::Closed) => return Poll::Ready(Err(RecvError(()))),
                Err(TryRecvError::Empty) => {}
            }
            let waker = cx.waker().clone();
            let stale = self.0.borrow_mut().receiver.replace(waker);
            dispose_each(stale);
            Poll::Pending
        })
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.close();
        let mut state = self.0.borrow_mut();
        let (value, own) = (state.value.take(), state.receiver.take());
        drop(state);
        dispose_each(value);
        dispose_each(own);
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

/// No value comes: the sender is gone without having sent, or the receiver was closed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError(());

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel's sender is gone")
    }
}

impl std::error::Error for RecvError {}

/// Why there is no value now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryRecvError {
    /// It was not sent yet.
    Empty,
    /// The sender is gone without having sent, the receiver was closed before, or the value was received.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "nothing was sent yet",
            Self::Closed => "the channel's sender is gone",
        })
    }
}

impl std::error::Error for TryRecvError {}
