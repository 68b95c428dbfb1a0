//! Wakes and drops run foreign code, so they are deferred until the runtime is no longer borrowed.

use crate::bytes::chunk::Chunk;
use crate::unwind::dispose_each;
use std::any::Any;
use std::task::{Context, Waker};

/// Wakers to wake and values to drop.
#[derive(Default)]
pub(crate) struct After {
    pub(crate) wakes: Vec<Waker>,
    pub(crate) drops: Vec<Waker>,
    /// Arguments and descriptors of file calls whose futures were dropped: dropping them may close
    /// a file.
    pub(crate) kept: Vec<Box<dyn Any>>,
    /// Chunks with a foreign owner that were sent or discarded.
    pub(crate) chunks: Vec<Chunk>,
}

impl After {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.wakes.is_empty() && !self.has_drops()
    }

    #[inline]
    pub(crate) fn has_drops(&self) -> bool {
        !self.drops.is_empty() || !self.kept.is_empty() || !self.chunks.is_empty()
    }

    /// Drops everything, including the wakers to wake. The runtime must not be borrowed.
    #[cold]
    pub(crate) fn discard(self) {
        let Self { wakes, drops, kept, chunks } = self;
        dispose_each(wakes);
        dispose_each(drops);
        dispose_each(kept);
        dispose_each(chunks);
    }
}

/// Stores the waker of the polling task. The previous waker goes to `drops`, to be dropped outside
/// the borrow.
#[inline]
pub(crate) fn note_waker(place: &mut Option<Waker>, drops: &mut Vec<Waker>, cx: &Context<'_>) {
    if place.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        return;
    }
    drops.extend(place.replace(cx.waker().clone()));
}
