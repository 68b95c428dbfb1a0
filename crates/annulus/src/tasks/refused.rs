//! Futures that are spawned while their runtime ends: they are dropped at once.

use crate::unwind::dispose;
use std::cell::Cell;
use std::mem::forget;

/// The most futures dropped within the drop of a refused one, which may spawn more: a future whose drop spawns another of its kind
/// would never end. Further ones are leaked.
const MAX_REFUSED: u32 = 64;

thread_local! {
    /// Futures refused since the outermost one that is being dropped.
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

/// Drops a future that was refused.
pub(crate) fn refuse<F>(future: F) {
    let before = REFUSED.get();
    if before == MAX_REFUSED {
        return forget(future);
    }
    REFUSED.set(before + 1);
    dispose(future);
    if before == 0 {
        REFUSED.set(0);
    }
}
