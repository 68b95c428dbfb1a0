//! A bounded channel, between shards or within one.

mod line;

use crate::task::budget;
use crate::unwind;
use crate::waiters::WaiterId;
use line::Line;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What the line is locked with; its model in `tests/channel_line.rs` has loom's in its place.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// A channel of at most `capacity` values (0 counts as 1): many senders, one receiver, on whichever threads.
///
/// A task that waits is woken by the one that ends the wait; that takes a system call only if its shard's loop sleeps. Senders that
/// find the channel full take turns, first come, first served. A receiver that finds it empty while senders stand in line asks again
/// before it waits: they may have been forgotten.
///
/// It closes from either end. When the receiver is gone, sends fail and give their value back; what was sent and not
/// received is dropped. When all senders are gone, the receiver gets what is left, and then `None`.
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let line = Arc::new(Line::new(capacity));
    (Sender { line: line.clone() }, Receiver { line })
}

/// The sending end of a [`channel`]. Cloned freely; the channel closes when the last is gone.
pub struct Sender<T> {
    line: Arc<Line<T>>,
}

impl<T> Sender<T> {
    /// Sends a value, waiting while the channel is full. Dropped before it is ready, it has sent nothing, and the value is
    /// dropped with it. Forgotten instead (`mem::forget`), it has sent nothing either, and may take the room of one value until the
    /// receiver has found the channel empty.
    ///
    /// # Errors
    /// The value itself, if the receiver is gone.
    pub fn send(&self, value: T) -> Sending<'_, T> {
        Sending { line: &self.line, value: Some(value), id: None }
    }

    /// Sends a value if there is room now. From threads without a runtime too.
    ///
    /// # Errors
    /// The value itself, where the channel is full, others wait to send, or the receiver is gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut value = Some(value);
        match self.line.push(&mut value) {
            true => Ok(()),
            false => Err(self.refuse(value.expect("what was not sent is still here"))),
        }
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.line.is_closed()
    }

    fn refuse(&self, value: T) -> TrySendError<T> {
        if self.is_closed() { TrySendError::Closed(value) } else { TrySendError::Full(value) }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.line.add_sender();
        Self { line: self.line.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.line.remove_sender();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// A send: see [`Sender::send`].
#[must_use = "a send does nothing unless awaited"]
pub struct Sending<'a, T> {
    line: &'a Line<T>,
    /// Not sent yet.
    value: Option<T>,
    /// A place among the senders that wait.
    id: Option<WaiterId>,
}

// The value is moved, never pinned.
impl<T> Unpin for Sending<'_, T> {}

impl<T> Future for Sending<'_, T> {
    type Output = Result<(), Closed<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { line, value, id } = &mut *self;
        let sent = budget::poll_with(cx, || line.poll_push(value, id, cx));
        sent.map(|()| value.take().map_or(Ok(()), |v| Err(Closed(v))))
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        if self.id.is_some() {
            self.line.leave(&mut self.id);
        }
    }
}

impl<T> fmt::Debug for Sending<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sending(sent: {})", self.value.is_none())
    }
}

/// The receiving end of a [`channel`]. Dropping it closes the channel.
pub struct Receiver<T> {
    line: Arc<Line<T>>,
}

impl<T> Receiver<T> {
    /// The next value, in the order of sending; `None` once all senders are gone and everything was received.
    /// Cancel-safe.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`recv`](Self::recv), by polling.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        budget::poll_with(cx, || self.line.poll_pop(cx))
    }

    /// The next value, if there is one now. From threads without a runtime too.
    pub fn try_recv(&mut self) -> Option<T> {
        self.line.pop()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.line.close();
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

/// The receiver is gone; the value comes back.
#[derive(PartialEq, Eq)]
pub struct Closed<T>(pub T);

/// Why a value could not be sent at once. It comes back.
#[derive(PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room, or others wait to send.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

impl<T> TrySendError<T> {
    /// The value that was not sent.
    pub fn into_value(self) -> T {
        match self {
            Self::Full(value) | Self::Closed(value) => value,
        }
    }
}

impl<T> fmt::Display for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel's receiver is gone")
    }
}

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> std::error::Error for Closed<T> {}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the channel is full",
            Self::Closed(_) => "the channel's receiver is gone",
        })
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> std::error::Error for TrySendError<T> {}
