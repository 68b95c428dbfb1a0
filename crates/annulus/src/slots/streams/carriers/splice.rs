//! Long transfers between two linked sockets (see `link`), whose bytes go through a kernel pipe
//! instead of through the process.
//!
//! A link switches to a pipe after several consecutive large receives, and back after several small
//! ones. While it uses a pipe, the source polls for readiness instead of receiving. When the source
//! is ready, its bytes are moved into a pipe, and at the end of the turn from there to the target,
//! as one of the target's sends. The pipe's bytes come before the queue and count as unsent. Then
//! the source is armed again. A target with anything unsent uses no pipe; if its peer is slow, the
//! task waits until everything has been sent.
//!
//! A pipe belongs to a stream only while it holds bytes. Anything but plain bytes from the source,
//! such as its end or an urgent mark, is left to a receive.

use super::link::Forward;
use crate::bytes::chunk::Chunk;
use crate::slots::loop_state::LoopState;
use crate::slots::streams::recv::RecvEnd;
use crate::slots::streams::send::SendPhase;
use crate::slots::streams::{Stream, StreamResources, Streams};
use annulus_driver::SlotId;
use annulus_kernel::file::pages;
use annulus_kernel::{Fd, pipe, splice};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// Requested capacity of a pipe.
const PIPE_CAPACITY_BYTES: usize = 1024 * 1024;
/// Minimum capacity: smaller pipes are not used.
const MIN_PIPE_CAPACITY_BYTES: usize = 64 * 1024;
/// Maximum pipes per runtime. Further transfers use receives.
const MAX_PIPES: usize = 64;

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Each pipe holds one reference, so that the pipes can be counted.
    _counted: Rc<()>,
}

/// The empty pipes of a runtime.
#[derive(Default)]
pub(crate) struct Pipes {
    empty: Vec<Pipe>,
    counted: Rc<()>,
    /// Whether the system refused to move bytes out of a pipe, so that pipes are no longer used.
    refused: bool,
}

/// Bytes in a pipe, which are sent before the queue.
pub(super) struct Spliced {
    pipe: Pipe,
    bytes: usize,
    /// The source that resumes once all bytes have been sent.
    from: SlotId,
}

/// A source whose bytes are moved into a pipe.
#[derive(Clone, Copy)]
struct SpliceSource {
    id: SlotId,
    fd: Fd,
    left: u64,
}

/// The outcome of moving bytes from a source into a pipe.
enum MoveOutcome {
    Bytes(usize),
    /// Nothing was moved, because the outcome of the target's sends is not known yet: poll again.
    Nothing,
    /// The pipe holds bytes: the source resumes once they have been sent.
    Later,
    /// The target cannot take bytes now: the task waits until it can, or finds out why it cannot.
    Refused,
    /// The bytes need a receive instead of a pipe.
    ByReceive,
    Failed(Errno),
}

impl Pipes {
    /// Returns an empty pipe, or `None` if pipes are refused or no further one can be opened.
    fn take(&mut self) -> Option<Pipe> {
        if self.refused {
            return None;
        }
        self.empty.pop().or_else(|| self.open())
    }

    fn open(&self) -> Option<Pipe> {
        if Rc::strong_count(&self.counted) > MAX_PIPES {
            return None;
        }
        let (read, write) = pipe::pipe().ok()?;
        let holds = splice::resize(write.as_fd(), PIPE_CAPACITY_BYTES).ok()?;
        (holds >= MIN_PIPE_CAPACITY_BYTES).then(|| Pipe {
            read,
            write,
            _counted: self.counted.clone(),
        })
    }

    pub(crate) fn trim(&mut self) {
        self.empty = Vec::new();
    }
}

/// Polls a linked source for readiness. A source that is no longer linked receives only if a task
/// asks, not ahead, because later bytes may go through a pipe again.
pub(super) fn arm(stream: &mut Stream, state: &mut LoopState) -> Option<bool> {
    if stream.is_linked() {
        stream.poll_readiness(state);
    } else if stream.rx.idle_unless_awaited() {
        return None;
    }
    Some(true)
}

impl Stream {
    /// Switches to a pipe, if the system supports it.
    pub(super) fn begin_splicing(&mut self, state: &LoopState) {
        let allowed = state.driver.kernel().real_descriptors();
        let splices = allowed && pages::prepare(self.fd).is_ok();
        if let Some(forward) = self.forward() {
            forward.set_splices(splices);
        }
    }

    /// Moves the bytes that a source has into a pipe, to be sent.
    fn splice_from(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        source: SpliceSource,
    ) -> MoveOutcome {
        if self.closing || self.tx.refuses() {
            return MoveOutcome::Refused;
        }
        if let Some(spliced) = self.link().and_then(|link| link.spliced.as_mut()) {
            spliced.from = source.id;
            return MoveOutcome::Later;
        }
        match self.tx.phase {
            SendPhase::Idle | SendPhase::Now if self.tx.bytes == 0 => {}
            // The outcome of this turn's sends is not known yet.
            SendPhase::Now => return MoveOutcome::Nothing,
            _ if self.tx.bytes == 0 => return MoveOutcome::ByReceive,
            _ => return MoveOutcome::Refused,
        }
        let Ok(Some(_)) = self.page_sink(state) else { return MoveOutcome::ByReceive };
        let Some(pipe) = shared.carriers.pipes.take() else { return MoveOutcome::ByReceive };
        let most = usize::try_from(source.left).unwrap_or(usize::MAX).min(PIPE_CAPACITY_BYTES);
        let moved = splice::fill(source.fd, pipe.write.as_fd(), most);
        if let Ok(bytes @ 1..) = moved {
            let spliced = Spliced { pipe, bytes, from: source.id };
            if let Some(link) = self.link_or_insert() {
                link.spliced = Some(spliced);
            }
            self.tx.bytes += bytes;
            state.driver.counters().spliced_bytes += bytes as u64;
            self.list_send(shared);
        } else {
            shared.carriers.pipes.empty.push(pipe);
        }
        outcome(moved)
    }

    /// Continues after a move from this source.
    fn after_splice(
        &mut self,
        shared: &mut StreamResources,
        state: &mut LoopState,
        moved: MoveOutcome,
    ) {
        let threshold = state.bounds.splice_threshold;
        let Some(forward) = self.forward() else { return };
        match moved {
            MoveOutcome::Bytes(count) => {
                if forward.count(count, threshold) {
                    forward.set_splices(false);
                }
                if forward.left > 0 {
                    return;
                }
            }
            MoveOutcome::Later => return,
            MoveOutcome::Nothing => return self.list_recv(shared, state),
            MoveOutcome::ByReceive => {
                forward.set_splices(false);
                return self.list_recv(shared, state);
            }
            MoveOutcome::Refused => {}
            MoveOutcome::Failed(errno) => self.rx.end = Some(RecvEnd::Failed(errno)),
        }
        state.deferred.wakes.extend(self.rx.waker.take());
        self.stop_forwarding();
    }
}

/// Sends the pipe's bytes, or waits for space.
pub(super) fn send(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
    phase: SendPhase,
) {
    if phase != SendPhase::Now {
        return stream.await_writable(state, phase);
    }
    stream.tx.phase = phase;
    let sent = drain(stream, shared, state, Ok(0));
    if stream.tx.flying == 0 {
        stream.await_settling(shared);
    } else {
        stream.on_sent(shared, state, sent);
    }
}

/// Sends as many of the pipe's bytes as fit, unless the wait for space has failed. The rest stays
/// in flight. Accounts for the sent bytes itself and returns 0, so that no byte of the queue is
/// counted as sent.
pub(super) fn drain(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
    waited: Result<u32, Errno>,
) -> Result<u32, Errno> {
    let (fd, signal) = (stream.fd, stream.tx.single.pages.unwrap_or(pipe::SigPipe::Raised));
    let failed = waited.err().or(stream.tx.error);
    let Some(link) = stream.link() else { return Ok(0) };
    let Some(spliced) = &mut link.spliced else { return Ok(0) };
    let (from, before) = (spliced.from, spliced.bytes);
    let sent = match failed {
        Some(errno) => Err(errno),
        None => splice::drain(spliced.pipe.read.as_fd(), fd, before, signal),
    };
    if let Err(errno) = sent
        && failed.is_none()
        && is_of_call(errno)
        && !is_temporary(errno)
    {
        return send_copied(stream, shared, state);
    }
    let left = before - sent.unwrap_or(0);
    spliced.bytes = left;
    if left == 0 {
        shared.carriers.pipes.empty.extend(link.spliced.take().map(|spliced| spliced.pipe));
        stream.drop_unused_link();
    }
    stream.tx.bytes -= before - left;
    stream.tx.flying = left;
    if left == 0 || matches!(sent, Err(errno) if !is_temporary(errno)) {
        shared.carriers.resumed.push(from);
    }
    sent.map(|_| 0)
}

/// Moves the pipe's bytes to the queue because the system refused the call that would have sent
/// them.
#[cold]
fn send_copied(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
) -> Result<u32, Errno> {
    shared.carriers.pipes.refused = true;
    let Some(link) = stream.link() else { return Ok(0) };
    let Some(Spliced { pipe, bytes, from }) = link.spliced.take() else { return Ok(0) };
    let taken = splice::take(pipe.read.as_fd(), bytes);
    shared.carriers.resumed.push(from);
    stream.drop_unused_link();
    stream.tx.flying = 0;
    match taken {
        Ok(taken) => {
            let chunk = Chunk::from(taken);
            state.memory.meter.add(chunk.weight());
            stream.tx.queue.push_front(chunk);
            Ok(0)
        }
        Err(errno) => {
            stream.tx.bytes -= bytes;
            Err(errno)
        }
    }
}

impl Streams {
    /// Handles readiness of a linked source whose bytes go through a pipe.
    pub(crate) fn splice(&mut self, state: &mut LoopState, slot: u32) {
        let source = self.slots.get(slot);
        let (id, fd) = (source.id, source.fd);
        let Some(&mut Forward { to, left, .. }) = source.forward() else { return };
        let from = SpliceSource { id, fd, left };
        let target = self.slots.find(to);
        let moved = target.map_or(MoveOutcome::Refused, |target| {
            target.splice_from(&mut self.shared, state, from)
        });
        self.slots.get(slot).after_splice(&mut self.shared, state, moved);
    }
}

/// Maps the result of moving bytes from a readable socket into a pipe. Socket errors are kept,
/// because a socket reports each error only once. If the call itself is refused, a receive takes
/// over. So it does after `AGAIN`: before an urgent mark the socket stays readable, so another poll
/// would end at once, and the next call would move nothing either.
fn outcome(moved: Result<usize, Errno>) -> MoveOutcome {
    match moved {
        Ok(0) | Err(Errno::AGAIN) => MoveOutcome::ByReceive,
        Ok(count) => MoveOutcome::Bytes(count),
        Err(errno) if is_of_call(errno) => MoveOutcome::ByReceive,
        Err(errno) => MoveOutcome::Failed(errno),
    }
}

/// Returns true for errors of the call that are not errors of a socket: file systems, sockets and
/// seccomp profiles refuse it with many codes.
fn is_of_call(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS
            | Errno::INVAL
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::OVERFLOW
            | Errno::PERM
            | Errno::SPIPE
            | Errno::XDEV
    )
}

/// Returns true for errors after which a send is tried again.
fn is_temporary(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_reused_and_bounded() {
        let mut pipes = Pipes::default();
        let taken: Vec<Pipe> = std::iter::from_fn(|| pipes.take()).take(MAX_PIPES + 1).collect();
        assert!((1..=MAX_PIPES).contains(&taken.len()), "{}", taken.len());
        assert_eq!(Rc::strong_count(&pipes.counted), 1 + taken.len());
        pipes.empty.extend(taken);
        let again = pipes.take().expect("no empty pipe");
        pipes.trim();
        assert_eq!(Rc::strong_count(&pipes.counted), 2, "more pipes remain than the one in use");
        drop(again);
    }

    #[test]
    fn socket_errors_end_the_stream_and_call_errors_do_not() {
        assert!(matches!(outcome(Ok(7)), MoveOutcome::Bytes(7)));
        assert!(matches!(outcome(Ok(0)), MoveOutcome::ByReceive));
        assert!(matches!(outcome(Err(Errno::AGAIN)), MoveOutcome::ByReceive));
        for errno in [Errno::NOSYS, Errno::PERM, Errno::INVAL, Errno::NOBUFS, Errno::XDEV] {
            assert!(matches!(outcome(Err(errno)), MoveOutcome::ByReceive));
        }
        assert!(matches!(outcome(Err(Errno::CONNRESET)), MoveOutcome::Failed(Errno::CONNRESET)));
    }
}
