//! Operations that wait for a descriptor to become writable: sends that found no space, and connects.
#![allow(unsafe_code)]

use super::poller::ARRIVALS;
use super::{Epoll, calls};
use crate::event::Event;
use crate::slots::{Kind, Token};
use annulus_kernel::{Fd, IoVec, Kernel, MsgHeader};
use rustix::event::PollFlags;
use rustix::io::Errno;

/// A send ends after so many bytes, so that its count fits an event.
const MOST: usize = 1 << 30;

/// The work of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Sends parts with the name and the control messages of a header, both of which are valid until the end.
    Send(MsgHeader),
    AwaitWritable,
    Connect {
        address: *const u8,
        len: u32,
    },
}

/// One operation.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) token: Token,
    pub(super) fd: Fd,
    work: Work,
    /// The vectors to be sent: a copy, since the submitter's are valid during the submission only.
    parts: Vec<IoVec>,
    /// How many of these were sent.
    parts_sent: usize,
    sent: usize,
}

impl Output {
    fn empty() -> Self {
        Self {
            token: Token::IGNORED,
            fd: Fd::NONE,
            work: Work::AwaitWritable,
            parts: Vec::new(),
            parts_sent: 0,
            sent: 0,
        }
    }

    fn reset(&mut self, token: Token, fd: Fd, work: Work, parts: &[IoVec]) {
        (self.token, self.fd, self.work) = (token, fd, work);
        (self.parts_sent, self.sent) = (0, 0);
        self.parts.clear();
        self.parts.extend_from_slice(parts);
    }

    /// Goes on as far as it can; `None` if it must wait.
    pub(super) fn attempt(&mut self, kernel: &dyn Kernel) -> Option<Result<u32, Errno>> {
        match self.work {
            Work::Send(header) => self.send(kernel, header),
            // The last edge may be older than a write that was made without the driver, to a pipe.
            Work::AwaitWritable => calls::is_ready(kernel, self.fd, PollFlags::OUT).ok().map(Ok),
            Work::Connect { address, len } => {
                // SAFETY: the address is valid until the terminal event (`Driver::submit_memory`), which this call leads to.
                let outcome = unsafe { calls::connect(kernel, self.fd, address, len) };
                (outcome != Err(Errno::AGAIN)).then_some(outcome)
            }
        }
    }

    /// The result if the send fails or is cancelled now: bytes that were sent count.
    pub(super) fn end_early(&self, errno: Errno) -> Result<u32, Errno> {
        if self.sent > 0 { Ok(self.sent as u32) } else { Err(errno) }
    }

    fn send(&mut self, kernel: &dyn Kernel, header: MsgHeader) -> Option<Result<u32, Errno>> {
        let rest = &self.parts[self.parts_sent..];
        let (vectors, vector_count) = (rest.as_ptr(), rest.len());
        let control_len = if self.sent == 0 { header.control_len } else { 0 };
        let header = MsgHeader { vectors, vector_count, control_len, ..header };
        // SAFETY: bytes and control messages are valid until the terminal event (`Driver::submit_memory`), which is to come.
        match unsafe { calls::send_vector(kernel, self.fd, &raw const header) } {
            Ok(count) => self.advance(count),
            Err(Errno::AGAIN) => return None,
            Err(errno) => return Some(self.end_early(errno)),
        }
        let done = self.parts_sent == self.parts.len() || self.sent >= MOST;
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

/// The operations in flight, in reused entries.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    entries: Vec<Output>,
    free: Vec<u32>,
}

impl Outputs {
    /// The index of a free entry.
    fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(Output::empty());
            self.entries.len() as u32 - 1
        })
    }

    pub(super) fn get(&mut self, index: u32) -> &mut Output {
        &mut self.entries[index as usize]
    }

    /// Frees the vectors that free entries keep for reuse.
    pub(super) fn trim(&mut self) {
        for index in &self.free {
            self.entries[*index as usize].parts = Vec::new();
        }
    }

    /// Frees an entry.
    pub(super) fn remove(&mut self, index: u32) {
        self.free.push(index);
    }
}

impl Epoll {
    /// Starts an operation; a send with the parts that it sends.
    ///
    /// # Safety
    /// Bytes that the parts name, and memory that the work names, must stay valid and unmodified until the terminal event was taken.
    pub(super) unsafe fn start_output(
        &mut self,
        token: Token,
        fd: Fd,
        work: Work,
        parts: &[IoVec],
    ) {
        let watch = self.watches.get_or_insert(fd);
        if watch.output.is_some() {
            return self.end(token, Err(Errno::BUSY));
        }
        let index = self.outputs.allocate();
        watch.output = Some(index);
        let output = self.outputs.get(index);
        output.reset(token, fd, work, parts);
        // A connect starts with its first try; only then does readiness mean anything.
        let starts = matches!(output.work, Work::Connect { .. });
        let outcome = if starts { output.attempt(&*self.common.kernel) } else { None };
        if let Some(result) = outcome.or_else(|| self.park(token, fd).err().map(Err)) {
            self.end_output(fd);
            self.end(token, result);
        }
    }

    /// Tries the operation of a descriptor that has one.
    #[cold]
    pub(super) fn attempt_output(&mut self, fd: Fd) -> Option<Event> {
        let watch = self.watches.known(fd);
        let output = self.outputs.get(watch.output?);
        let token = output.token;
        let Some(result) = output.attempt(&*self.common.kernel) else {
            watch.writable = false;
            return None;
        };
        self.end_output(fd);
        Some(Event { token, result, more: false, buffer: None })
    }

    /// The operation of a descriptor has ended.
    pub(super) fn end_output(&mut self, fd: Fd) {
        let watch = self.watches.known(fd);
        let Some(index) = watch.output.take() else { return };
        let of_datagrams = self.outputs.get(index).token.kind() == Kind::DatagramWritable;
        self.outputs.remove(index);
        if of_datagrams && watch.registered {
            // Nothing waits to send. If the change fails, there are needless edges.
            _ = self.poller.change(fd, ARRIVALS);
            watch.has_out_edges = false;
        }
    }
}
