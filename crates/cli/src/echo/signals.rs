//! SIGINT and SIGTERM: the first asks to stop, the second does not ask.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const STOPPING: [i32; 2] = [SIGINT, SIGTERM];

/// Whether a signal has come. From the second on, the process ends in the signal's handler, whatever else it is doing,
/// with the status a shell gives to one that died of it.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes both signals over.
    pub(super) fn install() -> io::Result<Stop> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in STOPPING {
            // Handlers run in this order: the first signal finds the flag down and puts it up.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
            flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Stop(stop))
    }

    pub(super) fn has_come(&self) -> bool {
        // Pairs with the handler's store; what it orders is only the flag itself.
        self.0.load(Ordering::SeqCst)
    }

    /// Has each signal write a byte, for a loop that waits in poll.
    pub(super) fn write_to(&self, pipe: &UnixStream) -> io::Result<()> {
        for signal in STOPPING {
            low_level::pipe::register(signal, pipe.try_clone()?)?;
        }
        Ok(())
    }
}
