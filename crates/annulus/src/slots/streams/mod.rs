//! Streams: a slot each, with its descriptor, its receive and its sends. Policy for all drivers and kernels.
//!
//! `Streams` finds the slot of an event once; what happens to one stream is a method of [`Stream`], with what all of them
//! share. A stream that was dropped is closed by `Streams`, at the end of the event that was its last.
//!
//! The life of a slot: *open*, while a handle owns it → *dropped*, while what was queued is still being sent (bounded by the linger), its
//! receive is being cancelled, and the peer may lack bytes that a reset would discard (`closing_wait`); or *closing*, with its handle, until it can be taken off the runtime → *closed*: nothing is in flight, the
//! descriptor goes, the slot is free. A slot is freed only then, so a token in flight always finds its own.

pub(crate) mod carriers;
mod chunk_queue;
mod close;
mod closing_wait;
mod memory_paused;
mod recv;
mod recv_heap;
mod send;
mod send_waits;
mod silent;

use crate::base::connection_limit::Permit;
use crate::base::io::Io;
use crate::base::op_error::{OpError, Operation};
use crate::slots::turn_lists::TurnLists;
use crate::slots::waits::Waits;
use annulus_driver::{Pool, Slab, SlotId, Token};
use annulus_kernel::{Address, Fd};
use carriers::{Carrier, Common};
use chunk_queue::Vectors;
use closing_wait::ClosingWait;
use memory_paused::MemoryPaused;
use recv::{BufferTable, RecvState};
use rustix::io::Errno;
use send::SendState;
use silent::Heard;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// After so many streams have closed, the heap's free memory goes back to the system.
const CROWD: usize = 64;

/// A stream off its runtime: its descriptor, the bytes it had received, and the limit it counts against.
pub(crate) type Released = (Fd, Vec<u8>, Option<Permit>);

/// A stream's slot.
pub(crate) struct Stream {
    id: SlotId,
    pub(crate) fd: Fd,
    rx: RecvState,
    tx: SendState,
    /// How its bytes travel, if not by the operations of a plain socket alone.
    carrier: Option<Box<Carrier>>,
    /// A close waits for the peer.
    closing_wait: Option<Box<ClosingWait>>,
    /// The peer, if it was known when the stream was made: the kernel forgets it when the connection is reset.
    pub(crate) peer: Option<SocketAddr>,
    /// The stream's place in its listener's limit of connections.
    permit: Option<Permit>,
    /// On the list of streams with something to send.
    listed: bool,
    /// On the list of streams that hold more than they may.
    memory_paused: bool,
    /// No handle owns it any more.
    dropped: bool,
    /// Nothing new begins: it was dropped, or waits until nothing is in flight, to be taken off the runtime.
    closing: bool,
}

/// State that all streams share, beside `Io`.
pub(crate) struct Shared {
    /// The buffers that they receive into.
    pool: Rc<Pool>,
    buffers: BufferTable,
    vectors: Vectors,
    carriers: Common,
    turn: TurnLists,
    memory_paused: MemoryPaused,
    heard: Heard,
    /// The runtime ends: no close waits.
    is_ending: bool,
}

impl Stream {
    /// The sending direction was ended, and has not failed.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.tx.ending && self.tx.error.is_none()
    }

    /// Bytes queued and not sent.
    pub(crate) fn unsent(&self) -> usize {
        self.tx.bytes
    }

    /// An error of this stream, with its peer.
    #[cold]
    fn failed(&self, io: &Io, operation: Operation, errno: Errno) -> io::Error {
        let now = || io.driver.kernel().peer_address(self.fd).ok();
        let peer = self.peer.map(Address::from).or_else(now);
        OpError::new(operation, peer, errno.into()).into()
    }

    /// Holds more than it may, and is to receive nothing. One of which all was delivered receives a little whatever it has to send: its peer
    /// may be in the same state, and neither would read.
    #[inline]
    fn is_over(&self, allowance: usize) -> bool {
        self.rx.bytes > 0 && self.holds() > allowance
    }

    /// Bytes undelivered and unsent.
    #[inline]
    fn holds(&self) -> usize {
        self.rx.bytes as usize + self.tx.bytes
    }
}

/// All streams of a runtime.
pub(crate) struct Streams {
    slots: Slab<Stream>,
    shared: Shared,
    /// The most streams there were since the heap was trimmed.
    most: usize,
}

impl Streams {
    pub(crate) fn new(io: &Io) -> Self {
        let pool = io.driver.pool().clone();
        let shared = Shared {
            buffers: BufferTable::new(pool.capacity()),
            pool,
            vectors: Vectors::default(),
            carriers: Common::default(),
            turn: TurnLists::default(),
            memory_paused: MemoryPaused::default(),
            heard: Heard::default(),
            is_ending: false,
        };
        Self { slots: Slab::new(), shared, most: 0 }
    }

    /// Takes a stream in, perhaps one that was taken off another runtime, with the bytes it had received.
    pub(crate) fn add(&mut self, io: &Io, (fd, received, permit): Released) -> u32 {
        let slot = self.slots.insert_with(|id| Stream {
            id,
            fd,
            rx: RecvState::with_bytes(received, &io.memory.meter),
            tx: SendState::default(),
            carrier: None,
            closing_wait: None,
            peer: None,
            permit,
            listed: false,
            memory_paused: false,
            dropped: false,
            closing: false,
        });
        self.most = self.most.max(self.slots.len());
        slot
    }

    /// The stream of a handle, and the state that it shares with the others.
    #[inline]
    pub(crate) fn get(&mut self, slot: u32) -> (&mut Stream, &mut Shared) {
        (self.slots.get(slot), &mut self.shared)
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Asks for the slot of an event to come.
    #[inline]
    pub(crate) fn prefetch(&self, token: Token) {
        self.slots.prefetch(token.slot());
    }

    /// The lists of this turn.
    #[inline]
    pub(crate) fn turn(&self) -> &TurnLists {
        &self.shared.turn
    }

    /// Something is to be done that no event will announce: the loop must not sleep.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.turn.is_busy() || self.shared.memory_paused.sweep > 0
    }

    /// Vectors that the kernel has read are free again.
    #[inline]
    pub(crate) fn free_vectors(&mut self, io: &Io) {
        if self.shared.vectors.are_lent() && io.driver.all_taken() {
            self.shared.vectors.free_all();
        }
    }

    /// Gives back what carriers do not need, and memory. The heap's: that looks through all of it, which is worth it only after many
    /// connections have closed.
    #[cold]
    pub(crate) fn trim(&mut self, io: &Io) {
        self.shared.carriers.trim();
        let streams = self.slots.len();
        if self.most >= streams + CROWD {
            io.driver.kernel().trim_heap();
        }
        self.most = streams;
    }

    /// Adds the waits of tasks in these slots.
    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for Stream { fd, rx, tx, .. } in self.slots.values() {
            for (what, waker) in [("to receive", &rx.waker), ("for its sends", &tx.waker)] {
                let note = |waker| waits.note(waker, || format!("{what} on descriptor {fd}"));
                waker.iter().for_each(note);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Slab, Stream, Streams};

    impl Stream {
        /// Bytes received and not yet taken.
        pub(crate) fn undelivered(&self) -> u32 {
            self.rx.bytes
        }
    }

    impl Streams {
        pub(crate) fn slots(&mut self) -> &mut Slab<Stream> {
            &mut self.slots
        }
    }

    #[test]
    fn a_slot_is_small() {
        assert!(size_of::<Stream>() <= 240, "{} bytes", size_of::<Stream>());
    }
}
