//! The bounds of streams have been lowered: receives that were armed before may still bring as much as was allowed then, so they are
//! armed anew. That takes a cancellation, which the stream pays for with what it received since it was last lowered.

use super::Streams;
use crate::runtime::io::Io;
use crate::slots::arming::Arming;

impl Streams {
    /// Has long receives armed anew if the bounds have fallen since the last call.
    #[inline]
    pub(crate) fn follow_bounds(&mut self, io: &mut Io) {
        if self.shared.agenda.times_lowered != io.memory.times_lowered {
            self.shorten_receives(io);
        }
    }

    #[cold]
    #[inline(never)]
    fn shorten_receives(&mut self, io: &mut Io) {
        self.shared.agenda.times_lowered = io.memory.times_lowered;
        for slot in self.slots.indices() {
            let rx = &self.slots.get(slot).rx;
            if rx.arming == Arming::Multishot && rx.limit > io.memory.recv_bound {
                self.slots.get(slot).stop_recv(io);
            }
        }
    }
}
