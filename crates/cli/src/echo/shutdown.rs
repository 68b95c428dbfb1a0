//! The shutdown signal that the workers share.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Signals all workers to shut down.
#[derive(Debug, Default)]
pub(super) struct ShutdownSignal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    requested: bool,
    /// Tasks that wait for the signal.
    waiting: Vec<Waker>,
}

impl ShutdownSignal {
    /// Requests the shutdown of all workers.
    pub(super) fn request(&self) {
        let mut state = self.state();
        state.requested = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for the request.
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

    /// Every change is a single step, so the state is consistent even if a thread panicked with the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
