//! Encodes operations as submission entries.

use super::pool_ring::{self, STREAMS};
use crate::op::{MemoryOp, Op};
use crate::operations::{Operations, Verbs};
use crate::token::Token;
use annulus_kernel::{Fd, MsgHeader, msg};
use annulus_ring::op::{self, poll, rwf};
use annulus_ring::{Entry, EntryFlags, SafeEntry};

/// A send that does not block, and posts no completion if all bytes were sent.
const NOW: u32 = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
/// A send that blocks until all bytes were sent.
const ALL: u32 = msg::WAITALL | msg::NOSIGNAL;
/// A send of one datagram, which does not block: it is sent whole or not at all.
const WHOLE_NOW: u32 = msg::DONTWAIT | msg::NOSIGNAL;
/// A receive that reports the whole length of a message that it truncates.
const MESSAGE: u32 = msg::TRUNC | msg::CMSG_CLOEXEC;

/// Encodes the operations of one driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder {
    pub(super) operations: Operations,
    /// The kernel reports which zero-copy sends it has copied.
    pub(super) reports_copies: bool,
}

impl Encoder {
    #[inline]
    pub(super) fn entry(self, token: Token, op: Op) -> SafeEntry {
        let entry = match op {
            Op::Nop => op::Nop.entry(),
            // Never with poll-first, which can miss the end of the stream: see `Operations::poll_first`.
            Op::RecvMulti { fd, limit } => op::RecvMulti { fd, group: STREAMS, limit }.entry(),
            Op::RecvPooled { fd } => self.receive_lent(fd),
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
                // SAFETY: the header is a live `struct msghdr`, which this function demands.
                quiet(unsafe { self.send_vector(fd, header, true) })
            }
            // SAFETY: the header is a live `struct msghdr`, which this function demands.
            MemoryOp::SendVector { fd, header } => unsafe { self.send_vector(fd, header, false) },
            MemoryOp::SendZeroCopy { fd, buffer, len } => {
                let send = op::Send { fd, buffer, len, flags: ALL };
                op::zero_copy(send.entry(), self.reports_copies)
            }
            MemoryOp::SendVectorZeroCopy { fd, header } => {
                let send = op::SendMsg { fd, header, flags: ALL };
                op::zero_copy(send.entry(), self.reports_copies)
            }
            MemoryOp::SendToNow { fd, buffer, len, to, to_len } => {
                send_to_now(fd, buffer, len, to, to_len)
            }
            MemoryOp::SendMessageNow { fd, header } => send_message_now(fd, header),
            MemoryOp::SendMessage { fd, header } => send_message(fd, header),
            MemoryOp::RecvMessages { fd, header } => {
                let group = pool_ring::group(token);
                op::RecvMsgMulti { fd, group, header, flags: MESSAGE }.entry()
            }
            MemoryOp::RecvMessage { fd, header } => {
                op::RecvMsg { fd, header, flags: MESSAGE }.entry()
            }
            MemoryOp::Recv { fd, buffer, len } => {
                let receive = op::Recv { fd, buffer, len }.entry();
                if self.operations.poll_first { receive.poll_first() } else { receive }
            }
            MemoryOp::Connect { fd, address, len } => op::Connect { fd, address, len }.entry(),
            MemoryOp::File { .. } => unreachable!("`Uring::submit_file` encodes file calls"),
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
        // SAFETY: the header is a live `struct msghdr`, which this function demands.
        let MsgHeader { vectors, vector_count, control_len, .. } =
            unsafe { header.cast::<MsgHeader>().read() };
        // A write has no control messages.
        if !self.operations.verbs.are_of_files() || control_len > 0 {
            return op::SendMsg { fd, header, flags: send_flags(now) }.entry();
        }
        let count = vector_count as u32;
        op::Writev { fd, vectors, count, flags: write_flags(now) }.entry()
    }
}

/// A datagram that is nothing but bytes and an address: the kernel need not read a header.
#[inline]
pub(super) fn send_to_now(
    fd: Fd,
    buffer: *const u8,
    len: u32,
    name: *const u8,
    name_len: u16,
) -> Entry {
    quiet(op::SendTo { fd, buffer, len, name, name_len, flags: WHOLE_NOW }.entry())
}

/// A datagram with a header, of which there is no event if it was sent.
#[inline]
pub(super) fn send_message_now(fd: Fd, header: *const u8) -> Entry {
    quiet(send_message(fd, header))
}

fn send_message(fd: Fd, header: *const u8) -> Entry {
    op::SendMsg { fd, header, flags: WHOLE_NOW }.entry()
}

fn quiet(entry: Entry) -> Entry {
    entry.with(EntryFlags::SKIP_SUCCESS)
}

fn send_flags(now: bool) -> u32 {
    if now { NOW } else { ALL }
}

/// A short write posts a completion even if it was told to skip it on success.
fn write_flags(now: bool) -> u32 {
    if now { rwf::NOWAIT } else { 0 }
}
