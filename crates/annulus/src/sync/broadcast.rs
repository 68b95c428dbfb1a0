//! A channel each of whose receivers gets every value.
//!
//! ```
//! # annulus::run(async {
//! use annulus::sync::broadcast;
//!
//! let (sender, mut one) = broadcast::channel(16);
//! let mut two = sender.subscribe();
//! sender.send("hello").unwrap();
//! assert_eq!(one.recv().await, Ok("hello"));
//! assert_eq!(two.recv().await, Ok("hello"));
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```

use super::until::Queue;
use crate::unwind::dispose_each;
use crate::waiters::WaiterId;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

pub use crate::base::send_error::SendError;

struct Channel<T> {
    state: RefCell<State<T>>,
    /// Receivers that wait for a value.
    receivers: Queue,
}

struct State<T> {
    values: VecDeque<Slot<T>>,
    /// The number of the first value that is kept.
    first: u64,
    capacity: usize,
    senders: usize,
    receivers: usize,
}

struct Slot<T> {
    value: Rc<T>,
    /// Receivers that are still to get it.
    left: usize,
}

/// A channel that keeps at most `capacity` values (0 counts as 1) for its slowest receiver. Sending never waits: beyond the
/// capacity the oldest value goes, and a receiver that had not got it is told so by [`RecvError::Lagged`].
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = State {
        values: VecDeque::new(),
        first: 0,
        capacity: capacity.max(1),
        senders: 1,
        receivers: 1,
    };
    let channel = Rc::new(Channel { state: RefCell::new(state), receivers: Queue::default() });
    (Sender(channel.clone()), Receiver { channel, next: 0, id: None })
}

impl<T> Channel<T> {
    /// Whether a receiver that gets this value next need not wait.
    fn is_ready(&self, next: u64) -> bool {
        let state = self.state.borrow();
        next != state.end() || state.senders == 0
    }
}

impl<T> State<T> {
    /// The number of the next value that is sent.
    fn end(&self) -> u64 {
        self.first + self.values.len() as u64
    }

    /// Takes out the first values that all have got.
    fn take_done(&mut self) -> Vec<Rc<T>> {
        let mut done = Vec::new();
        while self.values.front().is_some_and(|slot| slot.left == 0) {
            self.first += 1;
            done.extend(self.values.pop_front().map(|slot| slot.value));
        }
        done
    }
}

/// The sending end. Cloned freely; the channel ends when the last is gone.
///
/// A value that nothing will receive comes back:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::broadcast::{self, SendError};
///
/// let (sender, first) = broadcast::channel(16);
/// let second = sender.subscribe();
/// assert_eq!(sender.send("to both"), Ok(2));
/// drop((first, second));
/// assert_eq!(sender.send("to none"), Err(SendError("to none")));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Sender<T>(Rc<Channel<T>>);

impl<T> Sender<T> {
    /// Sends a value to all receivers; returns how many there are.
    ///
    /// # Errors
    /// The value itself, if there is none.
    pub fn send(&self, value: T) -> Result<usize, SendError<T>> {
        let mut state = self.0.state.borrow_mut();
        let left = state.receivers;
        if left == 0 {
            return Err(SendError(value));
        }
        let mut oldest = None;
        if state.values.len() == state.capacity {
            oldest = state.values.pop_front();
            state.first += 1;
        }
        state.values.push_back(Slot { value: Rc::new(value), left });
        drop(state);
        self.0.receivers.wake_all();
        dispose_each(oldest.map(|slot| slot.value));
        Ok(left)
    }

    /// One more receiver, for what is sent from here on.
    pub fn subscribe(&self) -> Receiver<T> {
        let mut state = self.0.state.borrow_mut();
        state.receivers += 1;
        Receiver { channel: self.0.clone(), next: state.end(), id: None }
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        self.0.state.borrow().receivers
    }

    /// Values that some receiver has not got yet.
    pub fn len(&self) -> usize {
        self.0.state.borrow().values.len()
    }

    /// Whether all receivers have got everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.borrow_mut().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        state.senders -= 1;
        let was_last = state.senders == 0;
        drop(state);
        if was_last {
            self.0.receivers.wake_all();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} receivers)", self.receiver_count())
    }
}

/// The receiving end: gets what was sent since it was made.
///
/// One that is too slow is told how many values it has missed, and goes on with those that are left:
///
/// ```
/// # annulus::run(async {
/// use annulus::sync::broadcast::{self, RecvError};
///
/// let (sender, mut receiver) = broadcast::channel(2);
/// for number in 1..=5 {
///     sender.send(number).unwrap();
/// }
/// drop(sender);
/// assert_eq!(receiver.recv().await, Err(RecvError::Lagged(3)));
/// assert_eq!(receiver.recv().await, Ok(4));
/// assert_eq!(receiver.recv().await, Ok(5));
/// assert_eq!(receiver.recv().await, Err(RecvError::Closed));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Receiver<T> {
    channel: Rc<Channel<T>>,
    /// The number of the value that it gets next.
    next: u64,
    /// Set while a poll of it waits.
    id: Option<WaiterId>,
}

impl<T: Clone> Receiver<T> {
    /// The next value. Cancel-safe.
    ///
    /// # Errors
    /// [`RecvError::Lagged`] if values were given up before this got them: the next call answers the oldest that is left.
    /// [`RecvError::Closed`] once all senders are gone and everything was received.
    pub async fn recv(&mut self) -> Result<T, RecvError> {
        let (channel, next) = (&self.channel, self.next);
        channel.receivers.until(|| channel.is_ready(next)).await;
        self.take().expect("a value, or the end")
    }

    /// As [`recv`](Self::recv), by polling.
    ///
    /// # Errors
    /// As there.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        let Self { channel, next, id } = self;
        ready!(channel.receivers.poll_until(|| channel.is_ready(*next), id, cx));
        channel.receivers.leave(id);
        Poll::Ready(self.take().expect("a value, or the end"))
    }

    /// The next value, if there is one now.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`TryRecvError::Empty`] if there is none yet.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.take() {
            Some(Ok(value)) => Ok(value),
            Some(Err(RecvError::Lagged(missed))) => Err(TryRecvError::Lagged(missed)),
            Some(Err(RecvError::Closed)) => Err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }

    /// The next value, or what is in its place.
    fn take(&mut self) -> Option<Result<T, RecvError>> {
        let mut state = self.channel.state.borrow_mut();
        let missed = state.first.saturating_sub(self.next);
        if missed > 0 {
            self.next = state.first;
            return Some(Err(RecvError::Lagged(missed)));
        }
        let place = (self.next - state.first) as usize;
        let Some(slot) = state.values.get_mut(place) else {
            return (state.senders == 0).then_some(Err(RecvError::Closed));
        };
        slot.left -= 1;
        self.next += 1;
        let value = slot.value.clone();
        let done = state.take_done();
        drop(state);
        dispose_each(done);
        // The last one to get it needs no clone. Cloning runs foreign code: nothing is borrowed.
        Some(Ok(Rc::try_unwrap(value).unwrap_or_else(|shared| T::clone(&shared))))
    }
}

impl<T> Receiver<T> {
    /// Values that this has not got, given up or not.
    pub fn len(&self) -> usize {
        (self.channel.state.borrow().end() - self.next) as usize
    }

    /// Whether it has got everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all senders are gone and it has got everything.
    #[cfg(feature = "stream")]
    pub(crate) fn is_over(&self) -> bool {
        self.is_empty() && self.channel.state.borrow().senders == 0
    }

    /// One more receiver, for what is sent from here on.
    pub fn resubscribe(&self) -> Self {
        let mut state = self.channel.state.borrow_mut();
        state.receivers += 1;
        Self { channel: self.channel.clone(), next: state.end(), id: None }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.channel.receivers.leave(&mut self.id);
        let mut state = self.channel.state.borrow_mut();
        state.receivers -= 1;
        let got = self.next.saturating_sub(state.first) as usize;
        state.values.iter_mut().skip(got).for_each(|slot| slot.left -= 1);
        let done = state.take_done();
        drop(state);
        dispose_each(done);
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} values)", self.len())
    }
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// So many values were given up before they were received.
    Lagged(u64),
    /// All senders are gone.
    Closed,
}

/// Why there is no value now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryRecvError {
    /// None was sent yet.
    Empty,
    /// So many values were given up before they were received.
    Lagged(u64),
    /// All senders are gone.
    Closed,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lagged(missed) => write!(f, "{missed} values were given up unreceived"),
            Self::Closed => f.write_str("the channel's senders are gone"),
        }
    }
}

impl std::error::Error for RecvError {}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("nothing was sent yet"),
            Self::Lagged(missed) => RecvError::Lagged(missed).fmt(f),
            Self::Closed => RecvError::Closed.fmt(f),
        }
    }
}

impl std::error::Error for TryRecvError {}
