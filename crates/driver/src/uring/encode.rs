//! Operations as submission entries.

use super::lending::{self, STREAMS};
use crate::op::{MemoryOp, Op};
use crate::operations::{Operations, Verbs};
use crate::token::Token;
use annulus_kernel::{Fd, MsgHeader, msg};
use annulus_ring::op::{self, poll, rwf};
use annulus_ring::{Entry, EntryFlags, SafeEntry};

/// A send that must not wait, and posts no completion where everything went.
const NOW: u32 = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
/// A send that waits until everything went.
const ALL: u32 = msg::WAITALL | msg::NOSIGNAL;
/// A datagram that must not wait; it goes whole or not at all.
const WHOLE_NOW: u32 = msg::DONTWAIT | msg::NOSIGNAL;
/// A receive that tells the whole length of what it cuts.
const MESSAGE: u32 = msg::TRUNC | msg::CMSG_CLOEXEC;

/// How this driver's operations become entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder {
    pub(super) operations: Operations,
    /// The kernel tells which zero-copy sends it copied.
    pub(super) reports_copies: bool,
}

impl Encoder {
    #[inline]
    pub(super) fn entry(self, token: Token, op: Op) -> SafeEntry {
        let entry = match op {
            Op::Nop => op::Nop.entry(),
            // Never with poll-first, which can miss the end: see `Operations::poll_first`.
            Op::ReceiveMulti { fd, limit } => op::RecvMulti { fd, group: STREAMS, limit }.entry(),
            Op::ReceiveLent { fd } => self.receive_lent(fd),
            Op::AcceptMulti { fd } => op::AcceptMulti { fd }.entry(),
            Op::Accept { fd } => op::Accept { fd }.entry(),
            Op::WritableOnce { fd } => op::Poll { fd, events: poll::OUT }.entry(),
            Op::ReadableOnce { fd } => op::Poll { fd, events: poll::IN }.entry(),
            Op::Readable { fd } => op::PollMulti { fd, events: poll::IN }.entry(),
            Op::Cancel { target } => op::Cancel { user_data: target.bits() }.entry().skip_success(),
            Op::Close { fd } => op::Close { fd }.entry().skip_success(),
        };
        entry.user_data(token.bits())
    }

    /// # Safety
    /// A header that the operation names must be a live `struct msghdr` with its vectors.
    #[inline]
    pub(super) unsafe fn memory_entry(self, token: Token, op: MemoryOp) -> Entry {
        let entry = match op {
            MemoryOp::SendNow { fd, buffer, len } => quiet(self.send(fd, buffer, len, true)),
            MemoryOp::Send { fd, buffer, len } => self.send(fd, buffer, len, false),
            MemoryOp::SendVectorNow { fd, header } => {
                // SAFETY: the caller's promise, passed on.
                quiet(unsafe { self.send_vector(fd, header, true) })
            }
            // SAFETY: as above.
            MemoryOp::SendVector { fd, header } => unsafe { self.send_vector(fd, header, false) },
            MemoryOp::Lend { fd, buffer, len } => {
                let send = op::Send { fd, buffer, len, flags: ALL };
                op::zero_copy(send.entry(), self.reports_copies)
            }
            MemoryOp::LendVector { fd, header } => {
                let send = op::SendMsg { fd, header, flags: ALL };
                op::zero_copy(send.entry(), self.reports_copies)
            }
            MemoryOp::SendMessageNow { fd, header } => quiet(message(fd, header)),
            MemoryOp::SendMessage { fd, header } => message(fd, header),
            MemoryOp::ReceiveMessages { fd, header } => {
                let group = lending::group(token);
                op::RecvMsgMulti { fd, group, header, flags: MESSAGE }.entry()
            }
            MemoryOp::ReceiveMessage { fd, header } => {
                op::RecvMsg { fd, header, flags: MESSAGE }.entry()
            }
            MemoryOp::Receive { fd, buffer, len } => {
                let receive = op::Recv { fd, buffer, len }.entry();
                if self.operations.poll_first { receive.poll_first() } else { receive }
            }
            MemoryOp::Connect { fd, address, len } => op::Connect { fd, address, len }.entry(),
            MemoryOp::File { .. } => unreachable!("files encode their own"),
        };
        entry.user_data(token.bits())
    }

    #[inline]
    fn receive_lent(self, fd: Fd) -> SafeEntry {
        let group = STREAMS;
        let receive = match self.operations.verbs {
            Verbs::Multishot | Verbs::RecvSend => op::RecvSelect { fd, group }.entry(),
            Verbs::RecvmsgSendmsg => op::RecvMsgSelect { fd, group }.entry(),
            Verbs::ReadWrite => return op::ReadSelect { fd, group }.entry(),
            Verbs::ReadvWritev => return op::ReadvSelect { fd, group }.entry(),
        };
        if self.operations.poll_first { receive.poll_first() } else { receive }
    }

    #[inline]
    fn send(self, fd: Fd, buffer: *const u8, len: u32, now: bool) -> Entry {
        if self.operations.verbs.are_of_files() {
            op::Write { fd, buffer, len, flags: write_flags(now) }.entry()
        } else {
            op::Send { fd, buffer, len, flags: send_flags(now) }.entry()
        }
    }

    /// # Safety
    /// The header must be a live `struct msghdr`.
    #[inline]
    unsafe fn send_vector(self, fd: Fd, header: *const u8, now: bool) -> Entry {
        // SAFETY: the caller's promise.
        let MsgHeader { vectors, vector_count, control_len, .. } =
            unsafe { header.cast::<MsgHeader>().read() };
        // A write carries nothing beside its bytes.
        if !self.operations.verbs.are_of_files() || control_len > 0 {
            return op::SendMsg { fd, header, flags: send_flags(now) }.entry();
        }
        let count = vector_count as u32;
        op::Writev { fd, vectors, count, flags: write_flags(now) }.entry()
    }
}

fn message(fd: Fd, header: *const u8) -> Entry {
    op::SendMsg { fd, header, flags: WHOLE_NOW }.entry()
}

fn quiet(entry: Entry) -> Entry {
    entry.with(EntryFlags::SKIP_SUCCESS)
}

fn send_flags(now: bool) -> u32 {
    if now { NOW } else { ALL }
}

/// A write that comes short posts a completion, whether it was to skip it or not.
fn write_flags(now: bool) -> u32 {
    if now { rwf::NOWAIT } else { 0 }
}
