//! Operations as submission entries.

use crate::op::Op;
use crate::token::Token;
use annulus_ring::op::{self, msg, poll};
use annulus_ring::{Entry, EntryFlags, Target};

/// A send that must not wait, and posts no completion where everything went.
const NOW: u32 = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
/// A send that waits until everything went.
const ALL: u32 = msg::WAITALL | msg::NOSIGNAL;

#[inline]
pub(super) fn entry(token: Token, op: Op, group: u16) -> Entry {
    plain(op, group).user_data(token.bits())
}

#[inline]
fn plain(op: Op, group: u16) -> Entry {
    match op {
        Op::SendNow { fd, buffer, len } => quiet(send(fd, buffer, len, NOW)),
        Op::SendVectorNow { fd, header } => quiet(send_vector(fd, header, NOW)),
        Op::Send { fd, buffer, len } => send(fd, buffer, len, ALL),
        Op::SendVector { fd, header } => send_vector(fd, header, ALL),
        Op::ReceiveMulti { fd, limit } => {
            op::RecvMulti { target: Target::Fd(fd), group, limit }.entry()
        }
        Op::ReceiveLent { fd } => op::RecvSelect { target: Target::Fd(fd), group }.entry(),
        Op::Receive { fd, buffer, len } => op::Recv { target: Target::Fd(fd), buffer, len }.entry(),
        Op::AcceptMulti { fd } => op::AcceptMulti { target: Target::Fd(fd) }.entry(),
        Op::Accept { fd } => op::Accept { target: Target::Fd(fd) }.entry(),
        Op::Connect { fd, address, len } => {
            op::Connect { target: Target::Fd(fd), address, len }.entry()
        }
        Op::Readable { fd } => op::PollMulti { target: Target::Fd(fd), events: poll::IN }.entry(),
        Op::Nop => op::Nop.entry(),
        Op::Cancel { target } => quiet(op::Cancel { user_data: target.bits() }.entry()),
        Op::Close { fd } => quiet(op::Close { fd }.entry()),
    }
}

fn quiet(entry: Entry) -> Entry {
    entry.with(EntryFlags::SKIP_SUCCESS)
}

fn send(fd: i32, buffer: *const u8, len: u32, flags: u32) -> Entry {
    op::Send { target: Target::Fd(fd), buffer, len, flags }.entry()
}

fn send_vector(fd: i32, header: *const u8, flags: u32) -> Entry {
    op::SendMsg { target: Target::Fd(fd), header, flags }.entry()
}
