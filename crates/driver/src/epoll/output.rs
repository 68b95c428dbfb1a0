//! Operations that wait for a descriptor to become writable: sends that found no room, and connects.
#![allow(unsafe_code)]

use super::poller::ARRIVALS;
use super::{Epoll, calls, message};
use crate::event::Event;
use crate::op::MemoryOp;
use crate::token::{Kind, Token};
use annulus_kernel::{Fd, IoVec, MsgHeader};
use rustix::io::Errno;
use std::ptr;

/// A send that has sent this much ends there, so that its count fits an event.
const MOST: usize = 1 << 30;

const NOTHING: MsgHeader = MsgHeader {
    name: ptr::null(),
    name_len: 0,
    vectors: ptr::null(),
    vector_count: 0,
    control: ptr::null(),
    control_len: 0,
    flags: 0,
};

#[derive(Clone, Copy, Debug)]
enum Job {
    Send,
    Room,
    Connect { address: *const u8, len: u32 },
}

/// One of them.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) token: Token,
    pub(super) fd: Fd,
    job: Job,
    /// What is still to be sent: a copy, since the submitter's vectors last for the submission only.
    parts: Vec<IoVec>,
    /// Parts of these that went.
    gone: usize,
    sent: usize,
    /// The header they came with, of which only what goes beside the bytes is used: that lasts.
    beside: MsgHeader,
}

impl Output {
    fn empty() -> Self {
        Self {
            token: Token::IGNORED,
            fd: Fd::NONE,
            job: Job::Send,
            parts: Vec::new(),
            gone: 0,
            sent: 0,
            beside: NOTHING,
        }
    }

    fn reset(&mut self, token: Token, fd: Fd, job: Job) {
        (self.token, self.fd, self.job) = (token, fd, job);
        (self.gone, self.sent) = (0, 0);
        self.parts.clear();
        self.beside = NOTHING;
    }

    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    unsafe fn fill(&mut self, token: Token, op: MemoryOp) {
        match op {
            MemoryOp::Connect { fd, address, len } => {
                self.reset(token, fd, Job::Connect { address, len });
            }
            MemoryOp::Send { fd, buffer, len } => {
                self.reset(token, fd, Job::Send);
                self.parts.push(IoVec { base: buffer, len: len as usize });
            }
            MemoryOp::SendVector { fd, header } => {
                self.reset(token, fd, Job::Send);
                // SAFETY: header and vectors live through the submission, which this is part of.
                self.parts.extend_from_slice(unsafe { calls::parts(header) });
                // SAFETY: as above.
                self.beside = unsafe { header.cast::<MsgHeader>().read() };
            }
            other => unreachable!("{other:?} does not wait for room"),
        }
    }

    /// Goes on as far as it can. `None` where it has to wait.
    pub(super) fn attempt(&mut self) -> Option<Result<u32, Errno>> {
        match self.job {
            Job::Send => self.send(),
            // It is tried when there is some.
            Job::Room => Some(Ok(0)),
            Job::Connect { address, len } => {
                // SAFETY: the submitter keeps the address until the terminal event, which is still to come.
                let outcome = unsafe { calls::connect(self.fd, address, len) };
                (outcome != Err(Errno::AGAIN)).then_some(outcome)
            }
        }
    }

    /// What it comes to when it is given up, or fails, now.
    pub(super) fn given_up(&self, errno: Errno) -> Result<u32, Errno> {
        if self.sent > 0 { Ok(self.sent as u32) } else { Err(errno) }
    }

    fn send(&mut self) -> Option<Result<u32, Errno>> {
        let rest = &self.parts[self.gone..];
        let (vectors, vector_count) = (rest.as_ptr(), rest.len());
        let control_len = if self.sent == 0 { self.beside.control_len } else { 0 };
        let header = MsgHeader { vectors, vector_count, control_len, ..self.beside };
        // SAFETY: the submitter keeps bytes and control messages until the terminal event, which is still to come.
        match unsafe { message::send_vector(self.fd, ptr::from_ref(&header).cast(), rest) } {
            Ok(count) => self.advance(count),
            Err(Errno::AGAIN) => return None,
            Err(errno) => return Some(self.given_up(errno)),
        }
        let done = self.gone == self.parts.len() || self.sent >= MOST;
        done.then_some(Ok(self.sent as u32))
    }

    fn advance(&mut self, mut count: usize) {
        self.sent += count;
        while let Some(part) = self.parts.get_mut(self.gone) {
            if count < part.len {
                // SAFETY: the count is within the part.
                part.base = unsafe { part.base.add(count) };
                part.len -= count;
                break;
            }
            count -= part.len;
            self.gone += 1;
        }
    }
}

/// Those under way, in places that are used again.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    places: Vec<Output>,
    free: Vec<u32>,
}

impl Outputs {
    /// A free place.
    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(Output::empty());
            self.places.len() as u32 - 1
        })
    }

    pub(super) fn get(&mut self, place: u32) -> &mut Output {
        &mut self.places[place as usize]
    }

    /// Gives back what places without an operation keep for the next one.
    pub(super) fn trim(&mut self) {
        for place in &self.free {
            self.places[*place as usize].parts = Vec::new();
        }
    }

    /// The operation is over.
    pub(super) fn remove(&mut self, place: u32) {
        self.free.push(place);
    }
}

impl Epoll {
    /// Tells when there is room to send.
    pub(super) fn await_room(&mut self, token: Token, fd: Fd) {
        self.start(token, fd, |output| output.reset(token, fd, Job::Room));
    }

    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    pub(super) unsafe fn start_output(&mut self, token: Token, fd: Fd, op: MemoryOp) {
        // SAFETY: the caller's promise, passed on.
        self.start(token, fd, |output| unsafe { output.fill(token, op) });
    }

    fn start(&mut self, token: Token, fd: Fd, fill: impl FnOnce(&mut Output)) {
        let watch = self.watches.meet(fd);
        if watch.output.is_some() {
            return self.end(token, Err(Errno::BUSY));
        }
        let place = self.outputs.place();
        watch.output = Some(place);
        let output = self.outputs.get(place);
        fill(output);
        // Nothing tells that a socket can be connected: a first try starts that.
        let starts = matches!(output.job, Job::Connect { .. });
        let outcome = if starts { output.attempt() } else { None };
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
        let Some(result) = output.attempt() else {
            watch.writable = false;
            return None;
        };
        self.end_output(fd);
        Some(Event { token, result, more: false, buffer: None })
    }

    /// The operation of a descriptor has ended.
    pub(super) fn end_output(&mut self, fd: Fd) {
        let watch = self.watches.known(fd);
        let Some(place) = watch.output.take() else { return };
        let of_datagrams = self.outputs.get(place).token.kind() == Kind::Room;
        self.outputs.remove(place);
        if of_datagrams && watch.registered {
            // It wants to hear no more of room. Where that fails, there are edges for nothing.
            _ = self.poller.change(fd, ARRIVALS);
            watch.hears_of_room = false;
        }
    }
}
