//! File calls off the loop: a slot each, which the kernel or a worker thread may point into.
//!
//! *In flight* → *done*, when its event has come → free, when the future has taken the outcome. Of a future that is dropped
//! before, the slot keeps what the call names until the event.
#![allow(unsafe_code)]

use crate::runtime::after::note_waker;
use crate::runtime::io::Io;
use annulus_driver::{Event, Kind, MemoryOp, Slab, Token};
use annulus_kernel::Fd;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::any::Any;
use std::os::fd::RawFd;
use std::task::{Context, Poll, Waker};

/// The slot of a call.
struct FileOp {
    call: FileCall,
    outcome: Option<Result<u32, Errno>>,
    waker: Option<Waker>,
    /// What the call names, once its future is gone.
    kept: Option<Box<dyn Any>>,
    /// The runtime ends: the future gets no descriptor any more.
    stopped: bool,
}

impl FileOp {
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

/// All calls in flight.
#[derive(Default)]
pub(crate) struct FileOps(Slab<FileOp>);

impl FileOps {
    /// # Safety
    /// What the call names must stay valid, unmoved and untouched until its event.
    pub(crate) unsafe fn start(&mut self, io: &mut Io, call: FileCall, soon: bool) -> u32 {
        let slot =
            self.0.insert(FileOp { call, outcome: None, waker: None, kept: None, stopped: false });
        let call = &raw const self.0.get(slot).call;
        let token = self.token(slot);
        // SAFETY: slots do not move, and this one is freed at the event; for the rest the caller vouches.
        unsafe { io.start_memory(token, MemoryOp::File { call, soon }) };
        slot
    }

    pub(crate) fn poll(
        &mut self,
        io: &mut Io,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<u32, Errno>> {
        let call = self.0.get(slot);
        if let Some(outcome) = call.outcome {
            self.0.remove(slot);
            return Poll::Ready(outcome);
        }
        note_waker(&mut call.waker, &mut io.after.drops, cx);
        Poll::Pending
    }

    pub(crate) fn on_event(&mut self, io: &mut Io, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(call) = self.0.find(slot, generation) else { return io.late(event) };
        call.outcome = Some(event.result);
        io.in_flight -= 1;
        io.after.wakes.extend(call.waker.take());
        if call.kept.is_some() {
            self.free(io, slot);
        } else if call.stopped {
            self.close_made(io, slot);
        }
    }

    /// Closes the descriptor that a call made and no future will take. Not on the ring: a file that is flushed when it is
    /// closed (on overlay, FUSE, NFS) would be left to a kernel worker, and stay open if the ring is closed before.
    fn close_made(&mut self, io: &mut Io, slot: u32) {
        if let Some(fd) = self.0.get(slot).take_descriptor() {
            io.close_now(fd);
        }
    }

    /// The future is gone: the call is cancelled if it has not begun, and what it names is kept until its event.
    pub(crate) fn abandon(&mut self, io: &mut Io, slot: u32, kept: Box<dyn Any>) {
        let token = self.token(slot);
        let call = self.0.get(slot);
        call.kept = Some(kept);
        io.after.drops.extend(call.waker.take());
        if call.outcome.is_some() {
            self.free(io, slot);
        } else {
            io.cancel(token);
        }
    }

    /// Cancels a call, at the end of the runtime.
    fn stop(&mut self, io: &mut Io, slot: u32) {
        let call = self.0.get(slot);
        call.stopped = true;
        if call.outcome.is_none() {
            let token = self.token(slot);
            io.cancel(token);
        } else {
            self.close_made(io, slot);
        }
    }

    /// Ends all calls. Futures that outlive the runtime find it ended.
    pub(crate) fn stop_all(&mut self, io: &mut Io) {
        for slot in self.0.indices() {
            self.stop(io, slot);
        }
    }

    /// What a task, known by its waker, waits for here.
    pub(crate) fn add_waits(&mut self, task: &Waker, waits: &mut Vec<String>) {
        for slot in self.0.indices() {
            let op = self.0.get(slot);
            if op.waker.as_ref().is_some_and(|waker| waker.will_wake(task)) {
                waits.push("for a call on a file".into());
            }
        }
    }

    fn free(&mut self, io: &mut Io, slot: u32) {
        self.close_made(io, slot);
        let call = self.0.remove(slot);
        // It may close a file, which borrows all this again.
        io.after.kept.extend(call.kept);
    }

    fn token(&self, slot: u32) -> Token {
        Token::new(Kind::File, self.0.generation(slot), slot)
    }
}
