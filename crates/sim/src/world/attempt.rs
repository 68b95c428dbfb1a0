//! One attempt at an accept, a connect, a poll, a timer, a notification or a file call. Receives
//! and sends have their own files.

use super::World;
use crate::descriptors::File;
use crate::faults::Fault;
use crate::net::SocketId;
use crate::op::{Op, OpKind, OpResult, Outcome};
use annulus_ring::{Completion, CompletionFlags};
use rustix::io::Errno;

/// `POLLERR` and `POLLHUP`, which every poll reports.
const ALWAYS_POLLED: u32 = 0x8 | 0x10;

impl World {
    #[inline]
    pub(super) fn attempt(&mut self, op: &mut Op) -> Outcome {
        let Some(socket) = op.socket() else { return self.attempt_without_socket(op) };
        match op.body {
            OpKind::Receive(_) => self.attempt_receive(op, socket),
            OpKind::Send(_) => self.attempt_send(op, socket),
            OpKind::Accept { multi } => self.attempt_accept(op, socket, multi),
            OpKind::Connect => Outcome::done_unless_again(self.net.connected(socket).map(|()| 0)),
            OpKind::Poll { events, multi } => self.attempt_poll(op, socket, events, multi),
            OpKind::Timer { .. } | OpKind::Notification(_) | OpKind::File(_) | OpKind::Never => {
                Outcome::Waits
            }
        }
    }

    /// Completes an operation that waits for time to pass instead of a socket.
    fn attempt_without_socket(&mut self, op: &mut Op) -> Outcome {
        match &mut op.body {
            OpKind::Timer { .. } => Outcome::done(Err(Errno::TIME)),
            OpKind::Notification(_) => {
                let flags = CompletionFlags::NOTIF.bits();
                Outcome::Done(OpResult { flags, ..OpResult::good(0) })
            }
            OpKind::File(work) => match work.call.take() {
                Some(call) => Outcome::done(self.perform_call(work.disk, call)),
                None => Outcome::Waits,
            },
            _ => Outcome::Waits,
        }
    }

    /// Accepts one connection, or all that wait if `multi` is set.
    fn attempt_accept(&mut self, op: &Op, socket: SocketId, multi: bool) -> Outcome {
        loop {
            let fd = match self.accept(socket) {
                Ok(fd) => fd,
                refused => return Outcome::done_unless_again(refused),
            };
            if !multi || self.occurs(Fault::EndsWell) || !self.post_multishot(op, fd as i32, 0) {
                return Outcome::done(Ok(fd));
            }
            if self.occurs(Fault::EndsBadly) {
                return Outcome::done(Err(Errno::NOMEM));
            }
        }
    }

    /// Accepts a connection. As on Linux, the check for a free descriptor comes first: a full table
    /// is an error even if no connection waits.
    fn accept(&mut self, socket: SocketId) -> Result<usize, Errno> {
        if !self.files.has_free() || self.occurs(Fault::AcceptLimit) {
            return Err(Errno::MFILE);
        }
        let child = self.net.accept(socket)?;
        self.files.open(File::Socket(child)).map(|fd| fd as usize)
    }

    /// Reports the readiness that a poll asks for. A multishot poll is only tried after a change.
    fn attempt_poll(&mut self, op: &Op, socket: SocketId, events: u32, multi: bool) -> Outcome {
        let mask = self.net.readiness(socket).bits() & (events | ALWAYS_POLLED);
        if mask == 0 || multi && self.post_multishot(op, mask as i32, 0) {
            return Outcome::Waits;
        }
        Outcome::done(Ok(mask as usize))
    }

    pub(super) fn is_polled_ready(&self, socket: SocketId, events: u32) -> bool {
        self.net.events(socket).bits() & (events | ALWAYS_POLLED) != 0
    }

    /// Posts a completion with MORE. Returns false if there is no space, so that it must become the
    /// last one.
    #[inline]
    pub(super) fn post_multishot(&mut self, op: &Op, result: i32, flags: u32) -> bool {
        let flags = flags | CompletionFlags::MORE.bits();
        self.post_more(op.ring, Completion { user_data: op.user_data, result, flags })
    }

    /// Returns `count`, or less if the fault occurs and there is more than one byte.
    #[inline]
    pub(super) fn shorten(&mut self, count: usize, fault: Fault) -> usize {
        if count > 1 && self.occurs(fault) {
            return self.random.between(1, count as u64 - 1) as usize;
        }
        count
    }
}

impl Outcome {
    #[inline]
    pub(super) fn done(result: Result<usize, Errno>) -> Self {
        Self::Done(OpResult::from(result))
    }

    /// Like [`done`](Self::done), but waits on EAGAIN.
    #[inline]
    pub(super) fn done_unless_again(result: Result<usize, Errno>) -> Self {
        if result == Err(Errno::AGAIN) { Self::Waits } else { Self::done(result) }
    }
}
