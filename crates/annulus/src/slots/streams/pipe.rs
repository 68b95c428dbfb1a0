//! Pipes: streams that are read and written by calls on the loop, once the driver says that they are ready. No ring operation
//! receives from a pipe as it does from a socket; and a pipe holds 64 KiB, so that its calls are short.
//!
//! The states are those of other streams. A receive polls for readiness, then reads what is there into memory of that size. A send is
//! tried at once; bytes that find no space wait until the descriptor is writable.

use super::recv_state::{End, OnHeap};
use super::send_state::SendPhase;
use super::stream::{Shared, Special, Stream};
use super::vectors::MOST;
use crate::base::io::Io;
use crate::memory::HeapMemory;
use annulus_driver::{Kind, Op};
use annulus_kernel::Fd;
use annulus_kernel::pipe::{self, SigPipe};
use rustix::io::Errno;
use std::io::IoSlice;
use std::mem;

/// Most bytes of a read: what a pipe holds unless its size was changed.
const READ: u64 = 64 * 1024;

impl Stream {
    /// The stream is a pipe from here on. None of its operations may be in flight.
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

    /// Sends the queued bytes, or waits for space.
    #[cold]
    pub(super) fn send_to_pipe(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        signal: SigPipe,
        phase: SendPhase,
    ) {
        let tx = &mut self.tx;
        let parts = tx.queue.iter().take(MOST);
        let (bytes, chunks) =
            parts.fold((0, 0), |(bytes, chunks), chunk| (bytes + chunk.len(), chunks + 1));
        (tx.flying, tx.flying_chunks) = (bytes - tx.first_sent, chunks);
        if phase != SendPhase::Now {
            tx.phase = SendPhase::Waiting;
            self.linger(io);
            return io.start(self.id.token(Kind::Send), Op::WritableOnce { fd: self.fd });
        }
        tx.phase = SendPhase::Now;
        match self.write_to_pipe(signal, Ok(0)) {
            Ok(count) if count as usize == self.tx.flying => self.await_settling(shared),
            outcome => self.on_sent(shared, io, outcome),
        }
    }

    /// Writes the bytes in flight, unless the wait for space has failed. The bytes that went; `AGAIN` if none did.
    #[cold]
    pub(super) fn write_to_pipe(
        &self,
        signal: SigPipe,
        waited: Result<u32, Errno>,
    ) -> Result<u32, Errno> {
        waited?;
        let tx = &self.tx;
        if let Some(errno) = tx.error {
            return Err(errno);
        }
        let mut skip = tx.first_sent;
        let mut parts = [IoSlice::new(&[]); MOST];
        let chunks = usize::from(tx.flying_chunks);
        for (part, chunk) in parts.iter_mut().zip(tx.queue.iter().take(chunks)) {
            *part = IoSlice::new(&chunk.as_ref()[mem::take(&mut skip)..]);
        }
        Ok(pipe::write(self.fd, &parts[..chunks], signal)? as u32)
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
