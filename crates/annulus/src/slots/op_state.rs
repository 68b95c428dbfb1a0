//! The states of an operation whose result one future takes.

use crate::waiters::note_waker;
use rustix::io::Errno;
use std::mem::replace;
use std::task::{Context, Poll, Waker};

/// An operation starts *in flight*, and its future waits. If the terminal event comes first, the
/// operation is *done* until the future takes the result. If the future is dropped first, the
/// operation is *abandoned*: it keeps what the kernel may still use until the terminal event.
///
/// The owner frees the slot once a result has been taken, or nothing is kept any longer.
pub(crate) enum OpState<K> {
    InFlight(Option<Waker>),
    Abandoned(K),
    Done(Result<u32, Errno>),
}

impl<K> OpState<K> {
    /// Returns the result. Until there is one, registers the task.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        drops: &mut Vec<Waker>,
        cx: &Context<'_>,
    ) -> Poll<Result<u32, Errno>> {
        match self {
            Self::Done(result) => Poll::Ready(*result),
            Self::InFlight(waker) => {
                note_waker(waker, drops, cx);
                Poll::Pending
            }
            Self::Abandoned(_) => unreachable!("an abandoned operation has no future"),
        }
    }

    /// Handles the terminal event: wakes the task, or returns what an abandoned operation has kept.
    #[inline]
    pub(crate) fn end(&mut self, wakes: &mut Vec<Waker>, result: Result<u32, Errno>) -> Option<K> {
        match replace(self, Self::Done(result)) {
            Self::InFlight(waker) => {
                wakes.extend(waker);
                None
            }
            Self::Abandoned(kept) => Some(kept),
            Self::Done(_) => unreachable!("an operation has one terminal event"),
        }
    }

    /// Handles a dropped future. If the operation is done, returns its result and `kept`. Otherwise
    /// keeps `kept`, and the owner may cancel the operation.
    pub(crate) fn abandon(
        &mut self,
        drops: &mut Vec<Waker>,
        kept: K,
    ) -> Option<(Result<u32, Errno>, K)> {
        match self {
            Self::Done(result) => return Some((*result, kept)),
            Self::InFlight(waker) => drops.extend(waker.take()),
            Self::Abandoned(_) => unreachable!("a future is dropped once"),
        }
        *self = Self::Abandoned(kept);
        None
    }

    /// Returns the waker of the task that waits for the result, if one does.
    pub(crate) fn waker(&self) -> Option<&Waker> {
        match self {
            Self::InFlight(waker) => waker.as_ref(),
            Self::Abandoned(_) | Self::Done(_) => None,
        }
    }
}
