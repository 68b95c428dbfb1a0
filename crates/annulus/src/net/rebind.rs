//! Binding an address that a closed socket may still occupy.

use crate::runtime::core::Core;
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// Number of turns that it takes to close a socket dropped in this turn: one for the cancel, one
/// for its event, one for the close.
const TURNS_TO_CLOSE: u32 = 3;
/// A killed process is gone before the kernel has torn down its ring, which holds its sockets. That
/// takes 5 to 84 ms on Linux 6.18.
const MAX_PAUSES: u32 = 50;
const PAUSE_TIME: Duration = Duration::from_millis(2);

/// Binds, and retries while the address is in use: first after dropped sockets of this runtime are
/// closed, then for a tenth of a second. The thread sleeps between the attempts and no task runs,
/// which the docs of `bind` mention.
pub(super) fn retry_while_in_use<T>(
    core: Option<&Core>,
    bind: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    let mut bound = bind();
    let has_processes = core.is_none_or(|core| core.kernel.real_descriptors());
    for pass in 0..if has_processes { TURNS_TO_CLOSE + MAX_PAUSES } else { TURNS_TO_CLOSE } {
        if !is_in_use(&bound) {
            break;
        }
        if pass >= TURNS_TO_CLOSE {
            sleep(PAUSE_TIME);
        }
        if let Some(core) = core {
            core.turn(true, None)?;
        }
        bound = bind();
    }
    bound
}

fn is_in_use<T>(bound: &io::Result<T>) -> bool {
    matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse)
}
