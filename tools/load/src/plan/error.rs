//! The reasons why a plan is invalid.

use super::MAX_IN_FLIGHT;
use crate::schedule::{MAX_RATE, MAX_THINK, Think, no_burst};
use crate::server_address::{MAX_PATH, length};
use crate::tls::TlsError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// An invalid plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No server can listen on port 0.
    #[error("cannot connect to {0}: no server listens on port 0, name the server's port")]
    NoPort(SocketAddr),
    /// An empty path, or one longer than [`MAX_PATH`] bytes.
    #[error("the path '{}' has {} bytes: that of a Unix socket has 1 to {MAX_PATH}", .0.display(), length(.0))]
    Path(PathBuf),
    /// More bytes in flight per connection than [`MAX_IN_FLIGHT`].
    #[error(
        "{pipeline} messages of {length} bytes in flight are above the {MAX_IN_FLIGHT} bytes of a connection: \
         ask for at most {}",
        MAX_IN_FLIGHT / .length
    )]
    InFlight {
        /// Messages in flight.
        pipeline: usize,
        /// Bytes of each.
        length: usize,
    },
    /// A rate below zero or above [`MAX_RATE`], or none above zero.
    #[error("{0} messages a second: ask for more than 0 and at most {MAX_RATE}")]
    Rate(f64),
    /// A time between bursts of zero, or above [`MAX_BURST`](crate::MAX_BURST).
    #[error("{}", no_burst(*.0))]
    Burst(Duration),
    /// A think time above [`MAX_THINK`].
    #[error("a think time of {0}: ask for at most {MAX_THINK:?}")]
    Think(Think),
    /// A setting that only streams have.
    #[error("{0} with datagrams: only connections have that, leave it out")]
    OnlyStreams(&'static str),
    /// A count outside its range.
    #[error("{value} {what}: ask for {least} to {most}")]
    Count {
        /// The name of the count.
        what: &'static str,
        /// The value.
        value: usize,
        /// The least valid value.
        least: usize,
        /// The largest valid value.
        most: usize,
    },
    /// Segmentation for a Unix socket, which does not support it.
    #[error("segments are for UDP: leave them out for {0}")]
    Segments(PathBuf),
    /// Requests that cannot be sent.
    #[error("{0}")]
    Protocol(String),
    /// Encryption that cannot be set up.
    #[error(transparent)]
    Tls(TlsError),
    /// The named duration is zero.
    #[error("a {0} of zero: ask for more, such as 1s")]
    Zero(&'static str),
}
