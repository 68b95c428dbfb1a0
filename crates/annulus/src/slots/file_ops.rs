//! File calls off the loop. Each has a slot until its future has taken the outcome or, if the
//! future was dropped, until the terminal event.
#![allow(unsafe_code)]

use crate::slots::Waits;
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::waiters::note_waker;
use annulus_driver::{Event, FileStart, OpKind, Slab, Token};
use annulus_kernel::Fd;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::any::Any;
use std::mem::replace;
use std::os::fd::RawFd;
use std::task::{Context, Poll, Waker};

struct FileOp {
    call: FileCall,
    /// The group of an [isolated](FileStart::Isolated) call, which may hang.
    group: Option<u64>,
    state: FileOpState,
}

/// The states of a call off the loop.
///
/// A call starts *in flight*, and its future waits. If the terminal event comes first, the call is
/// *done*, and its slot is freed once the future has taken the outcome. If the future is dropped
/// first, the call becomes *abandoned*, and the driver cancels it if it can. The slot then keeps
/// the call's arguments, because the kernel may still use their memory, and is freed at the
/// terminal event.
///
/// At the end of the runtime all calls are cancelled. A future that outlives the runtime cannot
/// take the outcome, so a descriptor opened by a *stopped* call is closed at the terminal event.
enum FileOpState {
    InFlight { waker: Option<Waker>, stopped: bool },
    Abandoned { args: Box<dyn Any> },
    Done(Result<u32, Errno>),
}

#[derive(Default)]
pub(crate) struct FileOps {
    ops: Slab<FileOp>,
    /// Number of calls without a group whose terminal event has not arrived. Calls that hang give
    /// no device anything to do.
    in_flight: u32,
}

impl FileOps {
    /// Starts a call.
    ///
    /// # Safety
    /// Until the terminal event, the memory and descriptors that the call refers to must stay
    /// valid, and nothing else may move or use that memory. The caller keeps them until `poll`
    /// returns the outcome, or hands them to `abandon`.
    pub(crate) unsafe fn start(
        &mut self,
        state: &mut LoopState,
        call: FileCall,
        start: FileStart,
    ) -> u32 {
        let new = FileOpState::InFlight { waker: None, stopped: false };
        let slot = self.ops.insert(FileOp { call, group: start.group(), state: new });
        self.in_flight += u32::from(start.group().is_none());
        // SAFETY: the caller fulfils this function's contract, which includes that of `start_file`.
        unsafe { state.start_file(self.token(slot), call, start, self.in_flight) };
        slot
    }

    /// Returns the outcome of a call and frees its slot.
    pub(crate) fn poll(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<u32, Errno>> {
        match &mut self.ops.get(slot).state {
            FileOpState::Done(outcome) => {
                let outcome = *outcome;
                self.ops.remove(slot);
                Poll::Ready(outcome)
            }
            FileOpState::InFlight { waker, .. } => {
                note_waker(waker, &mut state.deferred.drops, cx);
                Poll::Pending
            }
            FileOpState::Abandoned { .. } => unreachable!("an abandoned call has no future"),
        }
    }

    pub(crate) fn on_event(&mut self, state: &mut LoopState, event: Event) {
        let slot = event.token.slot();
        let Some(op) = find_or_late(&mut self.ops, state, &event) else { return };
        state.in_flight -= 1;
        let (call, group) = (op.call, op.group);
        self.in_flight -= u32::from(group.is_none());
        match replace(&mut op.state, FileOpState::Done(event.result)) {
            FileOpState::InFlight { waker, stopped } => {
                state.deferred.wakes.extend(waker);
                if stopped {
                    self.stop(state, slot);
                }
            }
            FileOpState::Abandoned { args } => {
                self.ops.remove(slot);
                close_opened(state, &call, group, event.result);
                // Dropping the arguments may close a file, which borrows the runtime.
                state.deferred.kept.push(args);
            }
            FileOpState::Done(_) => unreachable!("a call has one terminal event"),
        }
    }

    /// Handles a dropped future. Cancels a call in flight, and keeps its arguments until the
    /// terminal event. If the call is done, closes the descriptor that it has opened, if any.
    pub(crate) fn abandon(&mut self, state: &mut LoopState, slot: u32, args: Box<dyn Any>) {
        let token = self.token(slot);
        let op = self.ops.get(slot);
        match &mut op.state {
            FileOpState::InFlight { waker, .. } => {
                state.deferred.drops.extend(waker.take());
                op.state = FileOpState::Abandoned { args };
                state.cancel(token);
            }
            FileOpState::Done(outcome) => {
                close_opened(state, &op.call, op.group, *outcome);
                self.ops.remove(slot);
                state.deferred.kept.push(args);
            }
            FileOpState::Abandoned { .. } => unreachable!("a future is dropped once"),
        }
    }

    /// Cancels a call at the end of the runtime, or closes the descriptor that it has opened.
    fn stop(&mut self, state: &mut LoopState, slot: u32) {
        let token = self.token(slot);
        let op = self.ops.get(slot);
        match &mut op.state {
            FileOpState::InFlight { stopped, .. } => {
                *stopped = true;
                state.cancel(token);
            }
            FileOpState::Abandoned { .. } => state.cancel(token),
            FileOpState::Done(outcome) => {
                close_opened(state, &op.call, op.group, *outcome);
                *outcome = Err(Errno::CANCELED);
            }
        }
    }

    /// Cancels all calls. Futures that outlive the runtime return errors.
    pub(crate) fn stop_all(&mut self, state: &mut LoopState) {
        for slot in self.ops.indices() {
            self.stop(state, slot);
        }
    }

    /// Returns the number of calls in flight that may hang.
    pub(crate) fn hanging(&mut self) -> usize {
        let may_hang =
            |op: &&mut FileOp| op.group.is_some() && !matches!(op.state, FileOpState::Done(_));
        self.ops.values().filter(may_hang).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for FileOp { call, state, .. } in self.ops.values() {
            if let FileOpState::InFlight { waker: Some(waker), .. } = state {
                waits.note(waker, || format!("for {}, a call on a file", call.properties().name));
            }
        }
    }

    fn token(&self, slot: u32) -> Token {
        self.ops.id(slot).token(OpKind::File)
    }
}

/// Closes a descriptor that a call has opened and no future will take. This does not use the ring:
/// a kernel worker would close a file that is flushed when it is closed (on overlay, FUSE or NFS),
/// and the file would stay open if the ring were closed first.
fn close_opened(
    state: &mut LoopState,
    call: &FileCall,
    group: Option<u64>,
    outcome: Result<u32, Errno>,
) {
    if let (true, Ok(fd)) = (call.properties().opens, outcome) {
        // SAFETY: the kernel opened the descriptor for this call, whose outcome is dropped here, so
        // no other code owns it.
        let fd = unsafe { Fd::from_raw(fd as RawFd) };
        match group {
            Some(group) => state.driver.close_isolated(group, fd),
            None => state.close_now(fd),
        }
    }
}
