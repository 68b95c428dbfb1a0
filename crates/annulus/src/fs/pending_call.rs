//! The future of a call that was made off the loop.
//!
//! A future that is dropped early leaves what the call names in the call's slot, until the event: the kernel may still be
//! writing there. A future that outlives its runtime gets an error, and what the call names, once nothing is in flight any more.
#![allow(unsafe_code)]

use crate::runtime::core::Core;
use annulus_driver::NO_THREAD;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

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
                let inner = &mut *inner;
                // SAFETY: `kept` is held until the event: here, and in the slot once this is dropped.
                let slot = unsafe { inner.file_ops.start(&mut inner.io, call, soon) };
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
            Ok(mut inner) => {
                let inner = &mut *inner;
                let polled = inner.file_ops.poll(&mut inner.io, slot, cx);
                polled.map(|outcome| outcome.map_err(call_error))
            }
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
            Ok(mut inner) => {
                let inner = &mut *inner;
                inner.file_ops.abandon(&mut inner.io, self.slot, Box::new(kept));
            }
            Err(_) if self.core.is_over() => drop(kept),
            // A forked child, or a runtime whose operations did not come back: the kernel may still know the memory.
            Err(_) => std::mem::forget(kept),
        }
    }
}
