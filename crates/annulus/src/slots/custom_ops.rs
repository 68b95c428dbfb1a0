//! Operations of the ring that a program defines. Each has a slot until its result has been taken.
#![allow(unsafe_code)]

use crate::slots::Waits;
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::slots::op_state::OpState;
use annulus_driver::{Event, OpKind, Slab, Token};
use annulus_ring::Entry;
use rustix::io::Errno;
use std::any::Any;
use std::io;
use std::task::{Context, Poll};

/// The value that owns an operation's memory, once its future has been dropped.
pub(crate) trait AbandonedOp {
    /// Takes the result, which the value handles when it is dropped, after the borrow of the
    /// runtime's state.
    fn end(self: Box<Self>, result: Result<u32, Errno>) -> Box<dyn Any>;
}

struct CustomOp {
    opcode: u8,
    /// The result of the first event, if further events follow.
    first: Option<Result<u32, Errno>>,
    state: OpState<Box<dyn AbandonedOp>>,
}

#[derive(Default)]
pub(crate) struct CustomOps(Slab<CustomOp>);

impl CustomOps {
    /// Starts an operation.
    ///
    /// # Errors
    /// `Unsupported` if the driver cannot submit it; nothing has then been started.
    ///
    /// # Safety
    /// Until the terminal event, the memory and descriptors that the entry refers to must stay
    /// valid, and nothing else may move or use that memory. So the caller keeps them until `poll`
    /// returns the result, or hands them to `abandon`. The entry must not affect other operations
    /// of the ring.
    pub(crate) unsafe fn start(&mut self, state: &mut LoopState, entry: Entry) -> io::Result<u32> {
        state.driver.check_custom(entry.opcode)?;
        let in_flight = OpState::InFlight(None);
        let slot = self.0.insert(CustomOp { opcode: entry.opcode, first: None, state: in_flight });
        state.in_flight += 1;
        // SAFETY: the caller fulfils this function's contract, which includes the driver's.
        unsafe { state.driver.submit_custom(self.token(slot), entry) };
        Ok(slot)
    }

    /// Returns the result of an operation and frees its slot.
    pub(crate) fn poll(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<u32, Errno>> {
        let polled = self.0.get(slot).state.poll(&mut state.deferred.drops, cx);
        if polled.is_ready() {
            self.0.remove(slot);
        }
        polled
    }

    pub(crate) fn on_event(&mut self, state: &mut LoopState, event: Event) {
        let slot = event.token.slot();
        let Some(op) = find_or_late(&mut self.0, state, &event) else { return };
        let result = *op.first.get_or_insert(event.result);
        if event.more {
            return;
        }
        state.in_flight -= 1;
        if let Some(kept) = op.state.end(&mut state.deferred.wakes, result) {
            self.0.remove(slot);
            state.deferred.kept.push(kept.end(result));
        }
    }

    /// Handles a dropped future. Cancels an operation in flight, and keeps its memory until the
    /// terminal event. If the operation is done, its result is handled once the borrow has ended.
    pub(crate) fn abandon(&mut self, state: &mut LoopState, slot: u32, kept: Box<dyn AbandonedOp>) {
        match self.0.get(slot).state.abandon(&mut state.deferred.drops, kept) {
            None => state.cancel(self.token(slot)),
            Some((result, kept)) => {
                self.0.remove(slot);
                state.deferred.kept.push(kept.end(result));
            }
        }
    }

    /// Cancels all operations at the end of the runtime.
    pub(crate) fn stop_all(&mut self, state: &mut LoopState) {
        for slot in self.0.indices() {
            let token = self.token(slot);
            if !matches!(self.0.get(slot).state, OpState::Done(_)) {
                state.cancel(token);
            }
        }
    }

    /// Returns the result of an operation and frees its slot, after the end of the runtime.
    pub(crate) fn take_ended(&mut self, slot: u32) -> Result<u32, Errno> {
        match self.0.remove(slot).state {
            OpState::Done(result) => result,
            _ => unreachable!("an operation was in flight after the end of the runtime"),
        }
    }

    /// Adds to `waits` what the tasks of these slots wait for.
    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for CustomOp { opcode, state, .. } in self.0.values() {
            if let Some(waker) = state.waker() {
                waits.note(waker, || format!("for operation {opcode} of the ring"));
            }
        }
    }

    fn token(&self, slot: u32) -> Token {
        self.0.id(slot).token(OpKind::Custom)
    }
}
