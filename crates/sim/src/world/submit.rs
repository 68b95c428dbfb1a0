//! Turns entries into operations.

use super::World;
use super::check::{
    ACCEPT_MANY, ACCEPT_NOW, POLL_MANY, RECEIVE_MANY, check, is_lent, is_message, is_of_files,
    receives, waits_first,
};
use crate::faults::Fault;
use crate::memory::{Header, Submitted};
use crate::net::SendMeta;
use crate::op::{Ancillary, Answer, Body, Cover, Into, Op, Outcome, Receive, Send, Source};
use crate::trace::Note;
use annulus_kernel::{Domain, Layout, msg};
use annulus_ring::op::rwf;
use annulus_ring::{EntryFlags, opcode};
use rustix::io::Errno;

impl World {
    #[inline]
    pub(super) fn submit_one(&mut self, ring: u32, entry: &Submitted) {
        self.counts.submitted += 1;
        self.trace.note(self.net.time.now(), Note::Submitted(entry));
        let skip = entry.flags & EntryFlags::SKIP_SUCCESS.bits() != 0;
        let answer = match self.may_submit(ring, entry) {
            Ok(()) => self.perform(ring, entry, skip),
            Err(errno) => Some(Answer::error(errno)),
        };
        if let Some(answer) = answer {
            self.complete(ring, entry.user_data, skip, answer);
        }
    }

    fn may_submit(&self, ring: u32, entry: &Submitted) -> Result<(), Errno> {
        if self.rings.at(ring).restrictions().is_some_and(|lists| !lists.allow_entry(entry)) {
            return Err(Errno::ACCESS);
        }
        check(entry, &self.profile)
    }

    /// Makes operations that do not wait; the others are in flight.
    fn perform(&mut self, ring: u32, entry: &Submitted, skip: bool) -> Option<Answer> {
        let done = |result: Result<(), Errno>| Some(result.map(|()| 0).into());
        match entry.opcode {
            opcode::NOP => done(Ok(())),
            opcode::ASYNC_CANCEL => Some(self.cancel(ring, entry.addr)),
            opcode::CLOSE => done(self.close(entry.fd)),
            _ if self.is_about_files(entry) => self.submit_file(ring, entry, skip),
            _ => match self.operation(ring, entry, skip) {
                Ok(op) => self.start(op, entry),
                Err(errno) => Some(Answer::error(errno)),
            },
        }
    }

    pub(super) fn operation(
        &mut self,
        ring: u32,
        entry: &Submitted,
        skip: bool,
    ) -> Result<Op, Errno> {
        let (body, file) = match (entry.opcode, self.socket_of(entry.fd)) {
            (opcode::TIMEOUT, _) => (Body::Timer { after: entry.time()? }, None),
            // A descriptor of the process may be anything: it is never ready.
            (opcode::POLL_ADD, Err(_)) if entry.fd >= 0 => (Body::Never, None),
            (_, file) => file.and_then(|file| Ok((self.body(entry)?, Some(file))))?,
        };
        Ok(Op {
            user_data: entry.user_data,
            ring,
            file,
            skip,
            nowait: must_not_wait(entry),
            queued: false,
            cancelled: false,
            body,
        })
    }

    /// The first try.
    fn start(&mut self, mut op: Op, entry: &Submitted) -> Option<Answer> {
        match self.first_try(&mut op, entry) {
            Outcome::Done(answer) => {
                self.drop_rights(&op);
                return Some(self.notification_of(&mut op, answer));
            }
            Outcome::Waits => self.park(op, false),
            Outcome::GoesOn => self.park(op, true),
        };
        None
    }

    pub(super) fn first_try(&mut self, op: &mut Op, entry: &Submitted) -> Outcome {
        let Some(socket) = op.socket() else { return Outcome::Waits };
        let polls = matches!(op.body, Body::Poll { .. });
        if !polls && self.occurs(Fault::NoMemory) {
            return Outcome::of(Err(Errno::NOMEM));
        }
        let lent = matches!(op.body, Body::Send(Send { lent: true, .. }));
        if lent && self.net.socket(socket).domain == Domain::Unix {
            return Outcome::of(Err(Errno::OPNOTSUPP));
        }
        if let Body::Connect = op.body
            && let Err(errno) = self.begin_connect(socket, entry)
        {
            return Outcome::of(Err(errno));
        }
        if !op.nowait && !polls && (waits_first(entry) || self.occurs(Fault::Defer)) {
            return Outcome::Waits;
        }
        match self.attempt(op) {
            Outcome::Waits if op.nowait => Outcome::Done(op.stopped_by(Errno::AGAIN)),
            outcome => outcome,
        }
    }

    fn body(&mut self, entry: &Submitted) -> Result<Body, Errno> {
        Ok(match entry.opcode {
            opcode::ACCEPT => Body::Accept { multi: entry.ioprio & ACCEPT_MANY != 0 },
            opcode::CONNECT => Body::Connect,
            _ if receives(entry) => Body::Receive(receive(entry)?),
            opcode::POLL_ADD => {
                Body::Poll { events: events(entry), multi: entry.len & POLL_MANY != 0 }
            }
            opcode::SENDMSG | opcode::SENDMSG_ZC => Body::Send(self.message(entry)?),
            opcode::SEND if entry.off != 0 => Body::Send(addressed(entry)),
            opcode::WRITEV => Body::Send(Send::plain(entry, Source::Many(entry.vectors()?))),
            opcode::SEND | opcode::SEND_ZC | opcode::WRITE => {
                Body::Send(Send::plain(entry, Source::One(entry.memory())))
            }
            _ => return Err(Errno::INVAL),
        })
    }

    #[inline(never)]
    fn message(&mut self, entry: &Submitted) -> Result<Send, Errno> {
        let header = entry.message()?;
        let ancillary = self.ancillary(&header)?;
        let source = Source::Many(header.vectors);
        Ok(Send { ancillary: ancillary.map(Box::new), ..Send::plain(entry, source) })
    }
}

/// A send with the address of its destination.
fn addressed(entry: &Submitted) -> Send {
    let ancillary = Ancillary {
        to: Some(entry.destination()),
        control: entry.memory().first(0),
        meta: SendMeta::default(),
        rights: Vec::new(),
    };
    let source = Source::One(entry.memory());
    Send { ancillary: Some(Box::new(ancillary)), ..Send::plain(entry, source) }
}

impl Send {
    fn plain(entry: &Submitted, source: Source) -> Self {
        let total = source.pieces().iter().map(|piece| piece.len()).sum();
        let of_files = is_of_files(entry);
        let all = !of_files && entry.op_flags & msg::WAITALL != 0;
        let (lent, short_fails) = (is_lent(entry), of_files);
        Self { source, total, done: 0, all, short_fails, ancillary: None, lent, seal: None }
    }
}

/// Only the flags of the entry matter: on a ring, an operation waits even on a non-blocking descriptor.
fn must_not_wait(entry: &Submitted) -> bool {
    match entry.opcode {
        opcode::ACCEPT => entry.ioprio & ACCEPT_NOW != 0,
        _ if is_message(entry) => entry.op_flags & msg::DONTWAIT != 0,
        _ => is_of_files(entry) && entry.op_flags & rwf::NOWAIT != 0,
    }
}

fn receive(entry: &Submitted) -> Result<Receive, Errno> {
    let multi = !is_of_files(entry) && entry.ioprio & RECEIVE_MANY != 0;
    let header = (entry.opcode == opcode::RECVMSG).then(|| entry.message()).transpose()?;
    let (cover, vectors) = match header {
        Some(Header { name, control, .. }) if multi => {
            (Some(Cover::Front(Layout { name: name.len(), control: control.len() })), None)
        }
        Some(mut header) => {
            let vectors = std::mem::take(&mut header.vectors);
            (Some(Cover::Header(header)), Some(vectors))
        }
        None => (None, None),
    };
    let into = match vectors {
        _ if entry.flags & EntryFlags::BUFFER_SELECT.bits() != 0 => Into::Group(entry.buf_group),
        Some(vectors) => Into::Vectors(vectors),
        None if entry.opcode == opcode::READV => Into::Vectors(entry.vectors()?),
        None => Into::Memory(entry.memory()),
    };
    Ok(Receive {
        into,
        multi,
        left: (entry.file_index > 0).then_some(entry.file_index),
        most: if multi && entry.opcode == opcode::RECV && entry.len > 0 {
            entry.len as usize
        } else {
            usize::MAX
        },
        cover: cover.map(Box::new),
        whole: entry.op_flags & msg::TRUNC != 0,
        watched: false,
    })
}

/// The kernel reads poll events as two little-endian half words.
fn events(entry: &Submitted) -> u32 {
    if cfg!(target_endian = "big") { entry.op_flags.rotate_left(16) } else { entry.op_flags }
}
