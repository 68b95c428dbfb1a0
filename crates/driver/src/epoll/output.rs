//! Operations that wait for a descriptor to become writable: sends that found no room, and connects.
#![allow(unsafe_code)]

use super::poller::ARRIVALS;
use super::{Epoll, calls, message};
use crate::event::Event;
use crate::op::Op;
use crate::token::{Kind, Token};
use annulus_ring::op::IoVec;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// A send that has sent this much ends there, so that its count fits an event.
const MOST: usize = 1 << 30;

#[derive(Clone, Copy, Debug)]
enum Job {
    Send,
    Message { header: *const u8 },
    Connect { address: *const u8, len: u32 },
}

/// One of them.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) token: Token,
    pub(super) fd: RawFd,
    job: Job,
    /// What is still to be sent: a copy, since the submitter's vectors last for the submission only.
    parts: Vec<IoVec>,
    /// Parts of these that went.
    gone: usize,
    sent: usize,
    /// The place of the one that waits behind it.
    next: Option<u32>,
}

impl Output {
    fn empty() -> Self {
        Self {
            token: Token::IGNORED,
            fd: -1,
            job: Job::Send,
            parts: Vec::new(),
            gone: 0,
            sent: 0,
            next: None,
        }
    }

    /// # Safety
    /// See [`Driver::submit`](crate::Driver::submit).
    unsafe fn fill(&mut self, token: Token, op: Op) {
        (self.token, self.gone, self.sent, self.next) = (token, 0, 0, None);
        self.parts.clear();
        (self.fd, self.job) = match op {
            Op::SendMessage { fd, header } => (fd, Job::Message { header }),
            Op::Connect { fd, address, len } => (fd, Job::Connect { address, len }),
            Op::Send { fd, buffer, len } => {
                self.parts.push(IoVec { base: buffer, len: len as usize });
                (fd, Job::Send)
            }
            Op::SendVector { fd, header } => {
                // SAFETY: header and vectors live through the submission, which this is part of.
                self.parts.extend_from_slice(unsafe { calls::parts(header) });
                (fd, Job::Send)
            }
            other => unreachable!("{other:?} does not wait for room"),
        };
    }

    /// Goes on as far as it can. `None` where it has to wait.
    pub(super) fn attempt(&mut self) -> Option<Result<u32, Errno>> {
        match self.job {
            Job::Send => self.send(),
            Job::Message { header } => {
                // SAFETY: the submitter keeps all of it until the terminal event, which is still to come.
                let outcome = unsafe { message::send(self.fd, header) };
                (outcome != Err(Errno::AGAIN)).then_some(outcome.map(|count| count as u32))
            }
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
        // SAFETY: the submitter keeps the bytes until the terminal event, which is still to come.
        match unsafe { calls::send_all(self.fd, &self.parts[self.gone..]) } {
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
    /// Takes an operation in; the answer is its place.
    ///
    /// # Safety
    /// See [`Driver::submit`](crate::Driver::submit).
    pub(super) unsafe fn insert(&mut self, token: Token, op: Op) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Output::empty());
            self.places.len() as u32 - 1
        });
        // SAFETY: the caller's promise, passed on.
        unsafe { self.places[place as usize].fill(token, op) };
        place
    }

    pub(super) fn get(&mut self, place: u32) -> &mut Output {
        &mut self.places[place as usize]
    }

    /// Puts one behind all those that follow `first`.
    fn append(&mut self, first: u32, place: u32) {
        let mut last = first;
        while let Some(next) = self.get(last).next {
            last = next;
        }
        self.get(last).next = Some(place);
    }

    /// The place of a token's operation among `first` and those behind it, and the place before it.
    fn find(&mut self, first: u32, token: Token) -> Option<(Option<u32>, u32)> {
        let (mut before, mut place) = (None, first);
        while self.get(place).token != token {
            (before, place) = (Some(place), self.get(place).next?);
        }
        Some((before, place))
    }

    /// The operation is over.
    pub(super) fn remove(&mut self, place: u32) {
        self.free.push(place);
    }
}

impl Epoll {
    /// # Safety
    /// See [`Driver::submit`](crate::Driver::submit).
    pub(super) unsafe fn start_output(&mut self, token: Token, fd: RawFd, op: Op) {
        let first = self.watches.meet(fd).output;
        if first.is_some() && !matches!(op, Op::SendMessage { .. }) {
            return self.end(token, Err(Errno::BUSY));
        }
        // SAFETY: the caller's promise, passed on.
        let place = unsafe { self.outputs.insert(token, op) };
        if let Some(first) = first {
            self.watches.settle(token, fd);
            return self.outputs.append(first, place);
        }
        self.watches.known(fd).output = Some(place);
        // Nothing tells that a socket can be connected: a first try starts that.
        let starts = matches!(op, Op::Connect { .. });
        let outcome = if starts { self.outputs.get(place).attempt() } else { None };
        if let Some(result) = outcome.or_else(|| self.park(token, fd).err().map(Err)) {
            self.end_output(fd);
            self.end(token, result);
        }
    }

    /// Tries the operation of a descriptor that has one.
    #[cold]
    pub(super) fn attempt_output(&mut self, fd: RawFd) -> Option<Event> {
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

    /// The first operation of a descriptor has ended; the one behind it is the first now.
    pub(super) fn end_output(&mut self, fd: RawFd) {
        if let Some(place) = self.watches.known(fd).output {
            let token = self.outputs.get(place).token;
            self.watches.known(fd).output = self.outputs.get(place).next;
            self.outputs.remove(place);
            self.hush(fd, token);
        }
    }

    /// A datagram socket on which nothing waits for room wants to hear no more of it.
    fn hush(&mut self, fd: RawFd, token: Token) {
        let watch = self.watches.known(fd);
        if token.kind() == Kind::Parcel && watch.output.is_none() && watch.registered {
            // Where that fails, there are edges for nothing.
            _ = self.poller.change(fd, ARRIVALS);
            watch.hears_of_room = false;
        }
    }

    /// Takes an operation off its descriptor, and tells what it comes to.
    pub(super) fn give_up_output(
        &mut self,
        fd: RawFd,
        target: Token,
    ) -> Option<Result<u32, Errno>> {
        let first = self.watches.known(fd).output?;
        let (before, place) = self.outputs.find(first, target)?;
        let output = self.outputs.get(place);
        let (result, next) = (output.given_up(Errno::CANCELED), output.next);
        match before {
            Some(before) => self.outputs.get(before).next = next,
            None => self.watches.known(fd).output = next,
        }
        self.outputs.remove(place);
        self.hush(fd, target);
        Some(result)
    }
}
