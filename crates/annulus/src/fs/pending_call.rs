//! The future of a file call off the loop. `FileOp` in `slots/file_ops.rs` describes the states of
//! such a call.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::open_file::OpenFile;
use super::path::CWD;
use crate::bytes::parked::Parked;
use crate::runtime::core::Core;
use annulus_driver::{FileStart, NO_THREAD};
use rustix::io::Errno;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Waits for a call, then returns its result and its arguments.
///
/// If it is dropped early, the call's slot keeps the arguments until the terminal event, because
/// the kernel may still write to their memory. If it outlives its runtime, it returns an error and
/// the arguments once no call is in flight.
pub(super) struct PendingCall<A: 'static> {
    core: Rc<Core>,
    slot: u32,
    /// `None` once the call is done.
    held: Option<Held<A>>,
}

/// The values that the call uses: its arguments and its descriptor.
struct Held<A> {
    args: Parked<A>,
    _open: Option<Rc<OpenFile>>,
}

impl<A: CallArgs + 'static> PendingCall<A> {
    /// Starts a call.
    pub(super) fn start(
        core: &Rc<Core>,
        args: A,
        open: Option<Rc<OpenFile>>,
        start: FileStart,
    ) -> Result<Self, (io::Error, A)> {
        // From here on the arguments may move, with this future and to the slot if it is dropped.
        let mut args = Parked::new(args);
        // Before the borrow, because it calls methods of the caller's buffers.
        let call = args.call(open.as_ref().map_or(CWD, |open| open.fd()));
        match core.borrow_running() {
            Ok(mut inner) => {
                let inner = &mut *inner;
                let held = Some(Held { args, _open: open });
                // SAFETY: by `CallArgs`, the memory and descriptors of the call stay valid as long
                // as `args` and `open` exist, even if they move. They are kept until the terminal
                // event: here, and in the slot once this is dropped.
                let slot = unsafe { inner.file_ops.start(&mut inner.state, call, start) };
                Ok(Self { core: core.clone(), slot, held })
            }
            Err(error) => Err((error, args.into_inner())),
        }
    }
}

fn call_error(errno: Errno) -> io::Error {
    if errno != NO_THREAD {
        return errno.into();
    }
    io::Error::other(
        "cannot start a worker thread for this call; raise the limit on threads (`ulimit -u`, or pids.max of the control group), or \
         make the call on the loop (Policy::Inline)",
    )
}

impl<A: Unpin + 'static> Future for PendingCall<A> {
    type Output = (io::Result<u32>, A);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = self.slot;
        let polled = match self.core.borrow() {
            Ok(mut inner) => {
                let inner = &mut *inner;
                let polled = inner.file_ops.poll(&mut inner.state, slot, cx);
                polled.map(|outcome| outcome.map_err(call_error))
            }
            Err(error) if self.core.is_over() => Poll::Ready(Err(error)),
            // The kernel may still use the memory, and no event will arrive, so the arguments are
            // never returned.
            Err(_) => return Poll::Pending,
        };
        polled.map(|outcome| {
            let held = self.held.take().expect("polled after completion");
            (outcome, held.args.into_inner())
        })
    }
}

impl<A: 'static> Drop for PendingCall<A> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        match self.core.borrow() {
            Ok(mut inner) => {
                let inner = &mut *inner;
                inner.file_ops.abandon(&mut inner.state, self.slot, Box::new(held));
            }
            Err(_) if self.core.is_over() => drop(held),
            // A forked child, or a runtime with calls still in flight: the kernel may still use the
            // memory.
            Err(_) => std::mem::forget(held),
        }
    }
}
