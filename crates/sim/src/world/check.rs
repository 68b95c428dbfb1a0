//! Whether an entry is valid: the checks that Linux makes before it looks up the file, in its order.

use crate::memory::{FILE_CALLS, Submitted};
use crate::profile::Profile;
use annulus_kernel::msg;
use annulus_ring::op::rwf;
use annulus_ring::{EntryFlags, opcode};
use rustix::io::Errno;

/// `IORING_RECVSEND_POLL_FIRST`: wait for readiness before the first try.
const POLL_FIRST: u16 = 1 << 0;
/// `IORING_SEND_ZC_REPORT_USAGE`
const REPORT_USAGE: u16 = 1 << 3;
/// `IORING_RECV_MULTISHOT`
pub(super) const RECEIVE_MANY: u16 = 1 << 1;
/// `IORING_ACCEPT_MULTISHOT`
pub(super) const ACCEPT_MANY: u16 = 1 << 0;
/// `IORING_ACCEPT_DONTWAIT`
pub(super) const ACCEPT_NOW: u16 = 1 << 1;
/// `IORING_ACCEPT_POLL_FIRST`
const ACCEPT_POLL_FIRST: u16 = 1 << 2;
/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC`
const NONBLOCK: u32 = 0o4000;
const CLOSE_ON_EXEC: u32 = 0o2_000_000;
/// `IORING_POLL_ADD_MULTI`
pub(super) const POLL_MANY: u32 = 1 << 0;

/// EINVAL for what this kernel does not know.
pub(super) fn check(entry: &Submitted, profile: &Profile) -> Result<(), Errno> {
    let known = EntryFlags::ASYNC | EntryFlags::BUFFER_SELECT | EntryFlags::SKIP_SUCCESS;
    let flags = EntryFlags::from_bits_retain(entry.flags);
    let selects = flags.contains(EntryFlags::BUFFER_SELECT);
    if !known.contains(flags) || selects && !selects_buffers(entry) || !profile.has(entry.opcode) {
        return Err(Errno::INVAL);
    }
    let sound = match entry.opcode {
        opcode::RECV | opcode::RECVMSG => receive(entry, profile),
        opcode::SEND | opcode::SENDMSG => {
            let known = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
            entry.ioprio & !POLL_FIRST == 0
                && entry.op_flags & !known == 0
                && (is_unaddressed(entry) || is_addressed(entry, profile))
        }
        opcode::SEND_ZC | opcode::SENDMSG_ZC => lent_send(entry, profile),
        opcode::READ | opcode::READV | opcode::WRITE | opcode::WRITEV => file_flags(entry),
        opcode::ACCEPT => accept(entry),
        opcode::CONNECT => entry.ioprio == 0 && entry.len == 0 && entry.op_flags == 0,
        opcode::POLL_ADD => entry.len & !POLL_MANY == 0 && entry.off == 0 && entry.addr == 0,
        // Only a relative time: no count of completions, no other clock.
        opcode::TIMEOUT => {
            entry.len == 1 && entry.op_flags == 0 && entry.off == 0 && entry.ioprio == 0
        }
        opcode::ASYNC_CANCEL => entry.op_flags == 0 && entry.off == 0,
        opcode::CLOSE => entry.addr == 0 && entry.len == 0 && entry.file_index == 0,
        opcode::NOP => true,
        _ => FILE_CALLS.contains(&entry.opcode),
    };
    if sound { Ok(()) } else { Err(Errno::INVAL) }
}

fn is_unaddressed(entry: &Submitted) -> bool {
    entry.off == 0 && entry.file_index == 0
}

/// A send to an address: since 6.1, as zero-copy sends of messages.
fn is_addressed(entry: &Submitted, profile: &Profile) -> bool {
    entry.opcode == opcode::SEND
        && profile.has(opcode::SENDMSG_ZC)
        && entry.file_index.to_ne_bytes()[2..] == [0, 0]
}

/// A zero-copy send cannot skip its completion.
fn lent_send(entry: &Submitted, profile: &Profile) -> bool {
    let known = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
    let report = if profile.zero_copy_report { REPORT_USAGE } else { 0 };
    entry.flags & EntryFlags::SKIP_SUCCESS.bits() == 0
        && entry.ioprio & !(POLL_FIRST | report) == 0
        && entry.op_flags & !known == 0
        && entry.file_index == 0
}

/// Whether it is a zero-copy send.
pub(super) fn is_lent(entry: &Submitted) -> bool {
    matches!(entry.opcode, opcode::SEND_ZC | opcode::SENDMSG_ZC)
}

/// Whether the kernel may take its buffer from a group. Linux also has reads that do.
fn selects_buffers(entry: &Submitted) -> bool {
    matches!(entry.opcode, opcode::RECV | opcode::RECVMSG)
}

/// Whether it is a send or a receive that only sockets have.
pub(super) fn is_message(entry: &Submitted) -> bool {
    matches!(entry.opcode, opcode::SEND | opcode::SENDMSG)
        || selects_buffers(entry)
        || is_lent(entry)
}

/// Whether it is a receive.
pub(super) fn receives(entry: &Submitted) -> bool {
    matches!(entry.opcode, opcode::RECV | opcode::RECVMSG | opcode::READ | opcode::READV)
}

/// The file operations that sockets have too.
pub(super) fn is_of_files(entry: &Submitted) -> bool {
    matches!(entry.opcode, opcode::READ | opcode::READV | opcode::WRITE | opcode::WRITEV)
}

fn file_flags(entry: &Submitted) -> bool {
    entry.ioprio == 0 && entry.op_flags & !rwf::NOWAIT == 0
}

fn receive(entry: &Submitted, profile: &Profile) -> bool {
    let many = entry.ioprio & RECEIVE_MANY != 0;
    let selects = entry.flags & EntryFlags::BUFFER_SELECT.bits() != 0;
    let limited = entry.file_index != 0;
    let message = entry.opcode == opcode::RECVMSG;
    let known = msg::DONTWAIT | msg::NOSIGNAL | msg::TRUNC | msg::CMSG_CLOEXEC;
    entry.ioprio & !(POLL_FIRST | RECEIVE_MANY) == 0
        && entry.op_flags & !known == 0
        && entry.off == 0
        && (!many || selects && (entry.len == u32::from(message) || limited && !message))
        && (!limited || many && !message && profile.receive_limit)
}

/// An accept does not write the address of the peer.
fn accept(entry: &Submitted) -> bool {
    entry.ioprio & !(ACCEPT_MANY | ACCEPT_NOW | ACCEPT_POLL_FIRST) == 0
        && entry.op_flags & !(NONBLOCK | CLOSE_ON_EXEC) == 0
        && entry.addr == 0
        && entry.off == 0
        && entry.len == 0
}

/// Whether an operation must wait for readiness before its first try.
pub(super) fn waits_first(entry: &Submitted) -> bool {
    entry.flags & EntryFlags::ASYNC.bits() != 0
        || match entry.opcode {
            opcode::ACCEPT => entry.ioprio & ACCEPT_POLL_FIRST != 0,
            _ => is_message(entry) && entry.ioprio & POLL_FIRST != 0,
        }
}
