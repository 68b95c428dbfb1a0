//! What makes a plan invalid.

use super::{MAX_IN_FLIGHT, MAX_RATE, MAX_THREADS};
use crate::schedule::{MAX_THINK, Think};
use crate::server_address::MAX_PATH;
use crate::tls::TlsError;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An invalid plan.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// No server can listen on port 0.
    NoPort(SocketAddr),
    /// An empty path, or one longer than [`MAX_PATH`] bytes.
    Path(PathBuf),
    /// More threads than [`MAX_THREADS`].
    Threads(usize),
    /// More bytes in flight per connection than [`MAX_IN_FLIGHT`].
    InFlight {
        /// Messages in flight.
        pipeline: usize,
        /// Bytes of each.
        length: usize,
    },
    /// A rate below zero or above [`MAX_RATE`], or none above zero.
    Rate(f64),
    /// A think time above [`MAX_THINK`].
    Think(Think),
    /// What only streams have.
    OnlyStreams(&'static str),
    /// A rate of connections of zero, or above [`MAX_RATE`].
    ConnectRate(f64),
    /// What clients with a thread each do not do.
    NoEventLoop(&'static str),
    /// A count outside its range.
    Count {
        /// What is counted.
        what: &'static str,
        /// The value.
        value: usize,
        /// The least valid value.
        least: usize,
        /// The largest valid value.
        most: usize,
    },
    /// Segmentation for a Unix socket, which does not support it.
    Segments(PathBuf),
    /// Sizes of messages, and a protocol whose requests have their own.
    Sizes(&'static str),
    /// Requests that cannot be sent.
    Protocol(String),
    /// Encryption that cannot be set up.
    Tls(TlsError),
    /// The named duration is zero.
    Zero(&'static str),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::NoPort(address) => write!(
                f,
                "cannot connect to {address}: no server listens on port 0, name the server's port"
            ),
            PlanError::Path(path) => write!(
                f,
                "the path '{}' has {} bytes: that of a Unix socket has 1 to {MAX_PATH}",
                path.display(),
                crate::server_address::length(path)
            ),
            PlanError::Threads(clients) => write!(
                f,
                "{clients} clients with a thread each: ask for at most {MAX_THREADS}, or for the uring or epoll driver"
            ),
            PlanError::InFlight { pipeline, length } => write!(
                f,
                "{pipeline} messages of {length} bytes in flight are above the {MAX_IN_FLIGHT} bytes of a connection: \
                 ask for at most {}",
                MAX_IN_FLIGHT / length
            ),
            PlanError::Rate(rate) => {
                write!(f, "{rate} messages a second: ask for more than 0 and at most {MAX_RATE}")
            }
            PlanError::Think(think) => {
                write!(f, "a think time of {think}: ask for at most {MAX_THINK:?}")
            }
            PlanError::OnlyStreams(what) => write!(
                f,
                "{what} with datagrams or a connection per message: only connections that stay open have that, leave it out"
            ),
            PlanError::ConnectRate(rate) => {
                write!(f, "{rate} connections a second: ask for more than 0 and at most {MAX_RATE}")
            }
            PlanError::NoEventLoop(what) => write!(
                f,
                "{what}: not with a blocking thread per client, use the uring or epoll driver"
            ),
            PlanError::Count { what, value, least, most } => {
                write!(f, "{value} {what}: ask for {least} to {most}")
            }
            PlanError::Sizes(protocol) => {
                write!(f, "sizes of messages are for echo: leave them out with {protocol}")
            }
            PlanError::Protocol(what) => f.write_str(what),
            PlanError::Tls(error) => error.fmt(f),
            PlanError::Segments(path) => {
                write!(f, "segments are for UDP: leave them out for {}", path.display())
            }
            PlanError::Zero(name) => write!(f, "a {name} of zero: ask for more, such as 1s"),
        }
    }
}

impl std::error::Error for PlanError {}
