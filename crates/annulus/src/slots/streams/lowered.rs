//! The bounds of streams have been lowered: receives that were armed before may still bring as much as was allowed then, so they are
//! armed anew. A stream is cancelled for it at most once for each long receive that it has used up, since the next one is short.

use super::Streams;
use crate::base::io::Io;
use crate::slots::arming::Arming;

impl Streams {
    /// Has receives armed anew that may bring more than a stream may hold now.
    #[cold]
    #[inline(never)]
    pub(crate) fn shorten_receives(&mut self, io: &mut Io) {
        for slot in self.slots.indices() {
            let stream = self.slots.get(slot);
            let rx = &stream.rx;
            if rx.arming == Arming::Multishot && rx.limit > io.memory.recv_bound {
                stream.stop_recv(io);
            }
        }
    }
}
