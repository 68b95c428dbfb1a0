//! The sending half of a stream's slot.
//!
//! *Idle* → *now* or *waiting* → idle, when the send's outcome is known. A zero-copy send is in *zero-copy* until its first
//! event, and if not all went, in *awaiting memory* until its notification. *Retrying* waits for a timer, with nothing in
//! flight; *polling* waits for space in the socket, and *stopping poll* for the end of that. `send`, `zero_copy` and `pages` say when
//! each is taken.

use crate::bytes::chunk::Chunk;
use crate::timers::TimerKey;
use annulus_kernel::pipe::SigPipe;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem;
use std::task::Waker;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SendPhase {
    #[default]
    Idle,
    /// In flight, not to wait for space in the socket. Without an event until the driver is settled, all of it went.
    Now,
    /// In flight, waiting for space in the socket.
    Waiting,
    /// In flight without a copy; how much went is not known.
    ZeroCopy,
    /// Not all bytes of a zero-copy send went: its outcome is handled once its memory is free.
    AwaitingMemory,
    /// The system was short of memory: tried again by a timer.
    Retrying,
    /// Nothing is in flight but a poll for space, for pages of a file: see `pages`.
    Polling,
    /// As polling, but the poll was cancelled.
    StoppingPoll,
}

/// The sending half of a stream's slot.
#[derive(Default)]
pub(super) struct SendState {
    pub(super) queue: ChunkQueue,
    /// Bytes of the first chunk that went already.
    pub(super) first_sent: usize,
    /// Bytes accepted and not sent, those in flight included: in a pipe (see `splice`), then in the queue, of which no chunk is empty.
    pub(super) bytes: usize,
    /// The bytes and chunks in flight, among these.
    pub(super) flying: usize,
    pub(super) flying_chunks: u8,
    pub(super) phase: SendPhase,
    /// The last zero-copy send.
    pub(super) zero_copy: u32,
    /// Zero-copy sends whose memory the kernel may still read.
    pub(super) unnotified: u32,
    /// The socket cannot send without a copy.
    pub(super) copies: bool,
    /// The socket was made ready for pages of files.
    pub(super) pages: Option<SigPipe>,
    /// On the list of streams with something to send.
    pub(super) listed: bool,
    /// The write side ends when everything has gone.
    pub(super) ending: bool,
    pub(super) ended: bool,
    pub(super) error: Option<Errno>,
    pub(super) waker: Option<Waker>,
    /// The timer to give up, once the stream was dropped.
    pub(super) linger: Option<TimerKey>,
}

impl SendState {
    /// Waits for space at the peer, or for memory.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !matches!(self.phase, SendPhase::Idle | SendPhase::Now)
    }

    /// Nothing queued and nothing in flight.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.phase == SendPhase::Idle && self.bytes == 0
    }

    /// The kernel has taken everything: a poll for space may be in flight.
    pub(super) fn is_drained(&self) -> bool {
        use SendPhase::{Idle, Polling, StoppingPoll};
        matches!(self.phase, Idle | Polling | StoppingPoll) && self.bytes == 0
    }

    /// Nothing queued, nothing in flight, and no memory with the kernel. Memory of a send that was given up does not count: closing
    /// gets it back.
    pub(super) fn is_over(&self) -> bool {
        self.is_idle() && (self.unnotified == 0 || self.error.is_some())
    }

    /// Nothing can be sent any more.
    #[inline]
    pub(super) fn refuses(&self) -> bool {
        self.error.is_some() || self.ending
    }

    #[inline]
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.len();
        self.queue.push(chunk);
    }

    /// Nothing is in flight any more.
    #[inline]
    pub(super) fn set_idle(&mut self) {
        self.phase = SendPhase::Idle;
        (self.flying, self.flying_chunks) = (0, 0);
    }
}

/// A queue whose first chunk needs no memory of its own: the commonest has one or none.
#[derive(Default)]
#[expect(
    clippy::box_collection,
    reason = "slots are small, and hardly any stream queues a second chunk"
)]
pub(super) struct ChunkQueue {
    pub(super) first: Option<Chunk>,
    rest: Option<Box<VecDeque<Chunk>>>,
}

impl ChunkQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub(super) fn push(&mut self, chunk: Chunk) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.rest.get_or_insert_default().push_back(chunk);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Chunk> {
        let next = self.rest.as_mut().and_then(|rest| rest.pop_front());
        mem::replace(&mut self.first, next)
    }

    /// The chunk, if there is only one.
    #[inline]
    pub(super) fn only(&self) -> Option<&Chunk> {
        self.first.as_ref().filter(|_| self.rest.as_ref().is_none_or(|rest| rest.is_empty()))
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Chunk> {
        self.rest.as_mut().and_then(|rest| rest.back_mut()).or(self.first.as_mut())
    }

    /// The bytes of each chunk, but for those of the first that went already.
    pub(super) fn unsent(&self, mut gone: usize) -> impl Iterator<Item = &[u8]> {
        self.iter().map(move |chunk| &chunk.as_ref()[mem::take(&mut gone)..])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter()))
    }
}
