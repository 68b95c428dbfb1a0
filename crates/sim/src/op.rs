//! Operations in flight.

use crate::descriptors::FileId;
use crate::memory::{Call, Header};
use crate::net::{SendMeta, Side, SocketId};
use crate::op_id::OpId;
use crate::piece::{Piece, Seal};
use crate::slab::Slab;
use crate::timeline::Nanos;
use annulus_kernel::{Address, Layout};
use annulus_ring::op::poll;
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) user_data: u64,
    pub(crate) ring: u32,
    /// The file that it keeps open, and its socket.
    pub(crate) file: Option<(FileId, SocketId)>,
    /// A success has no completion.
    pub(crate) skip: bool,
    /// The operation must not wait.
    pub(crate) nowait: bool,
    /// The operation is in the work queue of its ring.
    pub(crate) queued: bool,
    /// The operation was cancelled.
    pub(crate) cancelled: bool,
    pub(crate) body: Body,
}

/// The kind of an operation.
#[derive(Debug)]
pub(crate) enum Body {
    Accept {
        multi: bool,
    },
    Connect,
    Receive(Receive),
    Send(Send),
    Poll {
        events: u32,
        multi: bool,
    },
    /// A timeout, which the clock of the network ends.
    Timer {
        after: Nanos,
    },
    /// The memory of a zero-copy send that has completed, until its notification.
    Notification(Notification),
    /// A file call that waits for the device.
    File(Box<FileWork>),
    /// A poll of a descriptor that is not simulated: it never completes.
    Never,
}

/// A receive.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) into: Into,
    pub(crate) multi: bool,
    /// Bytes it may still receive; `None` is no limit.
    pub(crate) left: Option<u32>,
    /// Bytes that it may receive at a time.
    pub(crate) most: usize,
    /// Where the metadata goes; without it, the metadata is lost.
    pub(crate) cover: Option<Box<Cover>>,
    /// The whole length of a datagram is reported, even if it was truncated.
    pub(crate) whole: bool,
    /// The receive waits, and its memory is poisoned.
    pub(crate) watched: bool,
}

/// Where the sender, the control messages and the flags of a message go.
#[derive(Debug)]
pub(crate) enum Cover {
    /// They go to the header, and the memory that it names.
    Header(Header),
    /// They go in front of the payload.
    Front(Layout),
}

impl Receive {
    /// Begins to check memory of the submitter.
    pub(crate) fn watch(&mut self, span: usize) {
        self.into.pieces().iter().for_each(|piece| piece.poison(span));
        self.watched = true;
    }

    /// The offset at which checked memory was written to, if it was.
    pub(crate) fn touched(&self, span: usize) -> Option<u64> {
        let pieces = if self.watched { self.into.pieces() } else { &[] };
        pieces.iter().find_map(|piece| piece.touched(span))
    }
}

/// Where the bytes of a receive go.
#[derive(Debug)]
pub(crate) enum Into {
    Memory(Piece),
    Vectors(Box<[Piece]>),
    Group(u16),
}

/// A send.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) source: Source,
    pub(crate) total: usize,
    pub(crate) done: usize,
    /// The send continues until everything is sent.
    pub(crate) all: bool,
    /// A short count has a completion even if a success has none.
    pub(crate) short_fails: bool,
    /// The data sent beside the bytes.
    pub(crate) ancillary: Option<Box<Ancillary>>,
    /// The memory is lent until a notification.
    pub(crate) lent: bool,
    /// The seal of its memory when it began to wait.
    pub(crate) seal: Option<Seal>,
}

/// The memory of a completed zero-copy send.
#[derive(Debug)]
pub(crate) struct Notification {
    source: Source,
    seal: Option<Seal>,
    pub(crate) after: Nanos,
}

impl Notification {
    pub(crate) fn new(source: Source, after: Nanos, span: usize) -> Self {
        Self { seal: source.seal(span), source, after }
    }

    /// Whether its memory is unchanged.
    pub(crate) fn is_intact(&self, span: usize) -> bool {
        self.seal == self.source.seal(span)
    }
}

/// The data that a message is sent with beside its bytes.
#[derive(Debug)]
pub(crate) struct Ancillary {
    pub(crate) to: Option<Address>,
    /// The memory of its control messages.
    pub(crate) control: Piece,
    pub(crate) meta: SendMeta,
    /// Files that it keeps open until they are sent.
    pub(crate) rights: Vec<FileId>,
}

/// A file call that waits for the device.
#[derive(Debug)]
pub(crate) struct FileWork {
    /// Taken when its time has come.
    pub(crate) call: Option<Call>,
    pub(crate) after: Nanos,
    /// The file that it keeps open.
    pub(crate) held: Vec<FileId>,
    /// The seal of the memory of a write when it began to wait.
    pub(crate) seal: Option<Seal>,
}

impl FileWork {
    /// Begins to check its memory.
    pub(crate) fn watch(&mut self, span: usize) {
        let Some(call) = &self.call else { return };
        match call.fills {
            true => call.memory.iter().for_each(|piece| piece.poison(span)),
            false => self.seal = seal(&call.memory, span),
        }
    }

    /// Whether its memory is unchanged.
    pub(crate) fn is_intact(&self, span: usize) -> bool {
        let Some(call) = &self.call else { return true };
        match call.fills {
            true => call.memory.iter().all(|piece| piece.touched(span).is_none()),
            false => self.seal == seal(&call.memory, span),
        }
    }
}

fn seal(pieces: &[Piece], span: usize) -> Option<Seal> {
    pieces.iter().map(|piece| piece.seal(span)).reduce(Seal::join)
}

/// Memory to send from.
#[derive(Debug)]
pub(crate) enum Source {
    One(Piece),
    Many(Box<[Piece]>),
}

/// The outcome of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done(Answer),
    /// The operation waits until its socket is ready.
    Waits,
    /// The operation continues after other work.
    GoesOn,
}

/// The last completion of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) result: i32,
    pub(crate) flags: u32,
    /// Not a full success, even if no error: it has a completion even if a success has none.
    pub(crate) failed: bool,
}

impl Op {
    /// An operation without a socket.
    pub(crate) fn alone(ring: u32, user_data: u64, skip: bool, body: Body) -> Self {
        let (file, nowait, queued, cancelled) = (None, false, false, false);
        Self { user_data, ring, file, skip, nowait, queued, cancelled, body }
    }

    pub(crate) fn socket(&self) -> Option<SocketId> {
        self.file.map(|(_, socket)| socket)
    }

    /// The side of the socket that it waits for.
    pub(crate) fn side(&self) -> Side {
        match self.body {
            Body::Connect | Body::Send(_) => Side::Write,
            Body::Poll { events, .. } if events & poll::IN == 0 => Side::Write,
            Body::Accept { .. } | Body::Receive(_) | Body::Poll { .. } => Side::Read,
            // They wait at no socket.
            Body::Timer { .. } | Body::Notification(_) | Body::File(_) | Body::Never => Side::Read,
        }
    }

    /// Other files that it keeps open: to send them, or for the device.
    pub(crate) fn rights(&self) -> &[FileId] {
        match &self.body {
            Body::Send(Send { ancillary: Some(ancillary), .. }) => &ancillary.rights,
            Body::File(work) => &work.held,
            _ => &[],
        }
    }

    /// The result if it is stopped now: the bytes that a send has done count.
    pub(crate) fn stopped_by(&self, errno: Errno) -> Answer {
        match &self.body {
            Body::Send(send) if send.done > 0 => Answer { failed: true, ..Answer::good(send.done) },
            _ => Answer::error(errno),
        }
    }
}

impl Into {
    /// Memory of the submitter.
    pub(crate) fn pieces(&self) -> &[Piece] {
        match self {
            Self::Memory(piece) => std::slice::from_ref(piece),
            Self::Vectors(pieces) => pieces,
            Self::Group(_) => &[],
        }
    }
}

impl Send {
    /// The destination of a datagram; none if its socket is connected.
    pub(crate) fn to(&self) -> Option<&Address> {
        self.ancillary.as_ref()?.to.as_ref()
    }

    /// The seal of its memory.
    pub(crate) fn seal_memory(&self, span: usize) -> Option<Seal> {
        let control = self.ancillary.as_ref().map(|ancillary| ancillary.control.seal(span));
        self.source.seal(span).into_iter().chain(control).reduce(Seal::join)
    }
}

impl Source {
    #[inline]
    pub(crate) fn pieces(&self) -> &[Piece] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Many(pieces) => pieces,
        }
    }

    /// A copy of the memory.
    pub(crate) fn gather(&self) -> Vec<u8> {
        let mut bytes = VecDeque::new();
        self.pieces().iter().for_each(|piece| piece.append_to(&mut bytes));
        bytes.into()
    }

    /// The seal of the memory.
    fn seal(&self, span: usize) -> Option<Seal> {
        seal(self.pieces(), span)
    }
}

impl Answer {
    #[inline]
    pub(crate) fn good(count: usize) -> Self {
        Self { result: count as i32, flags: 0, failed: false }
    }

    #[inline]
    pub(crate) fn error(errno: Errno) -> Self {
        Self { result: -errno.raw_os_error(), flags: 0, failed: true }
    }
}

impl From<Result<usize, Errno>> for Answer {
    fn from(result: Result<usize, Errno>) -> Self {
        result.map_or_else(Self::error, Self::good)
    }
}

/// All operations in flight, by slot and by `user_data`.
pub(crate) struct Ops {
    slab: Slab<(u64, Op)>,
    by_data: BTreeSet<(u32, u64, OpId)>,
    order: u64,
}

impl Ops {
    pub(crate) fn new() -> Self {
        Self { slab: Slab::new(), by_data: BTreeSet::new(), order: 0 }
    }

    pub(crate) fn insert(&mut self, op: Op) -> OpId {
        self.order += 1;
        let (order, ring, data) = (self.order, op.ring, op.user_data);
        let id = OpId { order, slot: self.slab.insert((order, op)) };
        self.by_data.insert((ring, data, id));
        id
    }

    /// The operation, unless it has ended.
    #[inline]
    pub(crate) fn find(&mut self, id: OpId) -> Option<&mut Op> {
        self.slab.find(id.slot).filter(|(order, _)| *order == id.order)?;
        Some(&mut self.slab.at_mut(id.slot).1)
    }

    /// As [`find`](Self::find), without mutation.
    #[inline]
    pub(crate) fn peek(&self, id: OpId) -> Option<&Op> {
        self.slab.find(id.slot).filter(|(order, _)| *order == id.order).map(|(_, op)| op)
    }

    /// Takes an operation out to try it; [`put`](Self::put) or [`end`](Self::end) must follow.
    #[inline]
    pub(crate) fn take(&mut self, id: OpId) -> Op {
        self.slab.take(id.slot).1
    }

    #[inline]
    pub(crate) fn put(&mut self, id: OpId, op: Op) {
        self.slab.put(id.slot, (id.order, op));
    }

    /// An operation that was taken out has ended.
    #[inline]
    pub(crate) fn end(&mut self, id: OpId, op: &Op) {
        self.slab.forget(id.slot);
        self.by_data.remove(&(op.ring, op.user_data, id));
    }

    /// The oldest operation with this `user_data` on a ring.
    pub(crate) fn named(&self, ring: u32, user_data: u64) -> Option<OpId> {
        let first = OpId { order: 0, slot: 0 };
        let (found_ring, data, id) = *self.by_data.range((ring, user_data, first)..).next()?;
        (found_ring == ring && data == user_data).then_some(id)
    }

    /// Everything that is in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.slab.iter().map(|(_, (_, op))| op)
    }

    /// Everything that is in flight on a ring, oldest first.
    pub(crate) fn of_ring(&self, ring: u32) -> Vec<OpId> {
        let own = self.slab.iter().filter(|(_, (_, op))| op.ring == ring);
        let mut ids: Vec<OpId> = own.map(|(slot, &(order, _))| OpId { order, slot }).collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }
}
