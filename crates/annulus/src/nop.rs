//! An operation that does nothing, for measuring the cost of an operation in this runtime.

use crate::runtime::core::Core;
use crate::runtime::current;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Submits an operation that does nothing and waits for its completion. Like every operation, it
/// takes a slot, an entry, a completion and a wake-up, so it measures the runtime, as in `annulus
/// bench nop`. On epoll the driver completes it in the next turn.
///
/// If the future is dropped, the operation still completes and its result is discarded.
///
/// # Errors
/// Outside a runtime, or if the kernel refuses.
pub fn nop() -> Nop {
    Nop(State::New)
}

/// The future of [`nop`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Nop(State);

enum State {
    New,
    Submitted { core: Rc<Core>, slot: u32 },
    Done,
}

impl Future for Nop {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = match &self.0 {
            State::New => match submit(cx) {
                Ok(submitted) => {
                    self.0 = submitted;
                    return Poll::Pending;
                }
                Err(error) => Err(error),
            },
            State::Submitted { core, slot } => match core.borrow() {
                Ok(mut inner) => {
                    let inner = &mut *inner;
                    match inner.nops.poll(&mut inner.io, *slot, cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(answer) => answer.map_err(io::Error::from),
                    }
                }
                Err(error) => Err(error),
            },
            State::Done => panic!("a nop was polled after completion"),
        };
        self.0 = State::Done;
        Poll::Ready(answer)
    }
}

impl Drop for Nop {
    #[inline]
    fn drop(&mut self) {
        if let State::Submitted { core, slot } = &self.0
            && let Ok(mut inner) = core.borrow()
        {
            let inner = &mut *inner;
            inner.nops.drop_nop(&mut inner.io, *slot);
        }
    }
}

impl fmt::Debug for Nop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nop")
    }
}

fn submit(cx: &Context<'_>) -> io::Result<State> {
    let core = current::get()?;
    let slot = {
        let inner = &mut *core.borrow_running()?;
        inner.nops.start(&mut inner.io, cx.waker().clone())
    };
    Ok(State::Submitted { core, slot })
}
