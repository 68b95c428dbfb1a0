//! The opcodes that the driver submits: those that a locked-down ring allows, and that a kernel must have.

use annulus_ring::{Probe, SetupError, opcode};

/// The opcodes that are always in use.
const ALWAYS: [u8; 11] = [
    opcode::NOP,
    opcode::POLL_ADD,
    opcode::TIMEOUT,
    opcode::ACCEPT,
    opcode::ASYNC_CANCEL,
    opcode::CONNECT,
    opcode::CLOSE,
    opcode::RECV,
    opcode::RECVMSG,
    opcode::SEND,
    opcode::SENDMSG,
];

/// The opcodes of zero-copy sends.
const ZERO_COPY: [u8; 2] = [opcode::SEND_ZC, opcode::SENDMSG_ZC];

/// The opcodes in use, and no others.
pub(super) fn in_use(zero_copy: bool) -> Vec<u8> {
    let zero_copy: &[u8] = if zero_copy { &ZERO_COPY } else { &[] };
    [&ALWAYS, zero_copy].concat()
}

/// The opcodes that may be missing. A system call replaces CLOSE; without TIMEOUT the pools keep their memory; without RECVMSG there are
/// no datagram sockets, and opening one is an error.
const OPTIONAL: [u8; 3] = [opcode::CLOSE, opcode::TIMEOUT, opcode::RECVMSG];

/// The optional opcodes that the kernel has.
#[derive(Debug)]
pub(super) struct Supported {
    /// If not, descriptors are closed by a system call.
    pub(super) close: bool,
    /// If not, there are no datagram sockets.
    pub(super) messages: bool,
}

impl Supported {
    /// # Errors
    /// [`SetupError::Lacks`] if one is missing that is not optional.
    pub(super) fn of(probe: &Probe, needed: &[u8]) -> Result<Self, SetupError> {
        let missing = |code: &u8| !probe.has(*code) && !OPTIONAL.contains(code);
        match needed.iter().copied().find(missing) {
            Some(code) => Err(SetupError::Lacks(opcode::name(code).unwrap_or("an operation"))),
            None => {
                Ok(Self { close: probe.has(opcode::CLOSE), messages: probe.has(opcode::RECVMSG) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{MemoryOp, Op};
    use crate::slots::Token;
    use crate::uring::encode::Encoder;
    use crate::uring::trim_timer::TrimTimer;
    use annulus_kernel::{Fd, MsgHeader};
    use annulus_ring::Entry;
    use std::collections::BTreeSet;
    use std::ptr;

    /// One of each operation that names no memory.
    fn every_op() -> [Op; 10] {
        let (fd, limit) = (Fd::NONE, 0);
        [
            Op::Nop,
            Op::AcceptMulti { fd },
            Op::Accept { fd },
            Op::RecvMulti { fd, limit },
            Op::RecvPooled { fd },
            Op::WritableOnce { fd },
            Op::ReadableOnce { fd },
            Op::Readable { fd },
            Op::Cancel { target: Token::IGNORED },
            Op::Close { fd },
        ]
    }

    /// One of each operation that names memory.
    fn every_memory_op(header: &MsgHeader) -> [MemoryOp; 11] {
        let (fd, len) = (Fd::NONE, 0);
        let (from, into, address) = (ptr::null(), ptr::null_mut(), ptr::null());
        let header = ptr::from_ref(header).cast();
        [
            MemoryOp::Recv { fd, buffer: into, len },
            MemoryOp::RecvMessages { fd, header },
            MemoryOp::RecvMessage { fd, header: into },
            MemoryOp::SendMessageNow { fd, header },
            MemoryOp::SendNow { fd, buffer: from, len },
            MemoryOp::SendVectorNow { fd, header },
            MemoryOp::Send { fd, buffer: from, len },
            MemoryOp::SendVector { fd, header },
            MemoryOp::SendZeroCopy { fd, buffer: from, len },
            MemoryOp::SendVectorZeroCopy { fd, header },
            MemoryOp::Connect { fd, address, len },
        ]
    }

    #[test]
    fn the_opcodes_in_use_are_those_submitted() {
        let encoder = Encoder { reports_copies: true };
        let plain = every_op().map(|op| encoder.entry(Token::IGNORED, op).into());
        let entry = |op| encoder.memory_entry(Token::IGNORED, op);
        let with_memory = every_memory_op(&MsgHeader::EMPTY).map(entry);
        let (fd, buffer, to) = (Fd::NONE, ptr::null(), ptr::null());
        let to = entry(MemoryOp::SendToNow { fd, buffer, len: 0, to, to_len: 0 });
        let timer = Entry::from(TrimTimer::default().start(0));
        let submitted = plain.into_iter().chain(with_memory).chain([to, timer]);
        let submitted: BTreeSet<u8> = submitted.map(|entry| entry.opcode).collect();
        assert_eq!(submitted, BTreeSet::from_iter(in_use(true)));
        let copying = in_use(false);
        assert!(ZERO_COPY.iter().all(|code| !copying.contains(code)));
    }
}
