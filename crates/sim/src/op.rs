//! Operations in flight.

use crate::descriptors::FileId;
use crate::fs::Call;
use crate::memory::{Header, Piece, Seal};
use crate::net::{Side, SocketId, Wishes};
use crate::slab::Slab;
use crate::timeline::Nanos;
use annulus_kernel::{Address, Layout};
use annulus_ring::op::poll;
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};

/// An operation's name: its place, and the order it was submitted in, which no other one shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId {
    pub(crate) order: u64,
    pub(crate) place: u32,
}

/// An operation that was submitted and not completed.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) user_data: u64,
    pub(crate) ring: u32,
    /// What it works on: the file it keeps alive, and its socket.
    pub(crate) file: Option<(FileId, SocketId)>,
    /// Success posts nothing.
    pub(crate) skip: bool,
    /// It must not wait.
    pub(crate) nowait: bool,
    /// Its turn has come: it stands in its ring's work queue.
    pub(crate) queued: bool,
    /// A cancel found it.
    pub(crate) cancelled: bool,
    pub(crate) body: Body,
}

/// What it does.
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
    /// A length of time; the network's clock tells its end.
    Timer {
        after: Nanos,
    },
    /// Memory that was lent for a send that has completed, and when it comes back.
    Notice(Notice),
    /// A call that the device makes wait.
    File(Box<FileWork>),
    /// A poll of something that is not ours: it never comes.
    Never,
}

/// A receive.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) into: Into,
    pub(crate) multi: bool,
    /// Bytes it may still bring; `None` is no limit.
    pub(crate) left: Option<u32>,
    /// Where what comes beside the bytes goes; without it, that is lost.
    pub(crate) cover: Option<Box<Cover>>,
    /// A datagram's whole length is told, whatever fits.
    pub(crate) whole: bool,
    /// It waits, and its memory is poisoned.
    pub(crate) watched: bool,
}

/// Where a message's sender, control messages and flags go.
#[derive(Debug)]
pub(crate) enum Cover {
    /// To where its header says, and into that.
    Header(Header),
    /// In front of the payload.
    Front(Layout),
}

impl Receive {
    /// Begins to watch memory of the submitter's own.
    pub(crate) fn watch(&mut self, span: usize) {
        self.into.pieces().iter().for_each(|piece| piece.poison(span));
        self.watched = true;
    }

    /// Where watched memory was written to, if it was.
    pub(crate) fn touched(&self, span: usize) -> Option<u64> {
        let pieces = if self.watched { self.into.pieces() } else { &[] };
        pieces.iter().find_map(|piece| piece.touched(span))
    }
}

/// Where a receive puts its bytes.
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
    /// It goes on until all is sent.
    pub(crate) all: bool,
    /// A short count is told even where success is not.
    pub(crate) short_fails: bool,
    /// What goes with the bytes.
    pub(crate) enclosure: Option<Box<Enclosure>>,
    /// Its memory stays lent after its completion.
    pub(crate) lent: bool,
    /// What its memory looked like when it began to wait.
    pub(crate) seal: Option<Seal>,
}

/// Memory that a completed send may still be read from.
#[derive(Debug)]
pub(crate) struct Notice {
    source: Source,
    seal: Option<Seal>,
    pub(crate) after: Nanos,
}

impl Notice {
    pub(crate) fn new(source: Source, after: Nanos, span: usize) -> Self {
        Self { seal: source.seal(span), source, after }
    }

    /// Whether its memory was left alone since.
    pub(crate) fn is_intact(&self, span: usize) -> bool {
        self.seal == self.source.seal(span)
    }
}

/// What a message takes along.
#[derive(Debug)]
pub(crate) struct Enclosure {
    pub(crate) to: Option<Address>,
    /// Where its control messages lie.
    pub(crate) control: Piece,
    pub(crate) wishes: Wishes,
    /// Files that it holds until they are sent.
    pub(crate) rights: Vec<FileId>,
}

/// A call on a file, put off.
#[derive(Debug)]
pub(crate) struct FileWork {
    /// Taken when its time has come.
    pub(crate) call: Option<Call>,
    pub(crate) after: Nanos,
    /// The file that it keeps open.
    pub(crate) held: Vec<FileId>,
    /// What the memory of a write looked like when it began to wait.
    pub(crate) seal: Option<Seal>,
}

impl FileWork {
    /// Begins to watch its memory.
    pub(crate) fn watch(&mut self, span: usize) {
        match &self.call {
            Some(Call::Read { into, .. }) => into.iter().for_each(|piece| piece.poison(span)),
            Some(Call::Write { from, .. }) => self.seal = seal(from, span),
            _ => {}
        }
    }

    /// Whether its memory was left alone since.
    pub(crate) fn is_intact(&self, span: usize) -> bool {
        match &self.call {
            Some(Call::Read { into, .. }) => into.iter().all(|piece| piece.touched(span).is_none()),
            Some(Call::Write { from, .. }) => self.seal == seal(from, span),
            _ => true,
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

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done(Answer),
    /// It waits until its socket is ready.
    Waits,
    /// It goes on, but others come first.
    GoesOn,
}

/// An operation's last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) result: i32,
    pub(crate) flags: u32,
    /// Not what was hoped for, though perhaps no error: posted even where success is not.
    pub(crate) failed: bool,
}

impl Op {
    /// An operation on no socket.
    pub(crate) fn alone(ring: u32, user_data: u64, skip: bool, body: Body) -> Self {
        let (file, nowait, queued, cancelled) = (None, false, false, false);
        Self { user_data, ring, file, skip, nowait, queued, cancelled, body }
    }

    pub(crate) fn socket(&self) -> Option<SocketId> {
        self.file.map(|(_, socket)| socket)
    }

    /// What it waits for.
    pub(crate) fn side(&self) -> Side {
        match self.body {
            Body::Connect | Body::Send(_) => Side::Write,
            Body::Poll { events, .. } if events & poll::IN == 0 => Side::Write,
            _ => Side::Read,
        }
    }

    /// Files that it holds beside the one it works on: to send them, or for the device.
    pub(crate) fn rights(&self) -> &[FileId] {
        match &self.body {
            Body::Send(Send { enclosure: Some(enclosure), .. }) => &enclosure.rights,
            Body::File(work) => &work.held,
            _ => &[],
        }
    }

    /// How it ends when something stops it: what a send has done counts.
    pub(crate) fn stopped_by(&self, errno: Errno) -> Answer {
        match &self.body {
            Body::Send(send) if send.done > 0 => Answer { failed: true, ..Answer::good(send.done) },
            _ => Answer::error(errno),
        }
    }
}

impl Into {
    /// Memory of the submitter's own.
    pub(crate) fn pieces(&self) -> &[Piece] {
        match self {
            Self::Memory(piece) => std::slice::from_ref(piece),
            Self::Vectors(pieces) => pieces,
            Self::Group(_) => &[],
        }
    }
}

impl Send {
    /// Where a datagram goes; not said where its socket is connected.
    pub(crate) fn to(&self) -> Option<&Address> {
        self.enclosure.as_ref()?.to.as_ref()
    }

    /// What its memory looks like now.
    pub(crate) fn look(&self, span: usize) -> Option<Seal> {
        let control = self.enclosure.as_ref().map(|enclosure| enclosure.control.seal(span));
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

    /// A copy of all of it.
    pub(crate) fn gather(&self) -> Vec<u8> {
        let mut bytes = VecDeque::new();
        self.pieces().iter().for_each(|piece| piece.append_to(&mut bytes));
        bytes.into()
    }

    /// What the memory looks like now.
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

/// All operations in flight, by place and by `user_data`.
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
        let id = OpId { order, place: self.slab.insert((order, op)) };
        self.by_data.insert((ring, data, id));
        id
    }

    /// The operation, unless it has ended.
    #[inline]
    pub(crate) fn find(&mut self, id: OpId) -> Option<&mut Op> {
        self.slab.find(id.place).filter(|(order, _)| *order == id.order)?;
        Some(&mut self.slab.at_mut(id.place).1)
    }

    /// As [`find`](Self::find), to look at.
    #[inline]
    pub(crate) fn peek(&self, id: OpId) -> Option<&Op> {
        self.slab.find(id.place).filter(|(order, _)| *order == id.order).map(|(_, op)| op)
    }

    /// Takes an operation out to be tried; [`put`](Self::put) or [`end`](Self::end) must follow.
    #[inline]
    pub(crate) fn take(&mut self, id: OpId) -> Op {
        self.slab.take(id.place).1
    }

    #[inline]
    pub(crate) fn put(&mut self, id: OpId, op: Op) {
        self.slab.put(id.place, (id.order, op));
    }

    /// An operation that was taken out has ended.
    #[inline]
    pub(crate) fn end(&mut self, id: OpId, op: &Op) {
        self.slab.forget(id.place);
        self.by_data.remove(&(op.ring, op.user_data, id));
    }

    /// The oldest operation of this name on a ring.
    pub(crate) fn named(&self, ring: u32, user_data: u64) -> Option<OpId> {
        let first = OpId { order: 0, place: 0 };
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
        let mut ids: Vec<OpId> = own.map(|(place, &(order, _))| OpId { order, place }).collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }
}
