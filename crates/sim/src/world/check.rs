//! Checks whether an entry is valid, as Linux does before it looks up the file, and in the same
//! order.

use crate::memory::{FILE_OPCODES, SubmittedEntry};
use crate::profile::Profile;
use annulus_kernel::msg;
use annulus_ring::op::rwf;
use annulus_ring::{EntryFlags, opcode};
use rustix::io::Errno;

/// `IORING_RECVSEND_POLL_FIRST`: wait for readiness before the first attempt.
const RECVSEND_POLL_FIRST: u16 = 1 << 0;
/// `IORING_SEND_ZC_REPORT_USAGE`
const SEND_ZC_REPORT_USAGE: u16 = 1 << 3;
/// `IORING_RECV_MULTISHOT`
pub(super) const RECV_MULTISHOT: u16 = 1 << 1;
/// `IORING_ACCEPT_MULTISHOT`
pub(super) const ACCEPT_MULTISHOT: u16 = 1 << 0;
/// `IORING_ACCEPT_DONTWAIT`
pub(super) const ACCEPT_DONTWAIT: u16 = 1 << 1;
/// `IORING_ACCEPT_POLL_FIRST`
const ACCEPT_POLL_FIRST: u16 = 1 << 2;
const SOCK_NONBLOCK: u32 = 0o4000;
const SOCK_CLOEXEC: u32 = 0o2_000_000;
/// `IORING_POLL_ADD_MULTI`
pub(super) const POLL_MULTISHOT: u32 = 1 << 0;

/// Returns EINVAL for an entry with anything that this kernel does not support.
pub(super) fn check(entry: &SubmittedEntry, profile: &Profile) -> Result<(), Errno> {
    let known = EntryFlags::ASYNC | EntryFlags::BUFFER_SELECT | EntryFlags::SKIP_SUCCESS;
    let flags = EntryFlags::from_bits_retain(entry.flags);
    let selects = flags.contains(EntryFlags::BUFFER_SELECT);
    if !known.contains(flags) || selects && !selects_buffers(entry) || !profile.has(entry.opcode) {
        return Err(Errno::INVAL);
    }
    let sound = match entry.opcode {
        opcode::RECV | opcode::RECVMSG => is_valid_receive(entry, profile),
        opcode::SEND | opcode::SENDMSG => {
            let known = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
            entry.ioprio & !RECVSEND_POLL_FIRST == 0
                && entry.op_flags & !known == 0
                && (is_unaddressed(entry) || is_addressed(entry, profile))
        }
        opcode::SEND_ZC | opcode::SENDMSG_ZC => is_valid_zero_copy_send(entry, profile),
        opcode::READ | opcode::READV | opcode::READ_FIXED => is_valid_read_or_write(entry),
        opcode::WRITE | opcode::WRITEV | opcode::WRITE_FIXED => is_valid_read_or_write(entry),
        opcode::ACCEPT => is_valid_accept(entry),
        opcode::CONNECT => entry.ioprio == 0 && entry.len == 0 && entry.op_flags == 0,
        opcode::POLL_ADD => entry.len & !POLL_MULTISHOT == 0 && entry.off == 0 && entry.addr == 0,
        // Only a relative time is simulated: no completion count and no other clock.
        opcode::TIMEOUT => {
            entry.len == 1 && entry.op_flags == 0 && entry.off == 0 && entry.ioprio == 0
        }
        opcode::ASYNC_CANCEL => entry.op_flags == 0 && entry.off == 0,
        opcode::CLOSE => entry.addr == 0 && entry.len == 0 && entry.file_index == 0,
        opcode::NOP => true,
        _ => FILE_OPCODES.contains(&entry.opcode),
    };
    if sound { Ok(()) } else { Err(Errno::INVAL) }
}

fn is_unaddressed(entry: &SubmittedEntry) -> bool {
    entry.off == 0 && entry.file_index == 0
}

/// Returns true if a send may have a destination address. Linux 6.1 introduced both this and
/// zero-copy sendmsg.
fn is_addressed(entry: &SubmittedEntry, profile: &Profile) -> bool {
    entry.opcode == opcode::SEND
        && profile.has(opcode::SENDMSG_ZC)
        && entry.file_index.to_ne_bytes()[2..] == [0, 0]
}

/// Returns true for a valid zero-copy send, which cannot skip its completion.
fn is_valid_zero_copy_send(entry: &SubmittedEntry, profile: &Profile) -> bool {
    let known = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
    let report = if profile.zero_copy_report { SEND_ZC_REPORT_USAGE } else { 0 };
    entry.flags & EntryFlags::SKIP_SUCCESS.bits() == 0
        && entry.ioprio & !(RECVSEND_POLL_FIRST | report) == 0
        && entry.op_flags & !known == 0
        && entry.file_index == 0
}

pub(super) fn is_zero_copy_send(entry: &SubmittedEntry) -> bool {
    matches!(entry.opcode, opcode::SEND_ZC | opcode::SENDMSG_ZC)
}

/// Returns true if the operation may take its buffer from a group. On Linux, reads can too.
fn selects_buffers(entry: &SubmittedEntry) -> bool {
    matches!(entry.opcode, opcode::RECV | opcode::RECVMSG)
}

/// Returns true for a send or receive that works only on sockets.
pub(super) fn is_socket_transfer(entry: &SubmittedEntry) -> bool {
    matches!(entry.opcode, opcode::SEND | opcode::SENDMSG)
        || selects_buffers(entry)
        || is_zero_copy_send(entry)
}

pub(super) fn is_receive(entry: &SubmittedEntry) -> bool {
    matches!(entry.opcode, opcode::RECV | opcode::RECVMSG | opcode::READ | opcode::READV)
}

/// Returns true for a file operation that also works on sockets.
pub(super) fn is_plain_read_or_write(entry: &SubmittedEntry) -> bool {
    matches!(entry.opcode, opcode::READ | opcode::READV | opcode::WRITE | opcode::WRITEV)
}

fn is_valid_read_or_write(entry: &SubmittedEntry) -> bool {
    entry.ioprio == 0 && entry.op_flags & !(rwf::NOWAIT | rwf::DSYNC) == 0
}

fn is_valid_receive(entry: &SubmittedEntry, profile: &Profile) -> bool {
    let many = entry.ioprio & RECV_MULTISHOT != 0;
    let selects = entry.flags & EntryFlags::BUFFER_SELECT.bits() != 0;
    let limited = entry.file_index != 0;
    let message = entry.opcode == opcode::RECVMSG;
    let known = msg::DONTWAIT | msg::NOSIGNAL | msg::TRUNC | msg::CMSG_CLOEXEC;
    entry.ioprio & !(RECVSEND_POLL_FIRST | RECV_MULTISHOT) == 0
        && entry.op_flags & !known == 0
        && entry.off == 0
        && (!many || selects && (entry.len == u32::from(message) || limited && !message))
        && (!limited || many && !message && profile.receive_limit)
}

/// Returns true for a valid accept. An accept that writes the peer's address is not simulated.
fn is_valid_accept(entry: &SubmittedEntry) -> bool {
    entry.ioprio & !(ACCEPT_MULTISHOT | ACCEPT_DONTWAIT | ACCEPT_POLL_FIRST) == 0
        && entry.op_flags & !(SOCK_NONBLOCK | SOCK_CLOEXEC) == 0
        && entry.addr == 0
        && entry.off == 0
        && entry.len == 0
}

/// Returns true if an operation must wait for readiness before its first attempt.
pub(super) fn polls_first(entry: &SubmittedEntry) -> bool {
    entry.flags & EntryFlags::ASYNC.bits() != 0
        || match entry.opcode {
            opcode::ACCEPT => entry.ioprio & ACCEPT_POLL_FIRST != 0,
            _ => is_socket_transfer(entry) && entry.ioprio & RECVSEND_POLL_FIRST != 0,
        }
}
