//! A call on its way off the loop: a slot that the kernel may point into, and the future that waits.
//!
//! *In flight* → *done*, when its event has come → free, when the future has taken the outcome. A future that is dropped
//! before leaves what the call names in the slot, until the event: the kernel may still be writing there. A future that outlives
//! its runtime gets an error, and what the call names, once nothing is in flight any more.
#![allow(unsafe_code)]

use crate::runtime::core::{Core, Inner};
use crate::slots::streams::note_waker;
use annulus_driver::{Event, Kind, MemoryOp, NO_THREAD, Token};
use annulus_kernel::Fd;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::any::Any;
use std::future::Future;
use std::io;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A call's slot.
pub(crate) struct CallSlot {
    call: FileCall,
    outcome: Option<Result<u32, Errno>>,
    waker: Option<Waker>,
    /// What the call names, once its future is gone.
    kept: Option<Box<dyn Any>>,
    /// The runtime ends: the future gets no descriptor any more.
    stopped: bool,
}

impl CallSlot {
    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        self.waker.as_ref().is_some_and(|waker| waker.will_wake(task))
    }

    /// The descriptor that it made, if the future has not taken it.
    fn take_descriptor(&mut self) -> Option<Fd> {
        match (self.call, self.outcome) {
            (FileCall::Open { .. }, Some(Ok(fd))) => {
                self.outcome = Some(Err(Errno::CANCELED));
                // SAFETY: opened for this call alone, whose future gets none.
                Some(unsafe { Fd::from_raw(fd as RawFd) })
            }
            _ => None,
        }
    }
}

impl Inner {
    /// # Safety
    /// What the call names must stay valid, unmoved and untouched until its event.
    unsafe fn start_call(&mut self, call: FileCall, soon: bool) -> u32 {
        let slot = self.calls.insert(CallSlot {
            call,
            outcome: None,
            waker: None,
            kept: None,
            stopped: false,
        });
        let call = &raw const self.calls.get(slot).call;
        let token = self.call_token(slot);
        // SAFETY: slots do not move, and this one is freed at the event; for the rest the caller vouches.
        unsafe { self.start_memory(token, MemoryOp::File { call, soon }) };
        slot
    }

    fn poll_call(&mut self, slot: u32, cx: &Context<'_>) -> Poll<Result<u32, Errno>> {
        let call = self.calls.get(slot);
        if let Some(outcome) = call.outcome {
            self.calls.remove(slot);
            return Poll::Ready(outcome);
        }
        note_waker(&mut call.waker, &mut self.after.drops, cx);
        Poll::Pending
    }

    pub(crate) fn on_file(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(call) = self.calls.find(slot, generation) else { return self.late(event) };
        call.outcome = Some(event.result);
        self.in_flight -= 1;
        self.after.wakes.extend(call.waker.take());
        if call.kept.is_some() {
            self.free_call(slot);
        } else if call.stopped {
            self.close_made(slot);
        }
    }

    /// Closes the descriptor that a call made and no future will take.
    fn close_made(&mut self, slot: u32) {
        if let Some(fd) = self.calls.get(slot).take_descriptor() {
            self.close(fd);
        }
    }

    /// The future is gone: the call is cancelled if it has not begun, and what it names is kept until its event.
    fn abandon_call(&mut self, slot: u32, kept: Box<dyn Any>) {
        let token = self.call_token(slot);
        let call = self.calls.get(slot);
        call.kept = Some(kept);
        self.after.drops.extend(call.waker.take());
        if call.outcome.is_some() {
            self.free_call(slot);
        } else {
            self.cancel(token);
        }
    }

    /// Cancels a call, at the end of the runtime.
    pub(crate) fn stop_call(&mut self, slot: u32) {
        let call = self.calls.get(slot);
        call.stopped = true;
        if call.outcome.is_none() {
            let token = self.call_token(slot);
            self.cancel(token);
        } else {
            self.close_made(slot);
        }
    }

    fn free_call(&mut self, slot: u32) {
        self.close_made(slot);
        let call = self.calls.remove(slot);
        // It may close a file, which borrows all this again.
        self.after.kept.extend(call.kept);
    }

    fn call_token(&self, slot: u32) -> Token {
        Token::new(Kind::File, self.calls.generation(slot), slot)
    }
}

/// Waits for a call; gives its answer, and what it names, back.
pub(crate) struct Pending<K: 'static> {
    core: Rc<Core>,
    slot: u32,
    /// `None` once the call is done.
    kept: Option<K>,
}

impl<K: 'static> Pending<K> {
    /// Starts a call that names memory of `kept` only; `soon` where it waits for a device.
    ///
    /// # Safety
    /// The memory that the call names must belong to `kept`, stay where it is when `kept` itself is moved, and be
    /// touched by nobody before `kept` is given back.
    pub(crate) unsafe fn start(
        core: &Rc<Core>,
        call: FileCall,
        soon: bool,
        kept: K,
    ) -> Result<Self, (io::Error, K)> {
        match core.enter_running() {
            Ok(mut inner) => {
                // SAFETY: `kept` is held until the event: here, and in the slot once this is dropped.
                let slot = unsafe { inner.start_call(call, soon) };
                Ok(Self { core: core.clone(), slot, kept: Some(kept) })
            }
            Err(error) => Err((error, kept)),
        }
    }
}

/// What a call failed of.
fn call_error(errno: Errno) -> io::Error {
    if errno != NO_THREAD {
        return errno.into();
    }
    io::Error::other(
        "no worker thread can be started for it; raise the limit of threads (`ulimit -u`, or pids.max of the control group), or make \
         the call on the loop (Policy::Inline)",
    )
}

impl<K: Unpin + 'static> Future for Pending<K> {
    type Output = (io::Result<u32>, K);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = self.slot;
        let polled = match self.core.enter() {
            Ok(mut inner) => inner.poll_call(slot, cx).map(|outcome| outcome.map_err(call_error)),
            Err(error) if self.core.is_over() => Poll::Ready(Err(error)),
            // The kernel may not be done with the memory, and nothing will tell: it is not given back.
            Err(_) => return Poll::Pending,
        };
        polled.map(|outcome| (outcome, self.kept.take().expect("polled after its end")))
    }
}

impl<K: 'static> Drop for Pending<K> {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        match self.core.enter() {
            Ok(mut inner) => inner.abandon_call(self.slot, Box::new(kept)),
            Err(_) if self.core.is_over() => drop(kept),
            // A forked child, or a runtime whose operations did not come back: the kernel may still know the memory.
            Err(_) => std::mem::forget(kept),
        }
    }
}
