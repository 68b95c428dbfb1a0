//! A bounded channel, between shards or within one.

mod queue;

use crate::tasks::budget;
use crate::unwind;
use crate::waiters::WaiterId;
use queue::ChannelQueue;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The queue's lock. The model in `tests/channel_queue.rs` replaces it with loom's.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// Creates a channel that holds at most `capacity` values (0 counts as 1), with many senders and
/// one receiver, on any threads.
///
/// Waking a task of another shard takes a system call only if that shard's loop is asleep. Senders
/// that wait because the channel is full are served in order.
///
/// Dropping either end closes the channel. Once the receiver has been dropped, sends fail and
/// return their value, and values that have not been received are dropped. Once all senders have
/// been dropped, the receiver gets the remaining values, then `None`.
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(ChannelQueue::new(capacity));
    let sender = Sender { queue: queue.clone() };
    let receiver = Receiver {
        queue,
        #[cfg(feature = "stream")]
        is_over: false,
    };
    (sender, receiver)
}

/// The sending end of a [`channel`]. It is cheap to clone; the channel closes when the last clone
/// is dropped.
///
/// ```
/// use annulus::shards::{SendError, TrySendError, channel};
///
/// # annulus::run(async {
/// let (sender, mut receiver) = channel(1);
/// // `try_send` works on threads without a runtime.
/// let thread = std::thread::spawn(move || {
///     sender.try_send("first").unwrap();
///     assert_eq!(sender.try_send("second"), Err(TrySendError::Full("second")));
///     sender
/// });
/// let sender = thread.join().unwrap();
/// assert_eq!(receiver.recv().await, Some("first"));
/// drop(receiver);
/// assert_eq!(sender.send("third").await, Err(SendError("third")));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Sender<T> {
    queue: Arc<ChannelQueue<T>>,
}

impl<T> Sender<T> {
    /// Sends a value. Waits while the channel is full. If the future is dropped before it is ready,
    /// nothing has been sent and the value is dropped. If the future is forgotten (`mem::forget`),
    /// nothing has been sent either, but it may occupy the room for one value until the receiver
    /// finds the channel empty.
    ///
    /// # Errors
    /// The value itself, if the receiver has been dropped.
    pub fn send(&self, value: T) -> Sending<'_, T> {
        Sending { queue: &self.queue, value: Some(value), id: None }
    }

    /// Sends a value if there is room now. Needs no runtime.
    ///
    /// # Errors
    /// The value itself, if the channel is full, other senders are waiting, or the receiver has
    /// been dropped.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut value = Some(value);
        match self.queue.push(&mut value) {
            true => Ok(()),
            false => Err(self.refuse(value.expect("the refused value is missing"))),
        }
    }

    /// Returns true if the receiver has been dropped.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    fn refuse(&self, value: T) -> TrySendError<T> {
        if self.is_closed() { TrySendError::Closed(value) } else { TrySendError::Full(value) }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.queue.add_sender();
        Self { queue: self.queue.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.queue.remove_sender();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// The future of [`Sender::send`].
#[must_use = "a send does nothing unless awaited"]
pub struct Sending<'a, T> {
    queue: &'a ChannelQueue<T>,
    /// The value, until it has been sent.
    value: Option<T>,
    /// Set while the send waits.
    id: Option<WaiterId>,
}

// The value is moved, never pinned.
impl<T> Unpin for Sending<'_, T> {}

impl<T> Future for Sending<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { queue, value, id } = &mut *self;
        let sent = budget::poll_with(cx, || queue.poll_push(value, id, cx));
        sent.map(|()| value.take().map_or(Ok(()), |v| Err(SendError(v))))
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        if self.id.is_some() {
            self.queue.leave(&mut self.id);
        }
    }
}

impl<T> fmt::Debug for Sending<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sending(sent: {})", self.value.is_none())
    }
}

/// The receiving end of a [`channel`]. Dropping it closes the channel. Here shard 0 collects values
/// that the other shards send:
///
/// ```
/// use annulus::shards::{Shards, channel};
/// use std::sync::Mutex;
///
/// let (sender, receiver) = channel(16);
/// let receiver = Mutex::new(Some(receiver));
/// let sums = Shards::new(3).run(async |shard| {
///     if shard.index() != 0 {
///         sender.send(shard.index()).await.unwrap();
///         return std::io::Result::Ok(0);
///     }
///     let mut receiver = receiver.lock().unwrap().take().unwrap();
///     let mut sum = 0;
///     for _ in 1..shard.count() {
///         sum += receiver.recv().await.unwrap();
///     }
///     Ok(sum)
/// })?;
/// assert_eq!(sums, [3, 0, 0]);
/// # std::io::Result::Ok(())
/// ```
pub struct Receiver<T> {
    queue: Arc<ChannelQueue<T>>,
    /// Whether the receiver has ended as a `Stream`.
    #[cfg(feature = "stream")]
    pub(crate) is_over: bool,
}

impl<T> Receiver<T> {
    /// Returns the next value, in the order of sending, or `None` once all senders have been
    /// dropped and every value has been received. Cancel-safe.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls for the next value, like [`recv`](Self::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        budget::poll_with(cx, || self.queue.poll_pop(cx))
    }

    /// Returns the next value if one is available. Needs no runtime.
    ///
    /// # Errors
    /// [`Empty`](TryRecvError::Empty) while a sender may still send;
    /// [`Disconnected`](TryRecvError::Disconnected) where [`recv`](Self::recv) returns `None`.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.queue.try_pop() {
            Poll::Ready(value) => value.ok_or(TryRecvError::Disconnected),
            Poll::Pending => Err(TryRecvError::Empty),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}

/// Creates a channel that delivers every value to each of `count` receivers. With one receiver per
/// shard, the receivers can be the shards' [inputs](super::Shards::run_with). Each receiver holds
/// at most `capacity` values (0 counts as 1).
///
/// ```
/// use annulus::shards::{Shards, channel_to_all};
///
/// let (to_all, inboxes) = channel_to_all(3, 16);
/// let got = Shards::new(3).run_with(inboxes, async |shard, mut inbox| {
///     if shard.index() == 0 {
///         to_all.send("reload".to_owned()).await.unwrap();
///     }
///     std::io::Result::Ok(inbox.recv().await)
/// });
/// assert!(got?.iter().all(|value| value.as_deref() == Some("reload")));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn channel_to_all<T: Send>(
    count: usize,
    capacity: usize,
) -> (SenderToAll<T>, Vec<Receiver<T>>) {
    let (senders, receivers) = (0..count).map(|_| channel(capacity)).unzip();
    (SenderToAll(senders), receivers)
}

/// The sending end of a [`channel_to_all`]. It can be cloned; the channel ends when the last clone
/// is dropped.
///
/// ```
/// # annulus::run(async {
/// let (to_all, mut inboxes) = annulus::shards::channel_to_all(2, 1);
/// drop(inboxes.pop());
/// assert_eq!(to_all.send(7).await, Ok(1), "one is left");
/// assert_eq!(inboxes[0].recv().await, Some(7));
/// # });
/// ```
pub struct SenderToAll<T>(Vec<Sender<T>>);

impl<T: Clone> SenderToAll<T> {
    /// Sends a clone of the value to every receiver in turn, and waits for those that are full.
    /// Returns how many received it; dropped receivers are skipped. All receivers get one sender's
    /// values in the same order, but values of several senders may be interleaved differently.
    ///
    /// If the future is dropped before it is ready, the value has been sent to all receivers before
    /// the one that the future was waiting for.
    ///
    /// # Errors
    /// The value itself, if all receivers have been dropped.
    pub async fn send(&self, value: T) -> Result<usize, SendError<T>> {
        let mut got = 0;
        for sender in &self.0 {
            got += usize::from(sender.send(value.clone()).await.is_ok());
        }
        if got == 0 { Err(SendError(value)) } else { Ok(got) }
    }

    /// Returns the sender to the receiver with this index, or `None` if the index is out of range.
    pub fn to(&self, receiver: usize) -> Option<&Sender<T>> {
        self.0.get(receiver)
    }
}

impl<T> Clone for SenderToAll<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for SenderToAll<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SenderToAll({} receivers)", self.0.len())
    }
}

/// The error of a send whose receiver was dropped. Contains the value that was not sent.
#[derive(PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// The error of [`Sender::try_send`](crate::shards::Sender::try_send). Contains the value that was
/// not sent.
#[derive(PartialEq, Eq)]
#[non_exhaustive]
pub enum TrySendError<T> {
    /// The channel is full, or other senders are waiting.
    Full(T),
    /// The receiver was dropped.
    Closed(T),
}

impl<T> TrySendError<T> {
    /// Returns the value that was not sent.
    pub fn into_value(self) -> T {
        match self {
            Self::Full(value) | Self::Closed(value) => value,
        }
    }
}

/// The error of [`Receiver::try_recv`](crate::shards::Receiver::try_recv), as in tokio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// The channel is empty, but has senders.
    Empty,
    /// All senders have been dropped, and every value has been received.
    Disconnected,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the channel is empty",
            Self::Disconnected => "the channel is empty, and its senders were dropped",
        })
    }
}

impl std::error::Error for TryRecvError {}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel's receiver was dropped")
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the channel is full",
            Self::Closed(_) => "the channel's receiver was dropped",
        })
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> std::error::Error for TrySendError<T> {}
