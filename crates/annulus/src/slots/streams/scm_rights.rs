//! Descriptors that travel with a stream's bytes.
//!
//! A multishot receive brings no control messages. A stream that may bring descriptors therefore receives one message at a
//! time, into heap memory, and only when somebody waits: what came with some bytes is told apart from what came later. It
//! sends one chunk at a time; a chunk's descriptors go with its first byte.
#![allow(unsafe_code)]

use super::vectors::Passed;
use crate::lease::Lease;
use crate::runtime::inner::Inner;
use crate::slots::datagrams::{Desk, Format, Mail};
use annulus_driver::{Kind, MemoryOp};
use annulus_kernel::IoVec;
use std::os::fd::OwnedFd;

/// Most bytes of such a receive.
const MOST: usize = 16 * 1024;

/// What a stream that passes descriptors has besides.
#[derive(Default)]
pub(crate) struct Passing {
    /// In flight.
    desk: Option<Box<Desk>>,
    /// Came with the bytes that were received last.
    received: Vec<OwnedFd>,
}

impl Inner {
    /// The stream passes descriptors from here on. Nothing of it may be in flight.
    pub(crate) fn pass_descriptors(&mut self, slot: u32) {
        self.streams.get(slot).passing = Some(Box::default());
    }

    pub(crate) fn passes_descriptors(&mut self, slot: u32) -> bool {
        self.streams.get(slot).passing.is_some()
    }

    /// What came with the bytes that were received last.
    pub(crate) fn take_descriptors(&mut self, slot: u32) -> Vec<OwnedFd> {
        let passing = self.streams.get(slot).passing.as_mut();
        passing.map(|passing| std::mem::take(&mut passing.received)).unwrap_or_default()
    }

    /// Starts a receive with control messages. True where it started.
    pub(super) fn arm_on_desk(&mut self, slot: u32) {
        let token = self.stream_token(Kind::Recv, slot);
        let stream = self.streams.get(slot);
        let Some(passing) = &mut stream.passing else { return };
        let header =
            Desk::put(&mut passing.desk, Format::UNIX_DESCRIPTORS, MOST, &self.io.memory.meter);
        let op = MemoryOp::ReceiveMessage { fd: stream.fd, header };
        // SAFETY: the desk stays in the slot until the terminal event.
        unsafe { self.io.start_memory(token, op) };
    }

    /// A receive with control messages has ended: what it brought, where it brought anything.
    pub(super) fn clear_desk(&mut self, slot: u32, len: u32) -> Option<Lease> {
        let passing = self.streams.get(slot).passing.as_mut()?;
        let desk = passing.desk.take()?;
        let format = Format::UNIX_DESCRIPTORS;
        let mut mail = Mail::open(desk.into_lease(format, len as usize), format);
        // What came with bytes that were taken without it goes.
        passing.received = mail.take_descriptors();
        (len > 0).then(|| mail.into_bytes())
    }

    /// The operation that sends the first chunk in the queue, with its descriptors unless they went already.
    pub(super) fn gather_one(&mut self, slot: u32, now: bool) -> MemoryOp {
        let stream = self.streams.get(slot);
        let (fd, tx) = (stream.fd, &mut stream.tx);
        let chunk = tx.queue.first.as_ref().expect("the queue is not empty");
        let bytes = &chunk.as_ref()[tx.sent..];
        let control = if tx.sent == 0 { chunk.control() } else { &[] };
        let part = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        let passed = Passed { control: control.as_ptr(), len: control.len() };
        let header = self.vectors.describe(std::iter::once(part), passed);
        (tx.flying, tx.flying_chunks) = (bytes.len(), 1);
        if now {
            MemoryOp::SendVectorNow { fd, header }
        } else {
            MemoryOp::SendVector { fd, header }
        }
    }
}
