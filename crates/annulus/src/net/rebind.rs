//! Binding an address that a socket which is gone may still have.

use crate::runtime::core::Core;
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// Turns of the loop, which end and close what this runtime has dropped within the turn: a cancel, its event, the close.
const PASSES: u32 = 3;
/// A process that was killed is gone before the kernel has taken down its ring, which holds its sockets: 5 to 84 ms on Linux 6.18.
const PAUSES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// Binds, and tries again while the address is in use: after what was dropped here is closed, then for a tenth of a second. The thread sleeps
/// then, and no task runs, as while any call that is no `async fn`: `bind` tells its callers that it holds up the loop.
pub(super) fn patiently<T>(core: Option<&Core>, bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut bound = bind();
    let has_processes = core.is_none_or(|core| core.kernel.real_descriptors());
    for pass in 0..if has_processes { PASSES + PAUSES } else { PASSES } {
        if !is_in_use(&bound) {
            break;
        }
        if pass >= PASSES {
            sleep(PAUSE);
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
