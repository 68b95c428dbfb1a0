//! Encodes operations as submission entries.

use super::opcodes::is_listed;
use super::pool_ring::{self, STREAM_GROUP};
use crate::op::{MemoryOp, Op};
use crate::slots::Token;
use annulus_kernel::{Fd, msg};
use annulus_ring::op::{self, poll};
use annulus_ring::{Entry, EntryFlags, SafeEntry};

/// Flags of a send that does not block. With `WAITALL`, the kernel treats a short send as failed,
/// so the send posts a completion even if successful sends post none.
const SEND_NOW_FLAGS: u32 = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
/// Flags of a send that waits until all bytes have been sent.
const SEND_ALL_FLAGS: u32 = msg::WAITALL | msg::NOSIGNAL;
/// Flags of a send of one datagram that does not block. A datagram is sent whole or not at all.
const SEND_DATAGRAM_FLAGS: u32 = msg::DONTWAIT | msg::NOSIGNAL;
/// Flags of a receive that reports the full length of a message even if it truncates it.
const RECV_MESSAGE_FLAGS: u32 = msg::TRUNC | msg::CMSG_CLOEXEC;

#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder {
    /// Whether the kernel reports which zero-copy sends it has copied.
    pub(super) reports_copies: bool,
    /// The number of the refill ring of zero-copy receives.
    pub(super) refill_ring: u32,
}

impl Encoder {
    #[inline]
    pub(super) fn entry(self, token: Token, op: Op) -> SafeEntry {
        let entry = match op {
            Op::Nop => op::Nop.entry(),
            Op::RecvMulti { fd, limit } => op::RecvMulti { fd, group: STREAM_GROUP, limit }.entry(),
            Op::RecvZeroCopy { fd, limit } => {
                op::RecvZeroCopy { fd, refill_ring: self.refill_ring, limit }.entry()
            }
            Op::RecvPooled { fd } => op::RecvSelect { fd, group: STREAM_GROUP }.entry(),
            Op::AcceptMulti { fd } => op::AcceptMulti { fd }.entry(),
            Op::Accept { fd } | Op::AcceptNow { fd } => op::Accept { fd }.entry(),
            Op::WritableOnce { fd } => op::Poll { fd, events: poll::OUT }.entry(),
            Op::ReadableOnce { fd } => op::Poll { fd, events: poll::IN }.entry(),
            Op::Readable { fd } => op::PollMulti { fd, events: poll::IN }.entry(),
            Op::Cancel { target } => op::Cancel { user_data: target.bits() }.entry().skip_success(),
            Op::Close { fd } => op::Close { fd }.entry().skip_success(),
        };
        debug_assert!(
            is_listed(&entry.into(), false),
            "the entry of {op:?} does not match the table of operations"
        );
        entry.user_data(token.bits())
    }

    #[inline]
    pub(super) fn memory_entry(self, token: Token, op: MemoryOp) -> Entry {
        let entry = match op {
            MemoryOp::SendNow { fd, buffer, len } => {
                skip_success(op::Send { fd, buffer, len, flags: SEND_NOW_FLAGS }.entry())
            }
            MemoryOp::Send { fd, buffer, len } => {
                op::Send { fd, buffer, len, flags: SEND_ALL_FLAGS }.entry()
            }
            MemoryOp::SendVectorNow { fd, header } => {
                skip_success(op::SendMsg { fd, header, flags: SEND_NOW_FLAGS }.entry())
            }
            MemoryOp::SendVector { fd, header } => {
                op::SendMsg { fd, header, flags: SEND_ALL_FLAGS }.entry()
            }
            MemoryOp::SendZeroCopy { fd, buffer, len } => {
                let send = op::Send { fd, buffer, len, flags: SEND_ALL_FLAGS };
                op::zero_copy(send.entry(), self.reports_copies)
            }
            MemoryOp::SendVectorZeroCopy { fd, header } => {
                let send = op::SendMsg { fd, header, flags: SEND_ALL_FLAGS };
                op::zero_copy(send.entry(), self.reports_copies)
            }
            MemoryOp::SendToNow { fd, buffer, len, to, to_len } => {
                send_to_now(fd, buffer, len, to, to_len)
            }
            MemoryOp::SendMessageNow { fd, header } => send_message_now(fd, header),
            MemoryOp::RecvMessages { fd, header } => {
                let group = pool_ring::group_of(token);
                op::RecvMsgMulti { fd, group, header, flags: RECV_MESSAGE_FLAGS }.entry()
            }
            MemoryOp::RecvMessage { fd, header } => {
                op::RecvMsg { fd, header, flags: RECV_MESSAGE_FLAGS }.entry()
            }
            MemoryOp::Recv { fd, buffer, len } => op::Recv { fd, buffer, len }.entry(),
            MemoryOp::Connect { fd, address, len } => op::Connect { fd, address, len }.entry(),
        };
        debug_assert!(
            is_listed(&entry, true),
            "the entry of {op:?} does not match the table of operations"
        );
        entry.user_data(token.bits())
    }
}

/// Encodes a send of one datagram to an address. Unlike a message, it has no header for the kernel
/// to read.
#[inline]
pub(super) fn send_to_now(
    fd: Fd,
    buffer: *const u8,
    len: u32,
    name: *const u8,
    name_len: u16,
) -> Entry {
    skip_success(op::SendTo { fd, buffer, len, name, name_len, flags: SEND_DATAGRAM_FLAGS }.entry())
}

/// Encodes a send of a message with a header. If it succeeds, it posts no completion.
#[inline]
pub(super) fn send_message_now(fd: Fd, header: *const u8) -> Entry {
    skip_success(op::SendMsg { fd, header, flags: SEND_DATAGRAM_FLAGS }.entry())
}

fn skip_success(entry: Entry) -> Entry {
    entry.with(EntryFlags::SKIP_SUCCESS)
}
