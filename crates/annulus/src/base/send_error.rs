//! Errors for values that were not sent.

use std::fmt;

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
