//! The threads of the load: each has a runtime with its share of the clients, and the calling thread observes.
//!
//! The calling thread commands the threads ([`Command`]), and they report how far they are ([`Event`]): all connect; once every
//! client is connected all start at the same time; after the warm-up all stop for as long as the observer takes to open the
//! window, so that the server is idle then (ADR 0017), and again when the window closes. Each thread closes the window by its own
//! clock. Nothing is shared between threads while clients work, so one thread costs what it would cost without the others.
//!
//! A [`Kind`] says of which kind the clients are: connections that exchange messages ([`crate::streams`]), or sockets of datagrams ([`crate::datagrams`]).

mod observe;
mod pool;
mod settings;
mod state;
mod work;

pub(crate) use observe::{Ran, run};
#[cfg(test)]
pub(crate) use pool::ClientPool;
pub(crate) use pool::{CLOSE_TIMEOUT, Kind, Swept};
pub(crate) use settings::Settings;
pub(crate) use state::{Context, Run};

use std::io;
use std::time::Duration;

/// The measured time, and the CPU time of the load in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// When measuring began, since the Unix epoch.
    pub(crate) started: Duration,
    pub(crate) length: Duration,
    pub(crate) cpu: Duration,
    /// How long the threads were ready to run and did not, together, if that is known.
    pub(crate) waited: Option<Duration>,
    /// Whether the observer ended the run early.
    pub(crate) interrupted: bool,
}

impl Measured {
    /// An amount divided by the measured time; 0 if nothing was measured.
    pub(crate) fn per_second(self, amount: f64) -> f64 {
        if self.length.is_zero() { 0.0 } else { amount / self.length.as_secs_f64() }
    }

    /// Nothing was measured, as the run was interrupted before.
    pub(crate) fn interrupted() -> Measured {
        Measured { interrupted: true, ..Measured::default() }
    }
}

/// A command to a thread.
#[derive(Clone, Copy, Debug)]
enum Command {
    /// Start the clients: all threads began then.
    Start(u64),
    /// Stand still until released, then measure.
    Open,
    /// Close the window early.
    Close,
}

/// A report of a thread.
#[derive(Debug)]
enum Event {
    /// The runtime of the thread runs on this driver, or cannot be made.
    Ready(io::Result<String>),
    /// Whether the clients of the thread are connected.
    Connected(bool),
    /// The thread stands still, before the window opens.
    Paused,
    /// Every client of the thread has ended.
    Finished,
    /// The thread has closed the window, and stands still.
    Closed { length: Duration, cpu: Duration },
    /// The thread has ended.
    Ended,
}
