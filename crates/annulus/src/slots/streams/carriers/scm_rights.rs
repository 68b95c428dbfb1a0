//! Descriptors that travel with a stream's bytes (`SCM_RIGHTS`).
//!
//! A multishot receive returns no control messages. A stream that may receive descriptors therefore
//! receives one message at a time, into heap memory, and only while a task waits, so that
//! descriptors of different messages are not mixed up. It sends one chunk at a time; a chunk's
//! descriptors travel with its first byte.
#![allow(unsafe_code)]

use super::Carrier;
use crate::memory::HeapMemory;
use crate::slots::arming::Arming;
use crate::slots::datagrams::{MessageFormat, ReceivedMessage, RecvMsgBuf};
use crate::slots::loop_state::LoopState;
use crate::slots::streams::send::SendMemory;
use crate::slots::streams::send::SendPhase;
use crate::slots::streams::{Stream, StreamResources};
use annulus_driver::{Event, MemoryOp, OpKind};
use annulus_kernel::IoVec;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;

/// Maximum bytes per receive.
const MAX_RECEIVE_BYTES: usize = 16 * 1024;

/// Additional state of a stream that passes descriptors.
#[derive(Default)]
pub(crate) struct ScmRights {
    /// Buffer of the receive in flight.
    buffer: Option<Box<RecvMsgBuf>>,
    /// Descriptors that arrived with the bytes received last.
    received: Vec<OwnedFd>,
    /// Descriptors were lost and no receive has returned the error yet.
    has_lost: bool,
}

impl Stream {
    /// Makes the stream pass descriptors with its bytes. None of its operations may be in flight.
    pub(crate) fn pass_descriptors(&mut self) {
        self.carrier = Some(Box::new(Carrier::Descriptors(ScmRights::default())));
    }

    pub(crate) fn passes_descriptors(&self) -> bool {
        matches!(self.carrier.as_deref(), Some(Carrier::Descriptors(_)))
    }

    fn scm_rights(&mut self) -> Option<&mut ScmRights> {
        match self.carrier.as_deref_mut() {
            Some(Carrier::Descriptors(scm_rights)) => Some(scm_rights),
            _ => None,
        }
    }

    /// Appends the descriptors that arrived with the bytes received last to `list`.
    pub(crate) fn take_descriptors(&mut self, list: &mut Vec<OwnedFd>) {
        if let Some(scm_rights) = self.scm_rights() {
            list.append(&mut scm_rights.received);
        }
    }

    /// Closes the descriptors that arrived with the bytes received last, which were taken without
    /// them.
    pub(crate) fn close_descriptors(&mut self) {
        if let Some(scm_rights) = self.scm_rights() {
            (scm_rights.received, scm_rights.has_lost) = (Vec::new(), false);
        }
    }

    /// Reports lost descriptors once, before the bytes that they arrived with.
    ///
    /// # Errors
    /// `QuotaExceeded` if descriptors were lost.
    pub(crate) fn check_descriptors(&mut self) -> io::Result<()> {
        if self.scm_rights().is_some_and(|scm_rights| mem::take(&mut scm_rights.has_lost)) {
            let text = "descriptors sent with the next bytes were lost, because the process may not open more; raise `ulimit -n`";
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        Ok(())
    }
}

/// Receives a message into heap memory if a task waits. Returns false if a task waits but `heap`,
/// the number of heap receives that this turn may still start, is 0.
pub(super) fn arm(stream: &mut Stream, state: &mut LoopState, heap: &mut usize) -> bool {
    if !stream.rx.idle_unless_awaited() {
        return true;
    }
    let (fd, token) = (stream.fd, stream.id.token(OpKind::Recv));
    let Some(scm_rights) = stream.scm_rights().filter(|_| *heap > 0) else { return false };
    *heap -= 1;
    let format = MessageFormat::UNIX_DESCRIPTORS;
    let header =
        RecvMsgBuf::put(&mut scm_rights.buffer, format, MAX_RECEIVE_BYTES, &state.memory.meter);
    stream.rx.arming = Arming::Single;
    // SAFETY: the memory stays in the slot until the terminal event, which takes it.
    unsafe { state.start_memory(token, MemoryOp::RecvMessage { fd, header }) };
    true
}

/// Keeps the bytes and descriptors of a finished receive. Always returns false, because the stream
/// then continues like a plain one.
pub(super) fn on_ready(stream: &mut Stream, state: &LoopState, event: &Event) -> bool {
    let Some(scm_rights) = stream.scm_rights() else { return false };
    let (Some(buffer), Ok(len)) = (scm_rights.buffer.take(), event.result) else { return false };
    let format = MessageFormat::UNIX_DESCRIPTORS;
    let mut message = ReceivedMessage::parse(buffer.into_lease(format, len as usize), format);
    scm_rights.has_lost = message.lost_descriptors();
    scm_rights.received = message.take_descriptors();
    let bytes = Box::from(&*message.into_bytes());
    stream.rx.add_on_heap(HeapMemory::new(bytes, Some(&state.memory.meter)), len);
    false
}

/// Sends the first chunk in the queue, with its descriptors unless they have been sent.
pub(super) fn send(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
    phase: SendPhase,
) {
    let tx = &mut stream.tx;
    let chunk = tx.queue.first.as_ref().expect("the queue is empty");
    let bytes = &chunk.as_ref()[tx.first_sent..];
    let control = if tx.first_sent == 0 { chunk.control() } else { &[] };
    let part = IoVec { base: bytes.as_ptr(), len: bytes.len() };
    (tx.flying, tx.flying_chunks) = (bytes.len(), 1);
    let header = shared.vectors.describe(std::iter::once(part), control);
    stream.submit(shared, state, SendMemory::Vector { header }, phase);
}
