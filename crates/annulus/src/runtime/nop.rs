//! An operation that does nothing, for measuring the cost of an operation in this runtime.

#![cfg_attr(not(feature = "internals"), allow(dead_code, unreachable_pub))]

use super::core::Core;
use super::current;
use crate::slots::Waits;
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::slots::op_state::OpState;
use annulus_driver::{Event, Op, OpKind, Slab};
use rustix::io::Errno;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Submits an operation that does nothing and waits for its completion. Like other operations, it
/// takes a slot, an entry, a completion and a wake-up, so it measures the runtime's cost per
/// operation, as in `annulus bench nop`. On epoll, the driver completes it without the kernel.
///
/// If the future is dropped, the operation still completes and its result is discarded.
///
/// # Errors
/// Outside a runtime, or if the kernel refuses the operation.
pub fn nop() -> Nop {
    Nop(NopState::New)
}

/// The future of [`nop`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Nop(NopState);

enum NopState {
    New,
    Submitted { core: Rc<Core>, slot: u32 },
    Done,
}

impl Future for Nop {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let answer = match &self.0 {
            NopState::New => match submit(cx) {
                Ok(submitted) => {
                    self.0 = submitted;
                    return Poll::Pending;
                }
                Err(error) => Err(error),
            },
            NopState::Submitted { core, slot } => match core.borrow() {
                Ok(mut inner) => {
                    let inner = &mut *inner;
                    match inner.nops.poll(&mut inner.state, *slot, cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(answer) => answer.map(drop).map_err(io::Error::from),
                    }
                }
                Err(error) => Err(error),
            },
            NopState::Done => panic!("a nop was polled after completion"),
        };
        self.0 = NopState::Done;
        Poll::Ready(answer)
    }
}

impl Drop for Nop {
    #[inline]
    fn drop(&mut self) {
        if let NopState::Submitted { core, slot } = &self.0 {
            core.if_alive(|inner| inner.nops.drop_nop(&mut inner.state, *slot));
        }
    }
}

impl fmt::Debug for Nop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nop")
    }
}

fn submit(cx: &Context<'_>) -> io::Result<NopState> {
    let core = current::get()?;
    let slot = {
        let inner = &mut *core.borrow_running()?;
        inner.nops.start(&mut inner.state, cx.waker().clone())
    };
    Ok(NopState::Submitted { core, slot })
}

/// Nops, from their first poll until the event has arrived and the future has taken the result or
/// been dropped.
#[derive(Default)]
pub(crate) struct Nops(Slab<OpState<()>>);

impl Nops {
    #[inline]
    pub(crate) fn start(&mut self, state: &mut LoopState, waker: Waker) -> u32 {
        let slot = self.0.insert(OpState::InFlight(Some(waker)));
        state.start(self.0.id(slot).token(OpKind::Nop), Op::Nop);
        slot
    }

    /// Returns the result. The slot is free once this is ready.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<u32, Errno>> {
        let polled = self.0.get(slot).poll(&mut state.deferred.drops, cx);
        if polled.is_ready() {
            self.0.remove(slot);
        }
        polled
    }

    #[inline]
    pub(crate) fn on_event(&mut self, state: &mut LoopState, event: Event) {
        let Some(nop) = find_or_late(&mut self.0, state, &event) else { return };
        state.in_flight -= 1;
        if nop.end(&mut state.deferred.wakes, event.result).is_some() {
            self.0.remove(event.token.slot());
        }
    }

    pub(crate) fn drop_nop(&mut self, state: &mut LoopState, slot: u32) {
        if self.0.get(slot).abandon(&mut state.deferred.drops, ()).is_some() {
            self.0.remove(slot);
        }
    }

    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        let wakers = self.0.values().filter_map(|nop| nop.waker());
        wakers.for_each(|waker| waits.note(waker, || "for a nop".into()));
    }
}
