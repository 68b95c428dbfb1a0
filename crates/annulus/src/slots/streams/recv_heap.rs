//! Receives into heap memory, for streams whose pool has no buffer left. Memory is allocated only
//! once bytes have arrived.
#![allow(unsafe_code)]

use super::Stream;
use super::recv::RecvState;
use crate::memory::{HeapMemory, Meter};
use crate::slots::arming::Arming;
use crate::slots::loop_state::LoopState;
use annulus_driver::{Kind, MemoryOp};

/// Maximum bytes per receive into heap memory, which is zeroed first.
const MAX_HEAP_RECEIVE_BYTES: u32 = 16 * 1024;
/// Maximum receives into heap memory that a turn starts. It is less than the number of tasks that a
/// turn runs, so that received bytes are taken before more receives are started. If the pool is too
/// small for the data of thousands of streams, the rest waits in the sockets.
pub(super) const MAX_HEAP_RECEIVES_PER_TURN: usize = 64;

/// Heap memory of a receive: in flight while `len` is zero, then received.
pub(super) struct HeapReceive {
    pub(super) memory: Box<HeapMemory>,
    pub(super) len: u32,
}

impl RecvState {
    /// Starts with bytes that were received earlier on another runtime; they come first.
    pub(super) fn with_bytes(bytes: Vec<u8>, meter: &Meter) -> Self {
        let mut rx = Self::default();
        let len = bytes.len() as u32;
        rx.add_on_heap(HeapMemory::new(bytes.into_boxed_slice(), Some(meter)), len);
        rx
    }

    /// Adds the first `len` bytes of heap memory as received. There must be no other heap memory.
    pub(super) fn add_on_heap(&mut self, memory: Box<HeapMemory>, len: u32) {
        self.heap = (len > 0).then(|| Box::new(HeapReceive { memory, len }));
        self.bytes += len;
    }

    /// Returns true if a task waits. Otherwise sets the state to idle, and the next poll lists the
    /// stream again.
    pub(super) fn idle_unless_awaited(&mut self) -> bool {
        let is_awaited = self.waker.is_some();
        if !is_awaited {
            self.arming = Arming::Idle;
        }
        is_awaited
    }
}

impl Stream {
    /// Arms without the pool. Memory is allocated only for bytes that have arrived: thousands of
    /// streams may be waiting.
    #[cold]
    pub(super) fn start_heap_receive(&mut self, state: &mut LoopState, left: &mut usize) -> bool {
        let rx = &mut self.rx;
        if !rx.idle_unless_awaited() {
            return true;
        }
        if !rx.is_ready {
            self.poll_readiness(state);
            return true;
        }
        if *left == 0 {
            return false;
        }
        *left -= 1;
        (rx.is_ready, rx.last_outcome.misses, rx.arming) = (false, 0, Arming::Single);
        let size =
            state.memory.piece(state.driver.pool().buffer_size().min(MAX_HEAP_RECEIVE_BYTES));
        let memory = HeapMemory::zeroed(size as usize, &state.memory.meter);
        let heap = rx.heap.insert(Box::new(HeapReceive { memory, len: 0 }));
        state.driver.counters().heap_receives += 1;
        let op = MemoryOp::Recv { fd: self.fd, buffer: heap.memory.as_mut_ptr(), len: size };
        // SAFETY: the memory stays in the slot until the terminal event, and nothing else touches
        // it before.
        unsafe { state.start_memory(self.id.token(Kind::Recv), op) };
        true
    }
}
