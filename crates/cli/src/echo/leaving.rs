//! What the workers of a server share: when to leave.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Tells all workers that it is time to leave.
#[derive(Debug, Default)]
pub(super) struct Leaving(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    begun: bool,
    /// Tasks that wait for that.
    waiting: Vec<Waker>,
}

impl Leaving {
    /// Has all workers leave.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        state.begun = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until it is time to leave.
    pub(super) async fn begun(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.begun {
                return Poll::Ready(());
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Each change is one step: the state stays whole if a thread that held it panics.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
