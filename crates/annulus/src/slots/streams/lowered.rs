//! The bounds of streams have been lowered: receives that were armed before may still bring as much as was allowed then, so they are
//! armed anew. That takes a cancellation, which the stream pays for with what it received since it was last lowered.

use super::Streams;
use crate::base::io::Io;
use crate::slots::arming::Arming;

impl Streams {
    /// Has receives armed anew that may bring more than a stream may hold now.
    #[cold]
    #[inline(never)]
    pub(crate) fn shorten_receives(&mut self, io: &mut Io) {
        for slot in self.slots.indices() {
            let rx = &self.slots.get(slot).rx;
            if rx.arming == Arming::Multishot && rx.limit > io.memory.recv_bound {
                self.slots.get(slot).stop_recv(io);
            }
        }
    }
}
