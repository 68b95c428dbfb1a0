//! Signals to stop: the first ends the measuring, the second ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{process, scratch};

/// The exit status of an interrupted program, as in shells (128 + SIGINT).
pub const INTERRUPTED: u8 = 130;

/// Whether this process was asked to stop.
#[derive(Clone, Debug)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// Handles ctrl-C (SIGINT), SIGTERM and SIGHUP for the rest of the process.
    ///
    /// The first signal is recorded, and `noted` is called on a thread of its own. The second kills all contenders,
    /// removes all [scratch directories](crate::scratch), and ends the process.
    pub fn install(recorded: impl FnOnce() + Send + 'static) -> io::Result<Interrupt> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let requested = Arc::new(AtomicBool::new(false));
        let interrupt = Interrupt { requested: Arc::clone(&requested) };
        thread::spawn(move || {
            let mut signals = signals.forever();
            signals.next();
            requested.store(true, Ordering::Relaxed);
            recorded();
            signals.next();
            let _held = process::kill_all();
            scratch::remove_all();
            std::process::exit(INTERRUPTED.into());
        });
        Ok(interrupt)
    }

    /// Whether a signal has come.
    pub fn is_asked(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }
}
