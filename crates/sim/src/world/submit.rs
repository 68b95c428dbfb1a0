//! Decodes entries and starts their operations.

use super::World;
use super::check::{
    ACCEPT_DONTWAIT, ACCEPT_MULTISHOT, POLL_MULTISHOT, RECV_MULTISHOT, check,
    is_plain_read_or_write, is_receive, is_socket_transfer, is_zero_copy_send, polls_first,
};
use crate::faults::Fault;
use crate::memory::{MessageHeader, SubmittedEntry};
use crate::net::SendOptions;
use crate::op::{
    Ancillary, Destination, MetadataTarget, Op, OpKind, OpResult, Outcome, ReceiveOp, SendOp,
    SendSource,
};
use crate::trace::TraceEvent;
use annulus_kernel::{Domain, MessageLayout, msg};
use annulus_ring::op::rwf;
use annulus_ring::{EntryFlags, opcode};
use rustix::io::Errno;

impl World {
    #[inline]
    pub(super) fn submit_one(&mut self, ring: u32, entry: &SubmittedEntry) {
        self.counts.submitted += 1;
        self.trace.record(self.net.time.now(), TraceEvent::Submitted(entry));
        let skip = entry.flags & EntryFlags::SKIP_SUCCESS.bits() != 0;
        let answer = match self.may_submit(ring, entry) {
            Ok(None) => self.perform(ring, entry, skip),
            Ok(Some(plain)) => self.perform(ring, &plain, skip),
            Err(errno) => Some(OpResult::error(errno)),
        };
        if let Some(answer) = answer {
            self.complete(ring, entry.user_data, skip, answer);
        }
    }

    /// Checks an entry. Returns the operation to make instead, if its buffer is registered.
    fn may_submit(
        &self,
        ring: u32,
        entry: &SubmittedEntry,
    ) -> Result<Option<SubmittedEntry>, Errno> {
        let ring = self.rings.at(ring);
        if ring.restrictions().is_some_and(|lists| !lists.allow_entry(entry)) {
            return Err(Errno::ACCESS);
        }
        check(entry, &self.profile)?;
        let Some(plain) = entry.with_plain_buffer() else { return Ok(None) };
        let buffer = ring.registered_buffer(entry.buf_group).ok_or(Errno::FAULT)?;
        if buffer.contains(entry.addr, entry.len) { Ok(Some(plain)) } else { Err(Errno::FAULT) }
    }

    /// Performs operations that do not wait, and puts the others in flight.
    fn perform(&mut self, ring: u32, entry: &SubmittedEntry, skip: bool) -> Option<OpResult> {
        let done = |result: Result<(), Errno>| Some(result.map(|()| 0).into());
        match entry.opcode {
            opcode::NOP => done(Ok(())),
            opcode::ASYNC_CANCEL => Some(self.cancel(ring, entry.addr)),
            opcode::CLOSE => done(self.close(entry.fd)),
            _ if self.is_about_files(entry) => self.submit_file(ring, entry, skip),
            _ => match self.operation(ring, entry, skip) {
                Ok(op) => self.start(op, entry),
                Err(errno) => Some(OpResult::error(errno)),
            },
        }
    }

    pub(super) fn operation(
        &mut self,
        ring: u32,
        entry: &SubmittedEntry,
        skip: bool,
    ) -> Result<Op, Errno> {
        let (body, file) = match (entry.opcode, self.socket_of(entry.fd)) {
            (opcode::TIMEOUT, _) => (OpKind::Timer { after: entry.time()? }, None),
            // A simulated kernel does not poll real descriptors of the process, so they are never
            // ready.
            (opcode::POLL_ADD, Err(_)) if entry.fd >= 0 => (OpKind::Never, None),
            (_, file) => file.and_then(|file| Ok((self.decode(entry)?, Some(file))))?,
        };
        Ok(Op {
            user_data: entry.user_data,
            ring,
            file,
            skip_success: skip,
            nowait: must_not_wait(entry),
            queued: false,
            cancelled: false,
            body,
        })
    }

    /// Makes the first attempt, and keeps the operation in flight unless it is done.
    fn start(&mut self, mut op: Op, entry: &SubmittedEntry) -> Option<OpResult> {
        match self.first_try(&mut op, entry) {
            Outcome::Done(answer) => {
                self.drop_rights(&op);
                return Some(self.start_notification(&mut op, answer));
            }
            Outcome::Waits => self.start_waiting(op, false),
            Outcome::Continues => self.start_waiting(op, true),
        };
        None
    }

    pub(super) fn first_try(&mut self, op: &mut Op, entry: &SubmittedEntry) -> Outcome {
        let Some(socket) = op.socket() else { return Outcome::Waits };
        let polls = matches!(op.body, OpKind::Poll { .. });
        if !polls && self.occurs(Fault::NoMemory) {
            return Outcome::done(Err(Errno::NOMEM));
        }
        let zero_copy = matches!(op.body, OpKind::Send(SendOp { zero_copy: true, .. }));
        if zero_copy && self.net.socket(socket).domain == Domain::Unix {
            return Outcome::done(Err(Errno::OPNOTSUPP));
        }
        if let OpKind::Connect = op.body
            && let Err(errno) = self.start_connect(socket, entry)
        {
            return Outcome::done(Err(errno));
        }
        if !op.nowait && !polls && (polls_first(entry) || self.occurs(Fault::Defer)) {
            return Outcome::Waits;
        }
        match self.attempt(op) {
            Outcome::Waits if op.nowait => Outcome::Done(op.stopped_by(Errno::AGAIN)),
            outcome => outcome,
        }
    }

    fn decode(&mut self, entry: &SubmittedEntry) -> Result<OpKind, Errno> {
        Ok(match entry.opcode {
            opcode::ACCEPT => OpKind::Accept { multi: entry.ioprio & ACCEPT_MULTISHOT != 0 },
            opcode::CONNECT => OpKind::Connect,
            _ if is_receive(entry) => OpKind::Receive(decode_receive(entry)?),
            opcode::POLL_ADD => {
                OpKind::Poll { events: poll_events(entry), multi: entry.len & POLL_MULTISHOT != 0 }
            }
            opcode::SENDMSG | opcode::SENDMSG_ZC => OpKind::Send(self.decode_message(entry)?),
            opcode::SEND if entry.off != 0 => OpKind::Send(addressed_send(entry)),
            opcode::WRITEV => {
                OpKind::Send(SendOp::plain(entry, SendSource::Many(entry.vectors()?)))
            }
            opcode::SEND | opcode::SEND_ZC | opcode::WRITE => {
                OpKind::Send(SendOp::plain(entry, SendSource::One(entry.memory())))
            }
            _ => return Err(Errno::INVAL),
        })
    }

    #[inline(never)]
    fn decode_message(&mut self, entry: &SubmittedEntry) -> Result<SendOp, Errno> {
        let header = entry.message()?;
        let ancillary = self.ancillary(&header)?;
        let source = SendSource::Many(header.vectors);
        Ok(SendOp { ancillary: ancillary.map(Box::new), ..SendOp::plain(entry, source) })
    }
}

/// Decodes a send with a destination address.
fn addressed_send(entry: &SubmittedEntry) -> SendOp {
    let ancillary = Ancillary {
        to: Some(entry.destination()),
        control: entry.memory().first(0),
        options: SendOptions::default(),
        rights: Vec::new(),
    };
    let source = SendSource::One(entry.memory());
    SendOp { ancillary: Some(Box::new(ancillary)), ..SendOp::plain(entry, source) }
}

impl SendOp {
    fn plain(entry: &SubmittedEntry, source: SendSource) -> Self {
        let total = source.ranges().iter().map(|range| range.len()).sum();
        let of_files = is_plain_read_or_write(entry);
        let all = !of_files && entry.op_flags & msg::WAITALL != 0;
        let (zero_copy, short_fails) = (is_zero_copy_send(entry), of_files);
        Self {
            source,
            total,
            done: 0,
            all,
            short_fails,
            ancillary: None,
            zero_copy,
            checksum: None,
        }
    }
}

/// Returns true if the entry's flags forbid waiting. The descriptor does not matter: on a ring,
/// operations wait even on a non-blocking one.
fn must_not_wait(entry: &SubmittedEntry) -> bool {
    match entry.opcode {
        opcode::ACCEPT => entry.ioprio & ACCEPT_DONTWAIT != 0,
        _ if is_socket_transfer(entry) => entry.op_flags & msg::DONTWAIT != 0,
        _ => is_plain_read_or_write(entry) && entry.op_flags & rwf::NOWAIT != 0,
    }
}

fn decode_receive(entry: &SubmittedEntry) -> Result<ReceiveOp, Errno> {
    let multi = !is_plain_read_or_write(entry) && entry.ioprio & RECV_MULTISHOT != 0;
    let header = (entry.opcode == opcode::RECVMSG).then(|| entry.message()).transpose()?;
    let (cover, vectors) = match header {
        Some(MessageHeader { name, control, .. }) if multi => (
            Some(MetadataTarget::BeforePayload(MessageLayout {
                name: name.len(),
                control: control.len(),
            })),
            None,
        ),
        Some(mut header) => {
            let vectors = std::mem::take(&mut header.vectors);
            (Some(MetadataTarget::ToHeader(header)), Some(vectors))
        }
        None => (None, None),
    };
    let into = match vectors {
        _ if entry.flags & EntryFlags::BUFFER_SELECT.bits() != 0 => {
            Destination::Group(entry.buf_group)
        }
        Some(vectors) => Destination::Vectors(vectors),
        None if entry.opcode == opcode::READV => Destination::Vectors(entry.vectors()?),
        None => Destination::Memory(entry.memory()),
    };
    Ok(ReceiveOp {
        into,
        multi,
        remaining: (entry.file_index > 0).then_some(entry.file_index),
        max_at_once: if multi && entry.opcode == opcode::RECV && entry.len > 0 {
            entry.len as usize
        } else {
            usize::MAX
        },
        cover: cover.map(Box::new),
        whole: entry.op_flags & msg::TRUNC != 0,
        watched: false,
    })
}

/// Returns the events of a poll. On big-endian machines, the two 16-bit halves of the field are
/// swapped.
fn poll_events(entry: &SubmittedEntry) -> u32 {
    if cfg!(target_endian = "big") { entry.op_flags.rotate_left(16) } else { entry.op_flags }
}
