//! Operations in flight.

use crate::descriptors::FileId;
use crate::memory::{DiskCall, MessageHeader};
use crate::memory_range::{Checksum, MemoryRange};
use crate::net::{SendOptions, Side, SocketId};
use crate::op_id::OpId;
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
    pub(crate) skip_success: bool,
    /// The operation must not wait.
    pub(crate) nowait: bool,
    /// The operation is in the work queue of its ring.
    pub(crate) queued: bool,
    /// The operation was cancelled.
    pub(crate) cancelled: bool,
    pub(crate) body: OpKind,
}

/// The kind of an operation.
#[derive(Debug)]
pub(crate) enum OpKind {
    Accept {
        multi: bool,
    },
    Connect,
    Receive(ReceiveOp),
    Send(SendOp),
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
    File(Box<PendingFileCall>),
    /// A poll of a descriptor that is not simulated: it never completes.
    Never,
}

/// A receive.
#[derive(Debug)]
pub(crate) struct ReceiveOp {
    pub(crate) into: Destination,
    pub(crate) multi: bool,
    /// Bytes it may still receive; `None` is no limit.
    pub(crate) remaining: Option<u32>,
    /// Bytes that it may receive at a time.
    pub(crate) max_at_once: usize,
    /// Where the metadata goes; without it, the metadata is lost.
    pub(crate) cover: Option<Box<MetadataTarget>>,
    /// The whole length of a datagram is reported, even if it was truncated.
    pub(crate) whole: bool,
    /// The receive waits, and its memory is poisoned.
    pub(crate) watched: bool,
}

/// Where the sender, the control messages and the flags of a message go.
#[derive(Debug)]
pub(crate) enum MetadataTarget {
    /// They go to the header, and the memory that it names.
    ToHeader(MessageHeader),
    /// They go in front of the payload.
    BeforePayload(Layout),
}

impl ReceiveOp {
    /// Begins to check memory of the submitter.
    pub(crate) fn watch(&mut self, span: usize) {
        self.into.ranges().iter().for_each(|range| range.poison(span));
        self.watched = true;
    }

    /// The offset at which checked memory was written to, if it was.
    pub(crate) fn overwritten_at(&self, span: usize) -> Option<u64> {
        let ranges = if self.watched { self.into.ranges() } else { &[] };
        ranges.iter().find_map(|range| range.overwritten_at(span))
    }
}

/// Where the bytes of a receive go.
#[derive(Debug)]
pub(crate) enum Destination {
    Memory(MemoryRange),
    Vectors(Box<[MemoryRange]>),
    Group(u16),
}

/// A send.
#[derive(Debug)]
pub(crate) struct SendOp {
    pub(crate) source: SendSource,
    pub(crate) total: usize,
    pub(crate) done: usize,
    /// The send continues until everything is sent.
    pub(crate) all: bool,
    /// A short count has a completion even if a success has none.
    pub(crate) short_fails: bool,
    /// The data sent beside the bytes.
    pub(crate) ancillary: Option<Box<Ancillary>>,
    /// The memory is zero_copy until a notification.
    pub(crate) zero_copy: bool,
    /// The checksum of its memory when it began to wait.
    pub(crate) checksum: Option<Checksum>,
}

/// The memory of a completed zero-copy send.
#[derive(Debug)]
pub(crate) struct Notification {
    source: SendSource,
    checksum: Option<Checksum>,
    pub(crate) after: Nanos,
}

impl Notification {
    pub(crate) fn new(source: SendSource, after: Nanos, span: usize) -> Self {
        Self { checksum: source.checksum(span), source, after }
    }

    /// Whether its memory is unchanged.
    pub(crate) fn is_intact(&self, span: usize) -> bool {
        self.checksum == self.source.checksum(span)
    }
}

/// The data that a message is sent with beside its bytes.
#[derive(Debug)]
pub(crate) struct Ancillary {
    pub(crate) to: Option<Address>,
    /// The memory of its control messages.
    pub(crate) control: MemoryRange,
    pub(crate) options: SendOptions,
    /// Files that it keeps open until they are sent.
    pub(crate) rights: Vec<FileId>,
}

/// A file call that waits for the device.
#[derive(Debug)]
pub(crate) struct PendingFileCall {
    /// Taken when its time has come.
    pub(crate) call: Option<DiskCall>,
    pub(crate) after: Nanos,
    /// The file that it keeps open.
    pub(crate) held: Vec<FileId>,
    /// The checksum of the memory of a write when it began to wait.
    pub(crate) checksum: Option<Checksum>,
}

impl PendingFileCall {
    /// Begins to check its memory.
    pub(crate) fn watch(&mut self, span: usize) {
        let Some(call) = &self.call else { return };
        match call.fills {
            true => call.memory.iter().for_each(|range| range.poison(span)),
            false => self.checksum = checksum(&call.memory, span),
        }
    }

    /// Whether its memory is unchanged.
    pub(crate) fn is_intact(&self, span: usize) -> bool {
        let Some(call) = &self.call else { return true };
        match call.fills {
            true => call.memory.iter().all(|range| range.overwritten_at(span).is_none()),
            false => self.checksum == checksum(&call.memory, span),
        }
    }
}

fn checksum(ranges: &[MemoryRange], span: usize) -> Option<Checksum> {
    ranges.iter().map(|range| range.checksum(span)).reduce(Checksum::join)
}

/// Memory to send from.
#[derive(Debug)]
pub(crate) enum SendSource {
    One(MemoryRange),
    Many(Box<[MemoryRange]>),
}

/// The outcome of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done(OpResult),
    /// The operation waits until its socket is ready.
    Waits,
    /// The operation continues after other work.
    Continues,
}

/// The last completion of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpResult {
    pub(crate) result: i32,
    pub(crate) flags: u32,
    /// Not a full success, even if no error: it has a completion even if a success has none.
    pub(crate) failed: bool,
}

impl Op {
    /// An operation without a socket.
    pub(crate) fn without_socket(
        ring: u32,
        user_data: u64,
        skip_success: bool,
        body: OpKind,
    ) -> Self {
        let (file, nowait, queued, cancelled) = (None, false, false, false);
        Self { user_data, ring, file, skip_success, nowait, queued, cancelled, body }
    }

    pub(crate) fn socket(&self) -> Option<SocketId> {
        self.file.map(|(_, socket)| socket)
    }

    /// The side of the socket that it waits for.
    pub(crate) fn side(&self) -> Side {
        match self.body {
            OpKind::Connect | OpKind::Send(_) => Side::Write,
            OpKind::Poll { events, .. } if events & poll::IN == 0 => Side::Write,
            OpKind::Accept { .. } | OpKind::Receive(_) | OpKind::Poll { .. } => Side::Read,
            // They wait at no socket.
            OpKind::Timer { .. } | OpKind::Notification(_) | OpKind::File(_) | OpKind::Never => {
                Side::Read
            }
        }
    }

    /// Other files that it keeps open: to send them, or for the device.
    pub(crate) fn held_files(&self) -> &[FileId] {
        match &self.body {
            OpKind::Send(SendOp { ancillary: Some(ancillary), .. }) => &ancillary.rights,
            OpKind::File(work) => &work.held,
            _ => &[],
        }
    }

    /// The result if it is stopped now: the bytes that a send has done count.
    pub(crate) fn stopped_by(&self, errno: Errno) -> OpResult {
        match &self.body {
            OpKind::Send(send) if send.done > 0 => {
                OpResult { failed: true, ..OpResult::good(send.done) }
            }
            _ => OpResult::error(errno),
        }
    }
}

impl Destination {
    /// Memory of the submitter.
    pub(crate) fn ranges(&self) -> &[MemoryRange] {
        match self {
            Self::Memory(range) => std::slice::from_ref(range),
            Self::Vectors(ranges) => ranges,
            Self::Group(_) => &[],
        }
    }
}

impl SendOp {
    /// The destination of a datagram; none if its socket is connected.
    pub(crate) fn to(&self) -> Option<&Address> {
        self.ancillary.as_ref()?.to.as_ref()
    }

    /// The checksum of its memory.
    pub(crate) fn memory_checksum(&self, span: usize) -> Option<Checksum> {
        let control = self.ancillary.as_ref().map(|ancillary| ancillary.control.checksum(span));
        self.source.checksum(span).into_iter().chain(control).reduce(Checksum::join)
    }
}

impl SendSource {
    #[inline]
    pub(crate) fn ranges(&self) -> &[MemoryRange] {
        match self {
            Self::One(range) => std::slice::from_ref(range),
            Self::Many(ranges) => ranges,
        }
    }

    /// A copy of the memory.
    pub(crate) fn gather(&self) -> Vec<u8> {
        let mut bytes = VecDeque::new();
        self.ranges().iter().for_each(|range| range.append_to(&mut bytes));
        bytes.into()
    }

    /// The checksum of the memory.
    fn checksum(&self, span: usize) -> Option<Checksum> {
        checksum(self.ranges(), span)
    }
}

impl OpResult {
    #[inline]
    pub(crate) fn good(count: usize) -> Self {
        Self { result: count as i32, flags: 0, failed: false }
    }

    #[inline]
    pub(crate) fn error(errno: Errno) -> Self {
        Self { result: -errno.raw_os_error(), flags: 0, failed: true }
    }
}

impl From<Result<usize, Errno>> for OpResult {
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
    pub(crate) fn oldest_with(&self, ring: u32, user_data: u64) -> Option<OpId> {
        let first = OpId { order: 0, slot: 0 };
        let (found_ring, data, id) = *self.by_data.range((ring, user_data, first)..).next()?;
        (found_ring == ring && data == user_data).then_some(id)
    }

    /// Everything that is in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.slab.iter().map(|(_, (_, op))| op)
    }

    /// Everything that is in flight on a ring, oldest first.
    pub(crate) fn ids_of_ring(&self, ring: u32) -> Vec<OpId> {
        let own = self.slab.iter().filter(|(_, (_, op))| op.ring == ring);
        let mut ids: Vec<OpId> = own.map(|(slot, &(order, _))| OpId { order, slot }).collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }
}
