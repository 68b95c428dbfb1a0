//! Pipes: streams that are read and written by calls on the loop, once the driver says that they are ready. No ring operation
//! receives from a pipe as it does from a socket; and a pipe holds 64 KiB, so that its calls are short.
//!
//! The states are those of other streams. A receive polls for readiness, then reads what is there into memory of that size. Of sends see
//! `by_call`.

use super::recv_state::{End, OnHeap};
use super::stream::{Shared, Special, Stream};
use crate::base::io::Io;
use crate::memory::HeapMemory;
use annulus_kernel::Fd;
use annulus_kernel::pipe::{self, SigPipe};
use rustix::io::Errno;

/// Most bytes of a read: what a pipe holds unless its size was changed.
const READ: u64 = 64 * 1024;

impl Stream {
    /// It is a pipe from here on. Nothing of it may be in flight.
    pub(crate) fn be_pipe(&mut self, signal: SigPipe) {
        self.special = Some(Box::new(Special::Pipe(signal)));
    }

    /// The pipe has bytes, or has ended.
    pub(super) fn read_pipe(&mut self, shared: &mut Shared, io: &mut Io) {
        if self.is_dropped() {
            return;
        }
        match self.read_available(io) {
            Ok(0) => self.rx.end = Some(End::Eof),
            Ok(_) => {}
            // Another process was faster.
            Err(Errno::AGAIN) => return self.want(shared, io),
            Err(errno) => self.rx.end = Some(End::Failed(errno)),
        }
        io.after.wakes.extend(self.rx.waker.take());
    }

    /// Reads into memory of the heap, which no unread bytes are in: a task waits.
    fn read_available(&mut self, io: &Io) -> Result<usize, Errno> {
        let available = pipe::available(self.fd)?.clamp(1, READ) as u32;
        let size = io.memory.piece(available);
        let mut memory = HeapMemory::zeroed(size as usize, &io.memory.meter);
        let count = pipe::read(self.fd, &mut memory)?;
        let len = count as u32;
        if len > 0 {
            self.rx.heap = Some(Box::new(OnHeap { memory, len }));
            self.rx.bytes += len;
        }
        Ok(count)
    }
}

/// Closes a pipe whose writer has ended, so that its reader sees the end. The descriptor stays until the handle goes.
///
/// # Errors
/// Out of descriptors: the reader sees the end when the handle goes.
#[cold]
pub(super) fn end_pipe(io: &mut Io, fd: Fd) -> Result<(), Errno> {
    io.driver.release(fd);
    pipe::end(fd)
}
