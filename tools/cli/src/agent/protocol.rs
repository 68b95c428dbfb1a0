//! The messages between an agent and a load generator.
//!
//! After both sides have proved that they know the token, the agent says which process it observes,
//! and answers each [`Ask`] with one [`Reading`].

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The name of the protocol in the handshake.
pub(crate) const PROTOCOL: &str = "annulus-agent";
/// The maximum size of a message after the handshake.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Time for the TLS handshake, the proof of the token and the first message.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may stay without a request before the agent ends it.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Ask {
    Reading,
}

/// What the agent observes, or why it cannot.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Observed {
    Process {
        /// The host name of the agent's machine.
        host: String,
        /// The observed processes, formatted for the user.
        process: String,
    },
    Nothing(String),
}

/// The agent's reply to [`Ask::Reading`].
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Reading {
    Figures(Figures),
    /// The process has ended, or can no longer be read.
    Gone(String),
}

/// The figures of the observed processes, added up.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    /// Time on the agent's clock in ns, from an arbitrary start.
    pub(crate) at: u64,
    /// CPU time in ns.
    pub(crate) cpu: u64,
    /// Number of times that threads of the processes were scheduled on a core.
    pub(crate) switches: u64,
    pub(crate) processes: u64,
    pub(crate) resident_bytes: u64,
    /// Calls of the read and write families since the start of the processes, or why they are
    /// unknown.
    pub(crate) calls: Result<Calls, String>,
}

/// System calls, as the kernel counts them in `/proc/PID/io`: `read` and `write` and their
/// variants. It does not count `send`, `recv`, `epoll_wait` or operations of io_uring.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Calls {
    pub(crate) read: u64,
    pub(crate) write: u64,
}
