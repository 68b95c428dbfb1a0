//! Signals that stop a command: the first requests an orderly stop, the second ends the process.

use annulus_kernel::named;
use annulus_lab::interrupt::{is_ignored, status_of};
use signal_hook::{flag, low_level};
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Records whether a signal has arrived. The handler of a second signal ends the process with the
/// exit status that shells report for that signal.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    signals: Vec<i32>,
    /// The signal that arrived first, or 0.
    first: Arc<AtomicUsize>,
}

impl Stop {
    /// Installs handlers for these signals. Ignored signals stay ignored, such as SIGHUP under
    /// nohup, or SIGINT in a background process of a shell script.
    pub(crate) fn install(signals: &[i32]) -> io::Result<Stop> {
        let wanted = |signal: &i32| !is_ignored(*signal);
        let signals: Vec<i32> = signals.iter().copied().filter(wanted).collect();
        let (repeated, first) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        for &signal in &signals {
            // The actions run in the order of their registration. The one that records the signal
            // comes first: a signal that arrives between two of these calls must not be lost. The
            // flag is set last, so that the first signal does not end the process.
            flag::register_usize(signal, Arc::clone(&first), signal as usize)?;
            let status = status_of(signal).into();
            flag::register_conditional_shutdown(signal, status, Arc::clone(&repeated))?;
            flag::register(signal, Arc::clone(&repeated))?;
        }
        Ok(Stop { signals, first })
    }

    pub(crate) fn has_arrived(&self) -> bool {
        // Pairs with the store in the handler. The number orders no other memory.
        self.first.load(Ordering::SeqCst) != 0
    }

    /// Returns the name of the first signal and the exit status for it, or `None` before it has
    /// arrived.
    pub(crate) fn reason(&self) -> Option<(&'static str, ExitCode)> {
        let signal = self.first.load(Ordering::SeqCst) as i32;
        let name = low_level::signal_name(signal)?;
        Some((name, ExitCode::from(status_of(signal))))
    }

    /// Makes each signal write a byte, which wakes a loop that waits in `poll`.
    pub(crate) fn write_byte_to(&self, pipe: &UnixStream) -> io::Result<()> {
        for &signal in &self.signals {
            let pipe = pipe.try_clone().map_err(named("fcntl"))?;
            low_level::pipe::register(signal, pipe)?;
        }
        Ok(())
    }
}
