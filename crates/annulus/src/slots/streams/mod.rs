//! Streams: each has a slot with its descriptor, its receive and its sends. The policy is the same
//! for all drivers and kernels.
//!
//! `Streams` finds the slot of an event and calls a method of [`Stream`], which acts on that stream
//! and on the state that all streams share. `Streams` closes a dropped stream at its last event.
//!
//! The life of a slot:
//!
//! 1. *Open*: a handle owns it.
//! 2. *Dropped*: the handle is gone. The receive is cancelled, queued bytes are still sent until
//!    the linger time expires, and the close may wait for bytes that a reset would discard
//!    (`closing_wait`). Or *closing*: the handle waits until the stream can be removed from the
//!    runtime.
//! 3. *Closed*: nothing is in flight, and the descriptor is closed or handed over. A slot is freed
//!    only then, so a token in flight always finds its own slot.

pub(crate) mod carriers;
mod chunk_queue;
mod close;
mod closing_wait;
mod group;
mod memory_paused;
mod recv;
mod send;
mod silent;

use crate::errors::{OpError, Operation};
use crate::slots::Waits;
use crate::slots::connection_limit::Permit;
use crate::slots::loop_state::LoopState;
use crate::slots::turn_lists::TurnLists;
use annulus_driver::{Pool, Slab, SlotId, Token};
use annulus_kernel::{Address, Fd};
use carriers::{Carrier, CarrierResources};
use chunk_queue::SendVectors;
use closing_wait::ClosingWait;
use memory_paused::MemoryPaused;
use recv::{BufferTable, RecvState};
use rustix::io::Errno;
use send::SendState;
use silent::RecentReceivers;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// Number of closed streams after which free heap memory is returned to the system.
const HEAP_TRIM_STREAMS: usize = 64;

/// A stream removed from its runtime: its descriptor, the bytes it had received, and its place in a
/// connection limit.
pub(crate) type ReleasedStream = (Fd, Vec<u8>, Option<Permit>);

pub(crate) struct Stream {
    id: SlotId,
    pub(crate) fd: Fd,
    rx: RecvState,
    tx: SendState,
    /// How the bytes travel, if not by plain socket operations alone.
    carrier: Option<Box<Carrier>>,
    /// A close that waits for the peer.
    closing_wait: Option<Box<ClosingWait>>,
    /// The peer, if it was known when the stream was created: the kernel forgets it when the
    /// connection is reset.
    pub(crate) peer: Option<SocketAddr>,
    /// The stream's place in its listener's connection limit. Not an `Option`, which would take 8
    /// bytes more.
    permit: Permit,
    /// Whether the slot is in `TurnLists::sends`.
    listed: bool,
    /// Whether the slot is in `StreamResources::memory_paused`.
    memory_paused: bool,
    /// Whether the handle has been dropped.
    dropped: bool,
    /// Whether no new receive may start, because the stream was dropped or is about to be removed
    /// from the runtime.
    closing: bool,
}

/// State that all streams share, in addition to `LoopState`.
pub(crate) struct StreamResources {
    pool: Rc<Pool>,
    buffers: BufferTable,
    vectors: SendVectors,
    carriers: CarrierResources,
    turn_lists: TurnLists,
    memory_paused: MemoryPaused,
    recent_receivers: RecentReceivers,
    /// Whether the runtime is ending, so that no close waits for the peer.
    is_ending: bool,
}

impl Stream {
    /// Returns true if the sending direction was shut down and has not failed.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.tx.ending && self.tx.error.is_none()
    }

    /// Returns the number of unsent bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.tx.bytes
    }

    #[cold]
    fn failed(&self, state: &LoopState, operation: Operation, errno: Errno) -> io::Error {
        let now = || state.driver.kernel().peer_address(self.fd).ok();
        let peer = self.peer.map(Address::from).or_else(now);
        OpError::new(operation, peer, errno.into()).into()
    }

    /// Returns true if the stream must not receive, because it has unread bytes and holds more than
    /// its allowance. A stream without unread bytes may receive, however much it has queued to
    /// send. Otherwise two peers in this state would wait for each other forever.
    #[inline]
    fn is_over(&self, allowance: usize) -> bool {
        self.rx.bytes > 0 && self.holds() > allowance
    }

    /// Returns the number of undelivered and unsent bytes.
    #[inline]
    fn holds(&self) -> usize {
        self.rx.bytes as usize + self.tx.bytes
    }
}

pub(crate) struct Streams {
    slots: Slab<Stream>,
    shared: StreamResources,
    /// Highest number of streams since the last call of [`trim`](Self::trim).
    most: usize,
}

impl Streams {
    pub(crate) fn new(state: &LoopState) -> Self {
        let pool = state.driver.pool().clone();
        let shared = StreamResources {
            buffers: BufferTable::new(pool.ids()),
            pool,
            vectors: SendVectors::default(),
            carriers: CarrierResources::default(),
            turn_lists: TurnLists::default(),
            memory_paused: MemoryPaused::default(),
            recent_receivers: RecentReceivers::default(),
            is_ending: false,
        };
        Self { slots: Slab::new(), shared, most: 0 }
    }

    /// Adds a stream, which may come from another runtime with bytes it had received.
    pub(crate) fn add(&mut self, state: &LoopState, (fd, received, permit): ReleasedStream) -> u32 {
        let is_zero_copy = state.driver.receives_zero_copy();
        let slot = self.slots.insert_with(|id| Stream {
            id,
            fd,
            rx: RecvState::with_bytes(received, is_zero_copy, &state.memory.meter),
            tx: SendState::default(),
            carrier: None,
            closing_wait: None,
            peer: None,
            permit: permit.unwrap_or_default(),
            listed: false,
            memory_paused: false,
            dropped: false,
            closing: false,
        });
        self.most = self.most.max(self.slots.len());
        slot
    }

    /// Returns the stream of a handle and the state that all streams share.
    #[inline]
    pub(crate) fn get(&mut self, slot: u32) -> (&mut Stream, &mut StreamResources) {
        (self.slots.get(slot), &mut self.shared)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn prefetch(&self, token: Token) {
        self.slots.prefetch(token.slot());
    }

    #[inline]
    pub(crate) fn turn_lists(&self) -> &TurnLists {
        &self.shared.turn_lists
    }

    /// Returns true if there is work that no event will announce, so the loop must not sleep.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.turn_lists.is_busy() || self.shared.memory_paused.sweep > 0
    }

    /// Frees the vectors that the kernel has read.
    #[inline]
    pub(crate) fn free_vectors(&mut self, state: &LoopState) {
        if self.shared.vectors.are_lent() && state.driver.last_turn_started_all() {
            self.shared.vectors.free_all();
        }
    }

    /// Closes unused pipes and returns free heap memory to the system. The heap is trimmed only
    /// after many connections have closed, because trimming scans all of it.
    #[cold]
    pub(crate) fn trim(&mut self, state: &LoopState) {
        self.shared.carriers.trim();
        let streams = self.slots.len();
        if self.most >= streams + HEAP_TRIM_STREAMS {
            state.driver.kernel().trim_heap();
        }
        self.most = streams;
    }

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
        /// Returns the number of bytes received and not yet taken.
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
    fn a_stream_slot_takes_at_most_240_bytes() {
        assert!(size_of::<Stream>() <= 240, "{} bytes", size_of::<Stream>());
    }
}
