//! A channel to every shard.

use crate::shards::channel::{Receiver, SendError, Sender, channel};
use std::fmt;

/// Creates a channel that delivers every value to each of `count` receivers, one per shard, to pass
/// as its [input](super::Shards::run_with). Each receiver holds at most `capacity` values (0 counts
/// as 1).
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
    /// Returns how many received it; dropped receivers are skipped. All receivers get the values of
    /// one sender in the same order, but not necessarily those of several senders.
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

    /// Returns the sender to one receiver, by index.
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
