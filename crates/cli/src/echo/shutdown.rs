//! What the workers of a server share: when to leave.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Tells all workers that it is time to leave.
#[derive(Debug, Default)]
pub(super) struct ShutdownSignal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    requested: bool,
    /// Tasks that wait for that.
    waiting: Vec<Waker>,
}

impl ShutdownSignal {
    /// Has all workers leave.
    pub(super) fn request(&self) {
        let mut state = self.state();
        state.requested = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until it is time to leave.
    pub(super) async fn requested(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.requested {
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
