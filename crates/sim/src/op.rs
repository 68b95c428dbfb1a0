//! Operations in flight.

use crate::descriptors::FileId;
use crate::fs::DiskId;
use crate::memory::{DiskCall, MessageHeader};
use crate::memory_range::{Checksum, MemoryRange};
use crate::net::{SendOptions, Side, SocketId};
use crate::op_id::OpId;
use crate::slab::Slab;
use crate::timeline::Nanos;
use annulus_kernel::{Address, MessageLayout};
use annulus_ring::op::poll;
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) user_data: u64,
    pub(crate) ring: u32,
    /// The open file that the operation holds, and its socket.
    pub(crate) file: Option<(FileId, SocketId)>,
    /// Whether a success posts no completion.
    pub(crate) skip_success: bool,
    pub(crate) nowait: bool,
    /// Whether the operation is in the work queue of its ring.
    pub(crate) queued: bool,
    pub(crate) cancelled: bool,
    pub(crate) body: OpKind,
}

/// The kind of an operation, with its state.
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
    /// A timeout, which ends after this much virtual time.
    Timer {
        after: Nanos,
    },
    /// A completed zero-copy send, whose memory is in use until the notification.
    Notification(Notification),
    /// A file call that waits for the device.
    File(Box<PendingFileCall>),
    /// A poll of a real descriptor of the process, which never completes.
    Never,
}

impl OpKind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Accept { .. } => "accept",
            Self::Connect => "connect",
            Self::Receive(_) => "receive",
            Self::Send(_) => "send",
            Self::Poll { .. } => "poll",
            Self::Timer { .. } => "timeout",
            Self::Notification(_) => "notification of a zero-copy send",
            Self::File(_) => "file call",
            Self::Never => "poll of a real descriptor",
        }
    }
}

#[derive(Debug)]
pub(crate) struct ReceiveOp {
    pub(crate) into: Destination,
    pub(crate) multi: bool,
    /// Bytes that the operation may still receive; `None` means no limit.
    pub(crate) remaining: Option<u32>,
    /// Maximum number of bytes per completion.
    pub(crate) max_at_once: usize,
    /// Where the metadata of a message goes; `None` discards it.
    pub(crate) cover: Option<Box<MetadataTarget>>,
    /// Whether the result is the full length of a truncated datagram.
    pub(crate) whole: bool,
    /// Whether the receive waits, so that its memory is poisoned.
    pub(crate) watched: bool,
}

/// Where the sender's address, the control messages and the flags of a message go.
#[derive(Debug)]
pub(crate) enum MetadataTarget {
    /// To the header of the receive, and the memory it refers to.
    ToHeader(MessageHeader),
    /// Into the buffer, before the payload.
    BeforePayload(MessageLayout),
}

impl ReceiveOp {
    /// Starts checking the submitter's memory for writes.
    pub(crate) fn watch(&mut self, span: usize) {
        self.into.ranges().iter().for_each(|range| range.poison(span));
        self.watched = true;
    }

    /// Returns the offset of a write to checked memory, if there was one.
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

#[derive(Debug)]
pub(crate) struct SendOp {
    pub(crate) source: SendSource,
    pub(crate) total: usize,
    pub(crate) done: usize,
    /// Whether the send continues until all bytes are sent.
    pub(crate) all: bool,
    /// Whether a short count posts a completion even if `skip_success` is set.
    pub(crate) short_fails: bool,
    pub(crate) ancillary: Option<Box<Ancillary>>,
    /// Whether the memory stays in use until a notification.
    pub(crate) zero_copy: bool,
    /// Checksum of the memory, taken when the send began to wait.
    pub(crate) checksum: Option<Checksum>,
}

/// A completed zero-copy send that waits for its notification.
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

    /// Returns true if the memory has not changed.
    pub(crate) fn is_intact(&self, span: usize) -> bool {
        self.checksum == self.source.checksum(span)
    }
}

/// The parts of a message other than its bytes.
#[derive(Debug)]
pub(crate) struct Ancillary {
    pub(crate) to: Option<Address>,
    /// The memory of the control messages, which is checked for changes.
    pub(crate) control: MemoryRange,
    pub(crate) options: SendOptions,
    /// Files to pass, kept open until they are sent.
    pub(crate) rights: Vec<FileId>,
}

#[derive(Debug)]
pub(crate) struct PendingFileCall {
    /// `None` once the device is done.
    pub(crate) call: Option<DiskCall>,
    pub(crate) disk: DiskId,
    pub(crate) after: Nanos,
    /// Keeps these files open until the call ends.
    pub(crate) held: Vec<FileId>,
    /// Checksum of the memory of a write, taken when the write began to wait.
    pub(crate) checksum: Option<Checksum>,
}

impl PendingFileCall {
    /// Starts checking the memory: for writes if the call fills it, otherwise for changes.
    pub(crate) fn watch(&mut self, span: usize) {
        let Some(call) = &self.call else { return };
        match call.fills {
            true => call.memory.iter().for_each(|range| range.poison(span)),
            false => self.checksum = checksum(&call.memory, span),
        }
    }

    /// Returns true if the memory is untouched.
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

/// The memory that a send reads.
#[derive(Debug)]
pub(crate) enum SendSource {
    One(MemoryRange),
    Many(Box<[MemoryRange]>),
}

/// The outcome of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done(OpResult),
    /// The operation has to wait, usually until its socket is ready.
    Waits,
    /// The operation continues after other queued work.
    Continues,
}

/// The result of an operation: the completion to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpResult {
    pub(crate) result: i32,
    pub(crate) flags: u32,
    /// Whether a completion is posted even if successes are skipped: the operation failed, or its
    /// count is short.
    pub(crate) failed: bool,
}

impl Op {
    /// Creates an operation that has no socket.
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

    /// Returns the side of the socket that the operation waits for.
    pub(crate) fn side(&self) -> Side {
        match self.body {
            OpKind::Connect | OpKind::Send(_) => Side::Write,
            OpKind::Poll { events, .. } if events & (poll::IN | poll::OUT) == poll::OUT => {
                Side::Write
            }
            OpKind::Accept { .. } | OpKind::Receive(_) | OpKind::Poll { .. } => Side::Read,
            // These do not wait at a socket.
            OpKind::Timer { .. } | OpKind::Notification(_) | OpKind::File(_) | OpKind::Never => {
                Side::Read
            }
        }
    }

    /// Returns the files that the operation keeps open in addition to `file`: those that a send
    /// passes, or those that a file call uses.
    pub(crate) fn held_files(&self) -> &[FileId] {
        match &self.body {
            OpKind::Send(SendOp { ancillary: Some(ancillary), .. }) => &ancillary.rights,
            OpKind::File(work) => &work.held,
            _ => &[],
        }
    }

    /// Returns the result of an operation that is stopped now. A send that has sent some bytes
    /// reports their number.
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
    /// Returns the submitter's memory; empty for a buffer group.
    pub(crate) fn ranges(&self) -> &[MemoryRange] {
        match self {
            Self::Memory(range) => std::slice::from_ref(range),
            Self::Vectors(ranges) => ranges,
            Self::Group(_) => &[],
        }
    }
}

impl SendOp {
    /// Returns the destination of a datagram; `None` means the connected peer.
    pub(crate) fn to(&self) -> Option<&Address> {
        self.ancillary.as_ref()?.to.as_ref()
    }

    /// Returns the checksum of the bytes and the control messages.
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

    pub(crate) fn gather(&self) -> Vec<u8> {
        let mut bytes = VecDeque::new();
        self.ranges().iter().for_each(|range| range.append_to(&mut bytes));
        bytes.into()
    }

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

    /// Returns the operation, unless it has ended.
    #[inline]
    pub(crate) fn find(&mut self, id: OpId) -> Option<&mut Op> {
        self.slab.find(id.slot).filter(|(order, _)| *order == id.order)?;
        Some(&mut self.slab.at_mut(id.slot).1)
    }

    /// Like [`find`](Self::find), but immutable.
    #[inline]
    pub(crate) fn peek(&self, id: OpId) -> Option<&Op> {
        self.slab.find(id.slot).filter(|(order, _)| *order == id.order).map(|(_, op)| op)
    }

    /// Takes an operation out to try it. The caller must then call [`put`](Self::put) or
    /// [`end`](Self::end).
    #[inline]
    pub(crate) fn take(&mut self, id: OpId) -> Op {
        self.slab.take(id.slot).1
    }

    #[inline]
    pub(crate) fn put(&mut self, id: OpId, op: Op) {
        self.slab.put(id.slot, (id.order, op));
    }

    /// Removes an operation that was taken out and has ended.
    #[inline]
    pub(crate) fn end(&mut self, id: OpId, op: &Op) {
        self.slab.forget(id.slot);
        self.by_data.remove(&(op.ring, op.user_data, id));
    }

    /// Returns the oldest operation of a ring with this `user_data`.
    pub(crate) fn oldest_with(&self, ring: u32, user_data: u64) -> Option<OpId> {
        let first = OpId { order: 0, slot: 0 };
        let (found_ring, data, id) = *self.by_data.range((ring, user_data, first)..).next()?;
        (found_ring == ring && data == user_data).then_some(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Op> {
        self.slab.iter().map(|(_, (_, op))| op)
    }

    /// Returns the operations of a ring that are in flight, oldest first.
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
