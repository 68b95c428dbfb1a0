//! Receives into heap memory, for a stream whose pool has no buffer left: memory is taken only once bytes are there.
#![allow(unsafe_code)]

use super::Stream;
use super::recv::RecvState;
use crate::base::io::Io;
use crate::memory::{HeapMemory, Meter};
use crate::slots::arming::Arming;
use annulus_driver::{Kind, MemoryOp};

/// Most bytes of a receive into heap memory, which is zeroed first.
const HEAP: u32 = 16 * 1024;
/// Receives into heap memory that a turn starts at most. It is less than the tasks that a turn runs, so that what these receives bring
/// is taken before more are started: if the pool is too small for what comes to thousands of streams at once, the rest waits in the
/// sockets.
pub(super) const HEAP_A_TURN: usize = 64;

/// Heap memory of a receive: in flight while `len` is zero, then received.
pub(super) struct OnHeap {
    pub(super) memory: Box<HeapMemory>,
    pub(super) len: u32,
}

impl RecvState {
    /// Bytes received earlier, elsewhere: they come first.
    pub(super) fn with_bytes(bytes: Vec<u8>, meter: &Meter) -> Self {
        let mut rx = Self::default();
        let len = bytes.len() as u32;
        rx.add_on_heap(HeapMemory::new(bytes.into_boxed_slice(), Some(meter)), len);
        rx
    }

    /// Takes in the first `len` bytes of heap memory, as received. None may be there.
    pub(super) fn add_on_heap(&mut self, memory: Box<HeapMemory>, len: u32) {
        self.heap = (len > 0).then(|| Box::new(OnHeap { memory, len }));
        self.bytes += len;
    }

    /// Whether a task waits. If none does, the next poll has the stream listed again.
    pub(super) fn is_awaited(&mut self) -> bool {
        let is_awaited = self.waker.is_some();
        if !is_awaited {
            self.arming = Arming::Idle;
        }
        is_awaited
    }
}

impl Stream {
    /// Arms without the pool. Memory is taken only for bytes that are there: thousands of streams may wait for some.
    #[cold]
    pub(super) fn arm_on_heap(&mut self, io: &mut Io, left: &mut usize) -> bool {
        let rx = &mut self.rx;
        if !rx.is_awaited() {
            return true;
        }
        if !rx.is_ready {
            self.poll_readiness(io);
            return true;
        }
        if *left == 0 {
            return false;
        }
        *left -= 1;
        (rx.is_ready, rx.brought.misses, rx.arming) = (false, 0, Arming::Single);
        let size = io.memory.piece(io.driver.pool().buffer_size().min(HEAP));
        let memory = HeapMemory::zeroed(size as usize, &io.memory.meter);
        let heap = rx.heap.insert(Box::new(OnHeap { memory, len: 0 }));
        io.driver.counters().heap_receives += 1;
        let op = MemoryOp::Recv { fd: self.fd, buffer: heap.memory.as_mut_ptr(), len: size };
        // SAFETY: the memory stays in the slot until the terminal event; only that event and what follows it touch it.
        unsafe { io.start_memory(self.id.token(Kind::Recv), op) };
        true
    }
}
