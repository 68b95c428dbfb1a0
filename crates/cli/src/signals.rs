//! Signals that ask a command to stop: the first asks, the second does not.

use annulus_kernel::named;
use signal_hook::{flag, low_level};
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether a signal has come. From the second on, the process ends in the signal's handler, whatever else it is doing,
/// with the status a shell gives to one that died of it.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    signals: Vec<i32>,
    asked: Arc<AtomicBool>,
    /// The signal that asked; 0 before.
    first: Arc<AtomicUsize>,
}

impl Stop {
    /// Takes these signals over. SIGHUP stays ignored if it is, as under nohup.
    pub(crate) fn install(signals: &[i32]) -> io::Result<Stop> {
        let wanted = |signal: &i32| *signal != SIGHUP || !is_ignored(SIGHUP);
        let signals: Vec<i32> = signals.iter().copied().filter(wanted).collect();
        let (asked, first) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        for &signal in &signals {
            // Handlers run in this order: the first signal finds the flag down and puts it up.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            flag::register_usize(signal, Arc::clone(&first), signal as usize)?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Stop { signals, asked, first })
    }

    pub(crate) fn has_come(&self) -> bool {
        // Pairs with the handler's store; what it orders is only the flag itself.
        self.asked.load(Ordering::SeqCst)
    }

    /// The name of the signal that asked, and the exit status of a process that ends because of it.
    pub(crate) fn reason(&self) -> Option<(&'static str, ExitCode)> {
        let signal = self.first.load(Ordering::SeqCst) as i32;
        let name = low_level::signal_name(signal)?;
        Some((name, ExitCode::from(128 + signal as u8)))
    }

    /// Has each signal write a byte, for a loop that waits in poll.
    pub(crate) fn write_to(&self, pipe: &UnixStream) -> io::Result<()> {
        for &signal in &self.signals {
            let pipe = pipe.try_clone().map_err(named("fcntl"))?;
            low_level::pipe::register(signal, pipe)?;
        }
        Ok(())
    }
}

/// Whether this process was told to ignore a signal, by the mask that Linux shows.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ignored_is_found_ignored() {
        // The standard library has SIGPIPE ignored.
        assert!(is_ignored(signal_hook::consts::SIGPIPE));
        assert!(!is_ignored(signal_hook::consts::SIGUSR1));
    }
}
