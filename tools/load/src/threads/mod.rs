//! The threads of the load: each has a runtime with its share of the clients, and the calling thread observes.
//!
//! The calling thread commands the threads ([`Command`]), and they report how far they are ([`Event`]): all connect; once every
//! client is connected all start at the same time; after the warm-up all stop for as long as the observer takes to open the
//! window, so that the server is idle then (ADR 0017), and again when the window closes. Each thread closes the window by its own
//! clock. Nothing is shared between threads while clients work, so one thread costs what it would cost without the others.

mod observe;
mod settings;
mod work;

pub(crate) use observe::{Ran, run};
pub(crate) use settings::Settings;

use crate::clock;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// A thread's share of the clients. It is made on that thread, within its runtime.
pub(crate) trait Share: 'static {
    /// Makes every client ready to start; whether that succeeded. A failure is recorded. Ends soon if another thread has failed.
    fn connect(&mut self) -> impl Future<Output = bool>;

    /// Starts the clients; `began`, in ns of [`crate::clock`], is the same on all threads.
    fn start(&mut self, began: u64);

    /// The window opens, after a pause in which the thread stood still.
    fn open(&mut self, pause: Range<u64>);

    /// The window closes; clients send nothing more. Returns when it has ended, if that was before: its length is no planned time, and
    /// its last client has ended.
    fn close(&mut self) -> Option<Duration>;

    /// The CPU time that the clients have used.
    fn cpu(&self) -> Duration {
        clock::thread_cpu()
    }

    /// Responses within the window so far.
    fn responses(&self) -> u64;

    /// Whether every client has ended.
    fn is_finished(&self) -> bool;

    /// How often to call [`Share::sweep`].
    fn sweep_interval(&self) -> Duration;

    /// Ends or gives up what has waited too long.
    fn sweep(&mut self);

    /// Waits until every client has ended; sweeps meanwhile.
    fn finish(&mut self) -> impl Future<Output = ()>;

    /// Ends what is left, and hands over what is recorded.
    fn end(self) -> impl Future<Output = ()>;
}

/// The measured time, and the CPU time of the load in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// When measuring began, since the Unix epoch.
    pub(crate) started: Duration,
    pub(crate) length: Duration,
    pub(crate) cpu: Duration,
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
