//! Operations that wait for a descriptor to become writable: sends, connects and polls.
#![allow(unsafe_code)]

use super::poller::READ_EVENTS;
use super::{Epoll, calls};
use crate::event::Event;
use crate::slots::{OpKind, Token};
use annulus_kernel::{Fd, IoVec, Kernel, MsgHeader};
use rustix::event::PollFlags;
use rustix::io::Errno;

/// Bytes after which a send ends, so that its count fits into an event.
const MAX_SEND_BYTES: usize = 1 << 30;

/// The operation, with its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutputKind {
    /// Sends parts with the name and the control messages of a header; both stay valid until the
    /// operation ends.
    Send(MsgHeader),
    AwaitWritable,
    Connect {
        address: *const u8,
        len: u32,
    },
}

/// An operation that waits for its descriptor to become writable.
#[derive(Debug)]
pub(super) struct OutputOp {
    pub(super) token: Token,
    pub(super) fd: Fd,
    kind: OutputKind,
    /// The vectors to send: a copy, since the submitter's vectors are valid only during the
    /// submission.
    parts: Vec<IoVec>,
    /// Number of parts that have been sent completely.
    parts_sent: usize,
    sent: usize,
}

impl OutputOp {
    fn empty() -> Self {
        Self {
            token: Token::IGNORED,
            fd: Fd::NONE,
            kind: OutputKind::AwaitWritable,
            parts: Vec::new(),
            parts_sent: 0,
            sent: 0,
        }
    }

    fn reset(&mut self, token: Token, fd: Fd, kind: OutputKind, parts: &[IoVec]) {
        (self.token, self.fd, self.kind) = (token, fd, kind);
        (self.parts_sent, self.sent) = (0, 0);
        self.parts.clear();
        self.parts.extend_from_slice(parts);
    }

    /// Tries the operation once. Returns `None` if it must wait.
    pub(super) fn attempt(&mut self, kernel: &dyn Kernel) -> Option<Result<u32, Errno>> {
        match self.kind {
            OutputKind::Send(header) => self.send(kernel, header),
            // A write that bypassed the driver may have filled a pipe since the last edge.
            OutputKind::AwaitWritable => {
                calls::check_ready(kernel, self.fd, PollFlags::OUT).ok().map(Ok)
            }
            OutputKind::Connect { address, len } => {
                // SAFETY: the address is valid until the terminal event (`Driver::submit_memory`),
                // which has not been reported yet.
                let outcome = unsafe { calls::connect(kernel, self.fd, address, len) };
                (outcome != Err(Errno::AGAIN)).then_some(outcome)
            }
        }
    }

    /// Returns the result of an operation that fails or is cancelled: the number of bytes sent, if
    /// any, otherwise the error.
    pub(super) fn end_early(&self, errno: Errno) -> Result<u32, Errno> {
        if self.sent > 0 { Ok(self.sent as u32) } else { Err(errno) }
    }

    fn send(&mut self, kernel: &dyn Kernel, header: MsgHeader) -> Option<Result<u32, Errno>> {
        let rest = &self.parts[self.parts_sent..];
        let (vectors, vector_count) = (rest.as_ptr(), rest.len());
        let control_len = if self.sent == 0 { header.control_len } else { 0 };
        let header = MsgHeader { vectors, vector_count, control_len, ..header };
        // SAFETY: the bytes and the control messages are valid until the terminal event
        // (`Driver::submit_memory`), which has not been reported yet.
        match unsafe { calls::send_vector(kernel, self.fd, &raw const header) } {
            Ok(count) => self.advance(count),
            Err(Errno::AGAIN) => return None,
            Err(errno) => return Some(self.end_early(errno)),
        }
        let done = self.parts_sent == self.parts.len() || self.sent >= MAX_SEND_BYTES;
        done.then_some(Ok(self.sent as u32))
    }

    fn advance(&mut self, mut count: usize) {
        self.sent += count;
        while let Some(part) = self.parts.get_mut(self.parts_sent) {
            if count < part.len {
                // SAFETY: the count is less than the length of the part.
                part.base = unsafe { part.base.add(count) };
                part.len -= count;
                break;
            }
            count -= part.len;
            self.parts_sent += 1;
        }
    }
}

/// The table of operations in flight. Entries are reused.
#[derive(Debug, Default)]
pub(super) struct OutputTable {
    entries: Vec<OutputOp>,
    free: Vec<u32>,
}

impl OutputTable {
    fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(OutputOp::empty());
            self.entries.len() as u32 - 1
        })
    }

    pub(super) fn get(&mut self, index: u32) -> &mut OutputOp {
        &mut self.entries[index as usize]
    }

    /// Frees the vectors that free entries keep for reuse.
    pub(super) fn trim(&mut self) {
        for index in &self.free {
            self.entries[*index as usize].parts = Vec::new();
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.free.push(index);
    }
}

impl Epoll {
    /// Starts an operation. `parts` are the bytes of a send, and empty otherwise.
    ///
    /// # Safety
    /// Memory that the parts and the kind refer to must stay valid and unmodified until the
    /// terminal event has been taken.
    pub(super) unsafe fn start_output(
        &mut self,
        token: Token,
        fd: Fd,
        kind: OutputKind,
        parts: &[IoVec],
    ) {
        let watch = self.watches.get_or_insert(fd);
        if watch.output.is_some() {
            return self.end(token, Err(Errno::BUSY));
        }
        let index = self.outputs.allocate();
        watch.output = Some(index);
        let output = self.outputs.get(index);
        output.reset(token, fd, kind, parts);
        // The first try starts a connect. Until then, the socket's readiness means nothing.
        let starts = matches!(output.kind, OutputKind::Connect { .. });
        let outcome = if starts { output.attempt(&*self.common.kernel) } else { None };
        if let Some(result) = outcome.or_else(|| self.await_edge(token, fd).err().map(Err)) {
            self.end_output(fd);
            self.end(token, result);
        }
    }

    /// Tries the output operation of a descriptor, if it has one.
    #[cold]
    pub(super) fn attempt_output(&mut self, fd: Fd) -> Option<Event> {
        let watch = self.watches.get(fd);
        let output = self.outputs.get(watch.output?);
        let token = output.token;
        let Some(result) = output.attempt(&*self.common.kernel) else {
            watch.writable = false;
            return None;
        };
        self.end_output(fd);
        Some(Event { token, result, more: false, buffer: None })
    }

    /// Removes the operation of a descriptor, which has ended.
    pub(super) fn end_output(&mut self, fd: Fd) {
        let watch = self.watches.get(fd);
        let Some(index) = watch.output.take() else { return };
        let of_datagrams = self.outputs.get(index).token.kind() == OpKind::DatagramWritable;
        self.outputs.remove(index);
        if of_datagrams && watch.registered {
            // No send waits any longer. If the change fails, the only cost is needless edges.
            _ = self.poller.change(fd, READ_EVENTS);
            watch.has_out_edges = false;
        }
    }
}
