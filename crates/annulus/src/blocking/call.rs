//! A future for a call that blocks.

use super::pool::{Job, Pool, ended};
use crate::tasks::budget;
use crate::unwind::{Panic, dispose, dispose_each, wake_each};
use std::future::Future;
use std::io;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A call in a pool. It returns the call's result or its panic. If it is dropped before the call
/// has begun, the call is not made; if it is dropped later, the thread that makes the call drops
/// its result.
///
/// It returns an error if no thread can be started, or if the pool has ended.
pub(crate) struct BlockingCall<F, T>(CallRoute<F, T>);

enum CallRoute<F, T> {
    Pooled {
        pool: Pool,
        number: u64,
        shared: Arc<SharedCall<F, T>>,
    },
    /// The first poll makes the call.
    Inline(Option<F>),
    Refused(Option<io::Error>),
}

/// The state that the caller and a thread of the pool share.
struct SharedCall<F, T>(Mutex<CallState<F, T>>);

struct CallState<F, T> {
    stage: CallStage<F, T>,
    waiter: Option<Waker>,
}

enum CallStage<F, T> {
    Waiting(F),
    Running,
    Done(Result<T, Panic>),
    Refused,
    /// The result has been taken, or is no longer needed.
    Over,
}

impl<F, T> BlockingCall<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    /// Queues a call.
    pub(crate) fn new(pool: &Pool, call: F) -> Self {
        let state = CallState { stage: CallStage::Waiting(call), waiter: None };
        let shared = Arc::new(SharedCall(Mutex::new(state)));
        Self(match pool.submit(shared.clone()) {
            Ok(number) => CallRoute::Pooled { pool: pool.clone(), number, shared },
            Err(error) => CallRoute::Refused(Some(error)),
        })
    }

    /// Creates a call that is made when it is polled.
    pub(crate) fn inline(call: F) -> Self {
        Self(CallRoute::Inline(Some(call)))
    }
}

// No field is pinned.
impl<F, T> Unpin for BlockingCall<F, T> {}

impl<F: FnOnce() -> T, T> Future for BlockingCall<F, T> {
    type Output = io::Result<Result<T, Panic>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const POLLED_AFTER_READY: &str = "polled after it was ready";
        budget::poll_with(cx, || match &mut self.0 {
            CallRoute::Pooled { shared, .. } => shared.poll(cx),
            CallRoute::Inline(call) => {
                let call = call.take().expect(POLLED_AFTER_READY);
                Poll::Ready(Ok(catch_unwind(AssertUnwindSafe(call))))
            }
            CallRoute::Refused(error) => Poll::Ready(Err(error.take().expect(POLLED_AFTER_READY))),
        })
    }
}

impl<F, T> Drop for BlockingCall<F, T> {
    fn drop(&mut self) {
        if let CallRoute::Pooled { pool, number, shared } = &self.0 {
            pool.withdraw(*number);
            shared.give_up();
        }
    }
}

impl<F, T> SharedCall<F, T> {
    fn state(&self) -> MutexGuard<'_, CallState<F, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<io::Result<Result<T, Panic>>> {
        // Cloned and dropped outside the lock, since both run foreign code.
        let waker = cx.waker().clone();
        let mut state = self.state();
        let (polled, unused) = match replace(&mut state.stage, CallStage::Over) {
            CallStage::Done(result) => (Poll::Ready(Ok(result)), Some(waker)),
            CallStage::Refused => (Poll::Ready(Err(ended())), Some(waker)),
            pending => {
                state.stage = pending;
                (Poll::Pending, state.waiter.replace(waker))
            }
        };
        drop(state);
        dispose_each(unused);
        polled
    }

    /// Ends a call whose result is no longer needed.
    fn give_up(&self) {
        let mut state = self.state();
        let left = (replace(&mut state.stage, CallStage::Over), state.waiter.take());
        drop(state);
        dispose(left.0);
        dispose(left.1);
    }

    /// Moves to the next stage, unless the result is no longer needed.
    fn advance(&self, next: CallStage<F, T>) {
        let mut state = self.state();
        if matches!(state.stage, CallStage::Over) {
            drop(state);
            return dispose(next);
        }
        let last = replace(&mut state.stage, next);
        let waiter = state.waiter.take();
        drop(state);
        dispose(last);
        wake_each(waiter);
    }
}

impl<F: FnOnce() -> T + Send, T: Send> Job for SharedCall<F, T> {
    fn run(&self) {
        let mut state = self.state();
        let stage = replace(&mut state.stage, CallStage::Running);
        if let CallStage::Waiting(call) = stage {
            drop(state);
            self.advance(CallStage::Done(catch_unwind(AssertUnwindSafe(call))));
        } else {
            // The call has just been given up.
            state.stage = stage;
        }
    }

    fn refuse(&self) {
        self.advance(CallStage::Refused);
    }
}
