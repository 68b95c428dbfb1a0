//! Nops: operations that do nothing.

use crate::base::io::Io;
use crate::bytes::after::note_waker;
use crate::slots::find_or_late;
use crate::slots::waits::Waits;
use annulus_driver::{Event, Kind, Op, Slab};
use rustix::io::Errno;
use std::mem;
use std::task::{Context, Poll, Waker};

/// The slot of a nop, from its first poll until its event has arrived and its future has taken the
/// result or been dropped.
enum Nop {
    InFlight(Option<Waker>),
    Done(Result<(), Errno>),
    Dropped,
}

/// All nops.
#[derive(Default)]
pub(crate) struct Nops(Slab<Nop>);

impl Nops {
    #[inline]
    pub(crate) fn start(&mut self, io: &mut Io, waker: Waker) -> u32 {
        let slot = self.0.insert(Nop::InFlight(Some(waker)));
        io.start(self.0.id(slot).token(Kind::Nop), Op::Nop);
        slot
    }

    /// Returns the result. The slot is free once this is ready.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        io: &mut Io,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<(), Errno>> {
        match self.0.get(slot) {
            Nop::Done(result) => {
                let result = *result;
                self.0.remove(slot);
                Poll::Ready(result)
            }
            Nop::InFlight(waker) => {
                note_waker(waker, &mut io.after.drops, cx);
                Poll::Pending
            }
            Nop::Dropped => unreachable!("only its future polls it"),
        }
    }

    #[inline]
    pub(crate) fn on_event(&mut self, io: &mut Io, event: Event) {
        let Some(nop) = find_or_late(&mut self.0, io, &event) else { return };
        io.in_flight -= 1;
        match mem::replace(nop, Nop::Done(event.result.map(drop))) {
            Nop::InFlight(waker) => io.after.wakes.extend(waker),
            Nop::Dropped => drop(self.0.remove(event.token.slot())),
            Nop::Done(_) => unreachable!("a nop has one event"),
        }
    }

    /// Handles a dropped future.
    pub(crate) fn drop_nop(&mut self, io: &mut Io, slot: u32) {
        match mem::replace(self.0.get(slot), Nop::Dropped) {
            Nop::InFlight(waker) => io.after.drops.extend(waker),
            Nop::Done(_) => drop(self.0.remove(slot)),
            Nop::Dropped => unreachable!("a future is dropped once"),
        }
    }

    /// Adds the tasks that wait in these slots.
    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for nop in self.0.values() {
            if let Nop::InFlight(Some(waker)) = nop {
                waits.note(waker, || "for a nop".into());
            }
        }
    }
}
