//! Operations as submission entries.

use super::lending::{self, STREAMS};
use crate::op::Op;
use crate::operations::{Operations, Verbs};
use crate::token::Token;
use annulus_kernel::{Fd, IoVec, MsgHeader, msg};
use annulus_ring::op::{self, poll, rwf};
use annulus_ring::{Entry, EntryFlags};
use std::cell::UnsafeCell;
use std::ptr;

/// A send that must not wait, and posts no completion where everything went.
const NOW: u32 = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
/// A send that waits until everything went.
const ALL: u32 = msg::WAITALL | msg::NOSIGNAL;
/// A datagram that must not wait; it goes whole or not at all.
const WHOLE_NOW: u32 = msg::DONTWAIT | msg::NOSIGNAL;
/// A receive that tells the whole length of what it cuts.
const MESSAGE: u32 = msg::TRUNC | msg::CMSG_CLOEXEC;

/// What receives name that want nothing but bytes in a lent buffer. The kernel writes into the header as they end, and
/// nobody reads it.
struct Nothing<T>(UnsafeCell<T>);

// SAFETY: no code of ours reads or writes what is inside; the kernel gets its address.
unsafe impl<T> Sync for Nothing<T> {}

static NO_HEADER: Nothing<MsgHeader> = Nothing(UnsafeCell::new(MsgHeader {
    name: ptr::null(),
    name_len: 0,
    vectors: ptr::null(),
    vector_count: 0,
    control: ptr::null(),
    control_len: 0,
    flags: 0,
}));

static NO_VECTOR: Nothing<IoVec> = Nothing(UnsafeCell::new(IoVec { base: ptr::null(), len: 0 }));

/// How this driver's operations become entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder {
    pub(super) operations: Operations,
    /// The kernel tells which zero-copy sends it copied.
    pub(super) reports_copies: bool,
}

impl Encoder {
    /// # Safety
    /// A header that the operation names must be a live `struct msghdr` with its vectors.
    #[inline]
    pub(super) unsafe fn entry(self, token: Token, op: Op) -> Entry {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.plain(token, op) }.user_data(token.bits())
    }

    /// # Safety
    /// See [`entry`](Self::entry).
    #[inline]
    unsafe fn plain(self, token: Token, op: Op) -> Entry {
        match op {
            Op::Nop => op::Nop.entry(),
            Op::SendNow { fd, buffer, len } => quiet(self.send(fd, buffer, len, true)),
            Op::Send { fd, buffer, len } => self.send(fd, buffer, len, false),
            Op::SendVectorNow { fd, header } => {
                // SAFETY: the caller's promise, passed on.
                quiet(unsafe { self.send_vector(fd, header, true) })
            }
            // SAFETY: as above.
            Op::SendVector { fd, header } => unsafe { self.send_vector(fd, header, false) },
            Op::Lend { fd, buffer, len } => {
                let send = op::Send { fd, buffer, len, flags: ALL };
                op::zero_copy(send.entry(), self.reports_copies)
            }
            Op::LendVector { fd, header } => {
                let send = op::SendMsg { fd, header, flags: ALL };
                op::zero_copy(send.entry(), self.reports_copies)
            }
            Op::SendMessageNow { fd, header } => quiet(message(fd, header)),
            Op::SendMessage { fd, header } => message(fd, header),
            Op::WritableOnce { fd } => op::Poll { fd, events: poll::OUT }.entry(),
            Op::ReceiveMessages { fd, header } => {
                let group = lending::group(token);
                op::RecvMsgMulti { fd, group, header, flags: MESSAGE }.entry()
            }
            Op::ReceiveMessage { fd, header } => op::RecvMsg { fd, header, flags: MESSAGE }.entry(),
            // Never with poll-first, which can miss the end: see `Operations::poll_first`.
            Op::ReceiveMulti { fd, limit } => op::RecvMulti { fd, group: STREAMS, limit }.entry(),
            Op::ReceiveLent { fd } => self.receive_lent(fd),
            Op::Receive { fd, buffer, len } => self.tried(op::Recv { fd, buffer, len }.entry()),
            Op::AcceptMulti { fd } => op::AcceptMulti { fd }.entry(),
            Op::Accept { fd } => op::Accept { fd }.entry(),
            Op::Connect { fd, address, len } => op::Connect { fd, address, len }.entry(),
            Op::ReadableOnce { fd } => op::Poll { fd, events: poll::IN }.entry(),
            Op::Readable { fd } => op::PollMulti { fd, events: poll::IN }.entry(),
            Op::Cancel { target } => quiet(op::Cancel { user_data: target.bits() }.entry()),
            Op::File { .. } => unreachable!("files encode their own"),
            Op::Close { fd } => quiet(op::Close { fd }.entry()),
        }
    }

    #[inline]
    fn receive_lent(self, fd: Fd) -> Entry {
        let group = STREAMS;
        match self.operations.verbs {
            Verbs::Multishot | Verbs::RecvSend => self.tried(op::RecvSelect { fd, group }.entry()),
            Verbs::RecvmsgSendmsg => {
                let header = NO_HEADER.0.get().cast();
                self.tried(op::RecvMsgSelect { fd, header, group }.entry())
            }
            Verbs::ReadWrite => op::ReadSelect { fd, group }.entry(),
            Verbs::ReadvWritev => op::ReadvSelect { fd, vector: NO_VECTOR.0.get(), group }.entry(),
        }
    }

    /// A receive that is tried at once, or when there is something to receive.
    #[inline]
    fn tried(self, receive: Entry) -> Entry {
        if self.operations.poll_first { op::poll_first(receive) } else { receive }
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
