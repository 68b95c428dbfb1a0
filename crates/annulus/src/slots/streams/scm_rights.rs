//! Descriptors that travel with a stream's bytes (`SCM_RIGHTS`).
//!
//! A multishot receive brings no control messages. A stream that may bring descriptors therefore receives one message at a
//! time, into heap memory, and only when a task waits: what came with some bytes is distinguished from what came later. It
//! sends one chunk at a time; a chunk's descriptors go with its first byte.

use super::send_state::SendState;
use super::vectors::{Passed, Vectors};
use crate::bytes::lease::Lease;
use crate::memory::Meter;
use crate::slots::datagrams::{Format, ReceivedMessage, RecvMsgBuf};
use annulus_driver::MemoryOp;
use annulus_kernel::{Fd, IoVec};
use std::os::fd::OwnedFd;

/// Most bytes of such a receive.
const MOST: usize = 16 * 1024;

/// The additional state of a stream that passes descriptors.
#[derive(Default)]
pub(super) struct ScmRights {
    /// Memory of the receive in flight.
    buffer: Option<Box<RecvMsgBuf>>,
    /// Descriptors that came with the bytes received last.
    received: Vec<OwnedFd>,
    /// Descriptors were lost, and no receive has returned the error yet.
    pub(super) has_lost: bool,
}

impl ScmRights {
    /// Adds the descriptors that came with the bytes received last to a list.
    #[inline(never)]
    pub(super) fn take(&mut self, list: &mut Vec<OwnedFd>) {
        list.append(&mut self.received);
    }

    /// The operation that receives a message. Its memory stays here until [`on_recv`](Self::on_recv).
    pub(super) fn recv(&mut self, fd: Fd, meter: &Meter) -> MemoryOp {
        let header = RecvMsgBuf::put(&mut self.buffer, Format::UNIX_DESCRIPTORS, MOST, meter);
        MemoryOp::RecvMessage { fd, header }
    }

    /// The receive has ended: its bytes, if it has brought any.
    pub(super) fn on_recv(&mut self, len: u32) -> Option<Lease> {
        let buffer = self.buffer.take()?;
        let format = Format::UNIX_DESCRIPTORS;
        let mut message = ReceivedMessage::parse(buffer.into_lease(format, len as usize), format);
        // Descriptors that came with bytes that were taken without them are closed.
        self.has_lost = message.lost_descriptors();
        self.received = message.take_descriptors();
        (len > 0).then(|| message.into_bytes())
    }
}

/// The header that sends the first chunk in the queue, with its descriptors unless they went already.
pub(super) fn gather_one(tx: &mut SendState, vectors: &mut Vectors) -> *const u8 {
    let chunk = tx.queue.first.as_ref().expect("the queue is not empty");
    let bytes = &chunk.as_ref()[tx.first_sent..];
    let control = if tx.first_sent == 0 { chunk.control() } else { &[] };
    let part = IoVec { base: bytes.as_ptr(), len: bytes.len() };
    let passed = Passed { control: control.as_ptr(), len: control.len() };
    (tx.flying, tx.flying_chunks) = (bytes.len(), 1);
    vectors.describe(std::iter::once(part), passed)
}
