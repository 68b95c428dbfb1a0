//! Signals that stop a command: the first requests the end, the second ends the process.

use annulus_kernel::named;
use annulus_lab::interrupt::{is_ignored, status_of};
use signal_hook::{flag, low_level};
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether a signal has arrived. The second signal ends the process in its handler, with the exit status of a process that a signal killed.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    signals: Vec<i32>,
    /// The signal that arrived first; 0 before.
    first: Arc<AtomicUsize>,
}

impl Stop {
    /// Handles these signals. One that is ignored stays ignored: SIGHUP under nohup, SIGINT in the background of a shell script.
    pub(crate) fn install(signals: &[i32]) -> io::Result<Stop> {
        let wanted = |signal: &i32| !is_ignored(*signal);
        let signals: Vec<i32> = signals.iter().copied().filter(wanted).collect();
        let (repeated, first) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        for &signal in &signals {
            // Actions run in this order. The one that takes note of the signal comes first: a signal that arrives between two of these
            // calls must not be lost. The flag is set last, so the first signal does not end the process.
            flag::register_usize(signal, Arc::clone(&first), signal as usize)?;
            let status = status_of(signal).into();
            flag::register_conditional_shutdown(signal, status, Arc::clone(&repeated))?;
            flag::register(signal, Arc::clone(&repeated))?;
        }
        Ok(Stop { signals, first })
    }

    pub(crate) fn has_arrived(&self) -> bool {
        // Pairs with the store of the handler; it orders only the number itself.
        self.first.load(Ordering::SeqCst) != 0
    }

    /// The name of the first signal, and the exit status of a process that it ended.
    pub(crate) fn reason(&self) -> Option<(&'static str, ExitCode)> {
        let signal = self.first.load(Ordering::SeqCst) as i32;
        let name = low_level::signal_name(signal)?;
        Some((name, ExitCode::from(status_of(signal))))
    }

    /// Makes each signal write a byte, for a loop that waits in poll.
    pub(crate) fn write_byte_to(&self, pipe: &UnixStream) -> io::Result<()> {
        for &signal in &self.signals {
            let pipe = pipe.try_clone().map_err(named("fcntl"))?;
            low_level::pipe::register(signal, pipe)?;
        }
        Ok(())
    }
}
