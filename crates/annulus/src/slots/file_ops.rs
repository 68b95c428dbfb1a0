//! File calls off the loop. Each has a slot until its future has taken the outcome or, if the
//! future was dropped, until the terminal event.
#![allow(unsafe_code)]

use crate::slots::Waits;
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::slots::op_state::OpState;
use annulus_driver::{Event, FileStart, OpKind, Slab, Token};
use annulus_kernel::Fd;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::any::Any;
use std::os::fd::RawFd;
use std::task::{Context, Poll};

struct FileOp {
    call: FileCall,
    /// The group of an [isolated](FileStart::Isolated) call, which may hang.
    group: Option<u64>,
    /// An abandoned call keeps its arguments, because the kernel may still use their memory.
    state: OpState<Box<dyn Any>>,
    /// Whether the runtime has ended. A future that outlives it cannot take the outcome, so a
    /// descriptor that the call opens is closed at the terminal event.
    stopped: bool,
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
        let (group, in_flight) = (start.group(), OpState::InFlight(None));
        let slot = self.ops.insert(FileOp { call, group, state: in_flight, stopped: false });
        self.in_flight += u32::from(group.is_none());
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
        let polled = self.ops.get(slot).state.poll(&mut state.deferred.drops, cx);
        if polled.is_ready() {
            self.ops.remove(slot);
        }
        polled
    }

    pub(crate) fn on_event(&mut self, state: &mut LoopState, event: Event) {
        let slot = event.token.slot();
        let Some(op) = find_or_late(&mut self.ops, state, &event) else { return };
        state.in_flight -= 1;
        self.in_flight -= u32::from(op.group.is_none());
        let stopped = op.stopped;
        if let Some(args) = op.state.end(&mut state.deferred.wakes, event.result) {
            self.free_unused(state, slot, event.result, args);
        } else if stopped {
            self.stop(state, slot);
        }
    }

    /// Frees the slot of a call whose outcome no future takes.
    fn free_unused(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        outcome: Result<u32, Errno>,
        args: Box<dyn Any>,
    ) {
        let FileOp { call, group, .. } = self.ops.remove(slot);
        close_opened(state, &call, group, outcome);
        // Dropping the arguments may close a file, which borrows the runtime.
        state.deferred.kept.push(args);
    }

    /// Handles a dropped future. Cancels a call in flight, and keeps its arguments until the
    /// terminal event. If the call is done, closes the descriptor that it has opened, if any.
    pub(crate) fn abandon(&mut self, state: &mut LoopState, slot: u32, args: Box<dyn Any>) {
        match self.ops.get(slot).state.abandon(&mut state.deferred.drops, args) {
            None => state.cancel(self.token(slot)),
            Some((outcome, args)) => self.free_unused(state, slot, outcome, args),
        }
    }

    /// Cancels a call at the end of the runtime, or closes the descriptor that it has opened.
    fn stop(&mut self, state: &mut LoopState, slot: u32) {
        let token = self.token(slot);
        let op = self.ops.get(slot);
        match &mut op.state {
            OpState::InFlight(_) | OpState::Abandoned(_) => {
                op.stopped = true;
                state.cancel(token);
            }
            OpState::Done(outcome) => {
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
            |op: &&mut FileOp| op.group.is_some() && !matches!(op.state, OpState::Done(_));
        self.ops.values().filter(may_hang).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for FileOp { call, state, .. } in self.ops.values() {
            if let Some(waker) = state.waker() {
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
