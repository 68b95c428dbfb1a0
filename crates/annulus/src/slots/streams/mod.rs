//! Streams: a slot each, with its descriptor, its receive and its sends. Policy for all drivers and kernels.
//!
//! `Streams` finds the slot of an event once; what happens to one stream is a method of [`Stream`], with what all of them
//! share. A stream that was dropped is closed by `Streams`, at the end of the event that was its last.

mod buffer_queue;
mod carriers;
mod chunk_queue;
mod close;
mod enqueue;
mod memory_paused;
mod recv;
mod recv_state;
mod send;
mod send_state;
mod silent;
mod stream;
mod vectors;

use crate::base::connection_limit::Permit;
use crate::base::io::Io;
use crate::base::queues::Queues;
use crate::slots::turn_lists::TurnLists;
use crate::slots::waits::Waits;
use annulus_driver::{Slab, Token};
use annulus_kernel::Fd;
use buffer_queue::Links;
pub(crate) use carriers::PageSink;
use memory_paused::MemoryPaused;
use recv_state::RecvState;
use send_state::SendState;
use silent::Heard;
use stream::Life;
pub(crate) use stream::{Released, Shared, Stream};
use vectors::Vectors;

/// After so many streams have closed, the heap's free memory goes back to the system.
const CROWD: usize = 64;

/// All streams of a runtime.
pub(crate) struct Streams {
    slots: Slab<Stream>,
    shared: Shared,
    /// The most streams there were since the heap was trimmed.
    most: usize,
}

impl Streams {
    pub(crate) fn new(io: &Io) -> Self {
        let memory_paused = MemoryPaused::new(&io.memory);
        let shared = Shared {
            links: Links::new(io.driver.pool().capacity()),
            vectors: Vectors::new(),
            carriers: carriers::Common::default(),
            turn: TurnLists::default(),
            memory_paused,
            heard: Heard::default(),
        };
        Self { slots: Slab::new(), shared, most: 0 }
    }

    /// Takes a stream in.
    pub(crate) fn add(&mut self, fd: Fd, permit: Option<Permit>) -> u32 {
        self.insert(fd, permit, RecvState::default())
    }

    /// Takes a stream in that was taken off another runtime, with the bytes it had received.
    pub(crate) fn adopt(
        &mut self,
        io: &Io,
        fd: Fd,
        received: Vec<u8>,
        permit: Option<Permit>,
    ) -> u32 {
        self.insert(fd, permit, RecvState::with_bytes(received, &io.memory.meter))
    }

    fn insert(&mut self, fd: Fd, permit: Option<Permit>, rx: RecvState) -> u32 {
        let slot = self.slots.insert_with(|id| Stream {
            id,
            fd,
            rx,
            tx: SendState::default(),
            carrier: None,
            peer: None,
            permit,
            memory_paused: false,
            life: Life::Open,
        });
        self.most = self.most.max(self.slots.len());
        slot
    }

    /// The stream of a handle, and the state that it shares with the others.
    #[inline]
    pub(crate) fn get(&mut self, slot: u32) -> (&mut Stream, &mut Shared) {
        (self.slots.get(slot), &mut self.shared)
    }

    #[cfg(test)]
    pub(crate) fn slots(&mut self) -> &mut Slab<Stream> {
        &mut self.slots
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

    /// Sends of this turn are to be settled.
    #[inline]
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.shared.turn.unsettled.is_empty()
    }

    /// Something is to be done that no event will announce: the loop must not sleep.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.turn.is_busy() || self.shared.memory_paused.sweep > 0
    }

    /// Everything submitted so far has been taken by the kernel.
    #[inline]
    pub(crate) fn all_taken(&mut self) {
        self.shared.vectors.free_all();
    }

    /// Gives pipes and memory back that are not needed. The heap's: that looks through all of it, which is worth it only after many
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

    /// Adds the slots that wait for the next turn.
    pub(crate) fn add_queues(&self, queues: &mut Queues) {
        self.shared.turn.add_to(queues);
    }

    /// Adds the waits of tasks in these slots.
    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for slot in self.slots.indices() {
            let stream = self.slots.get(slot);
            let directions =
                [("to receive", stream.rx.waker()), ("for its sends", stream.tx.waker())];
            for (what, waker) in directions {
                if let Some(waker) = waker {
                    waits.note(waker, || format!("{what} on descriptor {}", stream.fd));
                }
            }
        }
    }
}
