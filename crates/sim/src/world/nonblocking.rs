//! System calls on sockets that do not wait. Each is one attempt of the corresponding ring
//! operation.

use super::World;
use crate::faults::Fault;
use crate::memory::SubmittedEntry;
use crate::net::Side;
use crate::op::{Op, OpKind, OpResult, Outcome};
use crate::trace::TraceEvent;
use annulus_kernel::Address;
use annulus_ring::Completion;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// The ring number of operations that are system calls. It is never looked up, because these
/// operations post no completion and select no buffer.
const NO_RING: u32 = u32::MAX;

impl World {
    pub(crate) fn try_now(&mut self, entry: &SubmittedEntry) -> Result<u32, Errno> {
        self.counts.submitted += 1;
        self.trace.record(self.net.time.now(), TraceEvent::Submitted(entry));
        let answer = match self.operation(NO_RING, entry, false) {
            Ok(op) => self.try_op(op, entry),
            Err(errno) => OpResult::error(errno),
        };
        self.wake();
        self.counts.completed += 1;
        let completion = Completion { user_data: 0, result: answer.result, flags: 0 };
        self.trace.record(self.net.time.now(), TraceEvent::Completed(&completion));
        u32::try_from(answer.result).map_err(|_| Errno::from_raw_os_error(-answer.result))
    }

    fn try_op(&mut self, mut op: Op, entry: &SubmittedEntry) -> OpResult {
        op.nowait = true;
        let outcome = if self.defer_send(&op) {
            Outcome::Done(OpResult::error(Errno::AGAIN))
        } else {
            self.first_try(&mut op, entry)
        };
        self.drop_rights(&op);
        match outcome {
            Outcome::Done(answer) => answer,
            Outcome::Waits | Outcome::Continues => OpResult::error(Errno::AGAIN),
        }
    }

    /// Makes a send find no space, if the fault occurs.
    fn defer_send(&mut self, op: &Op) -> bool {
        let (OpKind::Send(_), Some(socket)) = (&op.body, op.socket()) else { return false };
        let is_deferred = self.occurs(Fault::Defer);
        if is_deferred {
            self.net.edge(socket, Side::Write);
        }
        is_deferred
    }

    /// Connects without waiting. A TCP connect that has no outcome yet is in progress, and the next
    /// call returns the outcome.
    pub(crate) fn connect(&mut self, fd: RawFd, address: &Address) -> Result<(), Errno> {
        let (_, socket) = self.socket_of(fd)?;
        let state = self.net.socket_mut(socket);
        let is_tcp = state.unix.is_none() && !state.is_datagram();
        let begins = is_tcp && !state.connect_is_unreported;
        if let Some(error) = self.net.take_failed_connect(socket) {
            // Without an error, it has been read as `SO_ERROR`.
            return Err(error.unwrap_or(Errno::CONNABORTED));
        }
        if begins && self.occurs(Fault::NoMemory) {
            return Err(Errno::NOMEM);
        }
        self.net.connect(socket, address)?;
        let answer = match self.net.connected(socket) {
            Err(Errno::AGAIN) if is_tcp => Err(Errno::INPROGRESS),
            Err(Errno::AGAIN) => {
                self.net.give_up_connect(socket);
                Err(Errno::AGAIN)
            }
            answer => answer,
        };
        self.wake();
        answer
    }

    /// Keeps an error that followed received messages, so that the next call reports it.
    pub(crate) fn keep_error(&mut self, fd: RawFd, error: Errno) {
        if error != Errno::AGAIN
            && let Ok((_, socket)) = self.socket_of(fd)
        {
            self.net.socket_mut(socket).error = Some(error);
        }
    }

    pub(crate) fn is_ready_now(&mut self, fd: RawFd, events: PollFlags) -> Result<bool, Errno> {
        let (_, socket) = self.socket_of(fd)?;
        let ready = self.net.readiness(socket).bits();
        let always = PollFlags::ERR | PollFlags::HUP;
        Ok(ready & (events | always).bits() as u32 != 0)
    }
}
