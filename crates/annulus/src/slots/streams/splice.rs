//! Long transfers between two linked sockets (see `forward`), whose bytes go through a pipe of the kernel and not through the process.
//!
//! A link whose receives bring many bytes each, several times in a row, uses a pipe, and goes back once little comes at a time. Its source
//! then polls for readiness in place of a receive. At that event the socket's bytes are moved into a pipe, and from there to the target at
//! the end of the turn, as one of its sends: the pipe's bytes are accepted, come before what is queued, and count as unsent. Then the source is
//! armed again. A target with anything unsent takes no pipe; if its peer is slow, the task waits until all of it has gone.
//!
//! A pipe belongs to a stream only while it holds bytes. Anything but plain bytes of the source (its end, an urgent mark) is left to a receive.

use super::Streams;
use super::recv_state::{End, Forward};
use super::send_state::SendPhase;
use super::stream::{Life, Shared, Special, Stream};
use crate::base::io::Io;
use crate::slots::slot_id::SlotId;
use annulus_driver::{Kind, Op};
use annulus_kernel::file::pages;
use annulus_kernel::{Fd, pipe, splice};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// Receives in a row that decide how a link's bytes go.
const RUN: u8 = 4;
/// The capacity that a pipe is to have: bytes.
const CAPACITY: usize = 1024 * 1024;
/// A pipe that holds less is not used: bytes.
const LEAST: usize = 64 * 1024;
/// The most pipes of a runtime. Further transfers go by receives.
const PIPES: usize = 64;

/// A pipe, both ends.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// How many there are is how often this is held.
    _counted: Rc<()>,
}

/// The pipes of a runtime: those that hold nothing.
#[derive(Default)]
pub(super) struct Pipes {
    empty: Vec<Pipe>,
    counted: Rc<()>,
}

/// Bytes in a pipe, which are sent before the queued ones.
pub(super) struct Spliced {
    pipe: Pipe,
    bytes: usize,
    /// The source that goes on once all of them were sent.
    from: SlotId,
}

/// The source of a move.
#[derive(Clone, Copy)]
struct Source {
    id: SlotId,
    fd: Fd,
    left: u64,
}

/// The outcome of a move from a source.
enum Moved {
    Bytes(usize),
    /// Nothing yet: look again.
    Nothing,
    /// The pipe holds bytes: the source goes on once they were sent.
    Later,
    /// The target cannot take bytes now: the task waits until it can, or finds out why not.
    Refused,
    /// The bytes go by a receive, not by a pipe.
    ByReceive,
    Failed(Errno),
}

impl Pipes {
    /// An empty pipe, unless there are enough.
    fn take(&mut self) -> Option<Pipe> {
        self.empty.pop().or_else(|| self.open())
    }

    fn open(&self) -> Option<Pipe> {
        if Rc::strong_count(&self.counted) > PIPES {
            return None;
        }
        let (read, write) = pipe::pipe().ok()?;
        let holds = splice::resize(write.as_fd(), CAPACITY).ok()?;
        (holds >= LEAST).then(|| Pipe { read, write, _counted: self.counted.clone() })
    }

    /// Closes those that hold nothing.
    pub(super) fn trim(&mut self) {
        self.empty = Vec::new();
    }
}

impl Forward {
    /// Notes how many bytes came at once. True if the next go the other way.
    #[inline]
    pub(super) fn note(&mut self, len: usize, threshold: usize) -> bool {
        let speaks_for_other = if self.splices { len < threshold / 2 } else { len >= threshold };
        self.run = if speaks_for_other { self.run + 1 } else { 0 };
        self.run == RUN
    }

    fn set_splices(&mut self, splices: bool) {
        (self.splices, self.run) = (splices, 0);
    }
}

impl Stream {
    /// The bytes that are received next are moved through a pipe.
    #[cold]
    pub(super) fn splices(&self) -> bool {
        self.rx.forward.as_ref().is_some_and(|forward| forward.splices)
    }

    /// Whether the source of a copy receives ahead: not what is to go through a pipe, before it is linked again.
    #[cold]
    pub(super) fn is_ahead(&self) -> bool {
        self.life == Life::Linked || !self.splices()
    }

    /// Goes over to a pipe, if the system has such a call.
    #[cold]
    pub(super) fn begin_splicing(&mut self, io: &Io) {
        let allowed = io.driver.kernel().real_descriptors();
        let splices = allowed && pages::prepare(self.fd).is_ok();
        self.rx.forward.iter_mut().for_each(|forward| forward.set_splices(splices));
    }

    pub(super) fn spliced(&mut self) -> Option<&mut Spliced> {
        match self.special.as_deref_mut() {
            Some(Special::Spliced(spliced)) => Some(spliced),
            _ => None,
        }
    }

    /// Discards the bytes in the pipe.
    pub(super) fn discard_spliced(&mut self) {
        self.special.take_if(|special| matches!(**special, Special::Spliced(_)));
    }

    /// Moves the bytes that a source has into a pipe, to be sent.
    fn splice_from(&mut self, shared: &mut Shared, io: &mut Io, source: Source) -> Moved {
        if !self.is_live() || self.tx.refuses() {
            return Moved::Refused;
        }
        if let Some(spliced) = self.spliced() {
            spliced.from = source.id;
            return Moved::Later;
        }
        match self.tx.phase {
            SendPhase::Idle | SendPhase::Now if self.tx.bytes == 0 => {}
            // The sends of this turn are not settled.
            SendPhase::Now => return Moved::Nothing,
            _ if self.tx.bytes == 0 => return Moved::ByReceive,
            _ => return Moved::Refused,
        }
        if !self.is_plain() {
            return Moved::ByReceive;
        }
        let Ok(Some(_)) = self.page_sink(io) else { return Moved::ByReceive };
        let Some(pipe) = shared.pipes.take() else { return Moved::ByReceive };
        let most = usize::try_from(source.left).unwrap_or(usize::MAX).min(CAPACITY);
        let moved = splice::fill(source.fd, pipe.write.as_fd(), most);
        if let Ok(bytes @ 1..) = moved {
            let spliced = Spliced { pipe, bytes, from: source.id };
            self.special = Some(Box::new(Special::Spliced(spliced)));
            self.tx.bytes += bytes;
            io.driver.counters().spliced_bytes += bytes as u64;
            self.list_send(shared);
        } else {
            shared.pipes.empty.push(pipe);
        }
        outcome(moved)
    }

    /// Sends the pipe's bytes, or waits for space.
    #[cold]
    pub(super) fn send_spliced(&mut self, shared: &mut Shared, io: &mut Io, phase: SendPhase) {
        if phase != SendPhase::Now {
            self.tx.phase = SendPhase::Waiting;
            self.linger(io);
            return io.start(self.id.token(Kind::Send), Op::WritableOnce { fd: self.fd });
        }
        self.tx.phase = SendPhase::Now;
        let sent = self.drain_pipe(shared, Ok(0));
        if self.tx.flying == 0 {
            self.await_settling(shared);
        } else {
            self.on_sent(shared, io, sent);
        }
    }

    /// Sends the pipe's bytes as far as there is space, unless the wait for that has failed. The rest stays in flight. It accounts for
    /// the bytes that went, so that no byte of the queue is reported as gone.
    #[cold]
    pub(super) fn drain_pipe(
        &mut self,
        shared: &mut Shared,
        waited: Result<u32, Errno>,
    ) -> Result<u32, Errno> {
        let (fd, signal) = (self.fd, self.tx.pages.unwrap_or(pipe::SigPipe::Raised));
        let failed = waited.err().or(self.tx.error);
        let Some(spliced) = self.spliced() else { return Ok(0) };
        let (from, before) = (spliced.from, spliced.bytes);
        let sent = match failed {
            Some(errno) => Err(errno),
            None => splice::drain(spliced.pipe.read.as_fd(), fd, before, signal),
        };
        let left = before - sent.unwrap_or(0);
        spliced.bytes = left;
        self.tx.bytes -= before - left;
        self.tx.flying = left;
        if left == 0 {
            self.put_pipe_back(shared);
        }
        if left == 0 || matches!(sent, Err(errno) if !is_temporary(errno)) {
            shared.resumed.push(from);
        }
        sent.map(|_| 0)
    }

    fn put_pipe_back(&mut self, shared: &mut Shared) {
        if let Some(special) = self.special.take()
            && let Special::Spliced(spliced) = *special
        {
            shared.pipes.empty.push(spliced.pipe);
        }
    }

    /// Goes on after a move from here.
    fn after_splice(&mut self, shared: &mut Shared, io: &mut Io, moved: Moved) {
        let rx = &mut self.rx;
        let Some(forward) = &mut rx.forward else { return };
        match moved {
            Moved::Bytes(count) => {
                forward.bytes += count as u64;
                forward.left -= count as u64;
                if forward.note(count, io.bounds.splice_threshold) {
                    forward.set_splices(false);
                }
                if forward.left > 0 {
                    return;
                }
            }
            Moved::Later => return,
            Moved::Nothing => return self.want(shared, io),
            Moved::ByReceive => {
                forward.set_splices(false);
                return self.want(shared, io);
            }
            Moved::Refused => {}
            Moved::Failed(errno) => rx.end = Some(End::Failed(errno)),
        }
        io.after.wakes.extend(rx.waker.take());
        self.unlink();
    }
}

impl Streams {
    /// A linked stream whose bytes go through a pipe is readable, or has failed.
    #[cold]
    pub(super) fn splice(&mut self, io: &mut Io, slot: u32) {
        let source = self.slots.get(slot);
        let Some(forward) = source.rx.forward.as_deref() else { return };
        let (to, from) = (forward.to, Source { id: source.id, fd: source.fd, left: forward.left });
        let target = self.slots.find(to.index, to.generation);
        let moved =
            target.map_or(Moved::Refused, |target| target.splice_from(&mut self.shared, io, from));
        self.slots.get(slot).after_splice(&mut self.shared, io, moved);
    }

    /// Arms sources again whose bytes were sent.
    #[cold]
    pub(super) fn resume_splicing(&mut self, io: &mut Io) {
        while let Some(from) = self.shared.resumed.pop() {
            let source = self.slots.find(from.index, from.generation);
            if let Some(source) = source.filter(|source| source.life == Life::Linked) {
                source.want(&mut self.shared, io);
            }
        }
    }
}

/// The error of a socket is reported once, and would be lost; that of the call is not the socket's, and a receive goes on.
fn outcome(moved: Result<usize, Errno>) -> Moved {
    match moved {
        Ok(0) => Moved::ByReceive,
        Ok(count) => Moved::Bytes(count),
        Err(Errno::AGAIN) => Moved::Nothing,
        Err(
            Errno::INVAL
            | Errno::NOSYS
            | Errno::PERM
            | Errno::ACCESS
            | Errno::OPNOTSUPP
            | Errno::NOMEM,
        ) => Moved::ByReceive,
        Err(errno) => Moved::Failed(errno),
    }
}

/// A send that failed so is tried again.
fn is_temporary(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_receives_in_a_row_decide_how_the_next_bytes_go() {
        let mut forward = Forward::default();
        for len in [100, 100, 100, 99, 100, 100, 100] {
            assert!(!forward.note(len, 100), "not in a row");
        }
        assert!(forward.note(100, 100));
        forward.set_splices(true);
        for len in [49, 49, 49, 50, 49, 49, 49] {
            assert!(!forward.note(len, 100), "half as many are enough to go on");
        }
        assert!(forward.note(49, 100));
    }

    #[test]
    fn receives_of_any_size_are_no_reason_if_there_is_no_threshold() {
        let mut forward = Forward::default();
        assert!((0..100).all(|_| !forward.note(1 << 20, usize::MAX)));
    }

    #[test]
    fn pipes_are_used_again_and_bounded() {
        let mut pipes = Pipes::default();
        let taken: Vec<Pipe> = std::iter::from_fn(|| pipes.take()).take(PIPES + 1).collect();
        assert!((1..=PIPES).contains(&taken.len()), "{}", taken.len());
        assert_eq!(Rc::strong_count(&pipes.counted), 1 + taken.len());
        pipes.empty.extend(taken);
        let again = pipes.take().expect("one that is empty");
        pipes.trim();
        assert_eq!(Rc::strong_count(&pipes.counted), 2, "the one in use");
        drop(again);
    }

    #[test]
    fn errors_of_the_socket_end_it_and_those_of_the_call_do_not() {
        assert!(matches!(outcome(Ok(7)), Moved::Bytes(7)));
        assert!(matches!(outcome(Ok(0)), Moved::ByReceive));
        assert!(matches!(outcome(Err(Errno::AGAIN)), Moved::Nothing));
        for errno in [Errno::NOSYS, Errno::PERM, Errno::INVAL] {
            assert!(matches!(outcome(Err(errno)), Moved::ByReceive));
        }
        assert!(matches!(outcome(Err(Errno::CONNRESET)), Moved::Failed(Errno::CONNRESET)));
    }
}
