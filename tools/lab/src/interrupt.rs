//! Signals to stop: the first ends the measurement, the second ends the process at once.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{process, scratch};

/// The first signal, or 0 if none has arrived. The number orders no other memory.
static FIRST_SIGNAL: AtomicU8 = AtomicU8::new(0);

/// The error for a preparation that a signal has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped by a signal")]
pub(crate) struct Interrupted;

/// Returns an error if a signal has arrived. Preparations that take long call this again and again.
pub(crate) fn check() -> Result<(), Interrupted> {
    status().map_or(Ok(()), |_| Err(Interrupted))
}

/// Returns the exit status of a process that was ended by a signal, as in shells.
pub fn status_of(signal: i32) -> u8 {
    128 + signal as u8
}

/// Handles Ctrl-C (SIGINT), SIGTERM and SIGHUP for the rest of the process. A signal that is ignored
/// stays ignored: SIGHUP under nohup, SIGINT in the background of a shell script.
///
/// At the first signal, `on_first` is called on a thread of its own. The second signal kills all
/// contenders, removes all [scratch directories](crate::scratch), and ends the process.
pub fn install(on_first: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP];
    let wanted = wanted.into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(wanted)?;
    thread::spawn(move || {
        let mut signals = signals.forever();
        FIRST_SIGNAL.store(signals.next().unwrap_or(SIGINT) as u8, Ordering::Relaxed);
        on_first();
        let second = signals.next().unwrap_or(SIGINT);
        let _held = process::kill_all();
        scratch::remove_all();
        std::process::exit(status_of(second).into());
    });
    Ok(())
}

/// Returns the exit status for the first signal, if one has arrived.
pub fn status() -> Option<u8> {
    match FIRST_SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        first => Some(status_of(first.into())),
    }
}

/// Returns true if this process ignores a signal, according to the mask in `/proc`.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_recognized() {
        // The standard library ignores SIGPIPE.
        assert!(is_ignored(signal_hook::consts::SIGPIPE));
        assert!(!is_ignored(signal_hook::consts::SIGUSR1));
    }
}
