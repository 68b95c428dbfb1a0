//! Futures that are spawned too late: their runtime ends, and they are dropped at once.

use crate::unwind::dispose;
use std::cell::Cell;
use std::mem::forget;

/// Most futures that go because the drop of a refused one has spawned them, or the drop of one of these: a future whose drop
/// spawns its like would never come to an end. What is refused beyond that is leaked.
const MOST: u32 = 64;

thread_local! {
    /// Futures refused since the outermost of those that are being dropped.
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

/// Drops a future that no runtime takes.
pub(crate) fn refuse<F>(future: F) {
    let before = REFUSED.get();
    if before == MOST {
        return forget(future);
    }
    REFUSED.set(before + 1);
    dispose(future);
    if before == 0 {
        REFUSED.set(0);
    }
}
