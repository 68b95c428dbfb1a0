//! Why a value was not sent.

use std::fmt;

/// The receiver was dropped. Holds the value that was not sent.
#[derive(PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why [`Sender::try_send`](crate::shards::Sender::try_send) failed. Holds the value that was not sent.
#[derive(PartialEq, Eq)]
#[non_exhaustive]
pub enum TrySendError<T> {
    /// There is no room, or other senders wait.
    Full(T),
    /// The receiver was dropped.
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
