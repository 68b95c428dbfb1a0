//! Sends by a system call on the loop, of streams that the ring cannot send to: pipes, and sockets whose records the kernel encrypts, which
//! refuse the flag by which a send on the ring reports a short count.
//!
//! The states are those of other streams: a send is tried at once; what finds no space waits until the descriptor is writable.

use super::send_state::SendPhase;
use super::stream::{Shared, Special, Stream};
use super::vectors::MOST;
use crate::base::io::Io;
use annulus_driver::{Kind, Op};
use annulus_kernel::pipe::{self, SigPipe};
use rustix::io::Errno;
use std::io::IoSlice;
use std::mem;

/// The call that sends.
#[derive(Clone, Copy)]
pub(super) enum SendCall {
    /// To a pipe.
    Write(SigPipe),
    /// To a socket.
    Send,
}

impl Stream {
    /// The call, if it is not sent to by the ring.
    #[inline]
    pub(super) fn send_call(&self) -> Option<SendCall> {
        match self.special.as_deref() {
            Some(Special::Pipe(signal)) => Some(SendCall::Write(*signal)),
            Some(Special::KernelTls(_)) => Some(SendCall::Send),
            _ => None,
        }
    }

    /// Sends what is queued, or waits for space.
    #[cold]
    pub(super) fn send_by_call(
        &mut self,
        shared: &mut Shared,
        io: &mut Io,
        call: SendCall,
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
        match self.call_send(io, call, Ok(0)) {
            Ok(count) if count as usize == self.tx.flying => self.await_settling(shared),
            outcome => self.on_sent(shared, io, outcome),
        }
    }

    /// Sends what is in flight, unless the wait for space has failed. The bytes that went; `AGAIN` if none did.
    #[cold]
    pub(super) fn call_send(
        &mut self,
        io: &Io,
        call: SendCall,
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
        let parts = &parts[..chunks];
        let count = match call {
            SendCall::Write(signal) => pipe::write(self.fd, parts, signal)?,
            SendCall::Send => {
                let sent = io.driver.kernel().send_now(self.fd, parts, false);
                sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?
            }
        };
        self.count_records(count as u64);
        Ok(count as u32)
    }
}
