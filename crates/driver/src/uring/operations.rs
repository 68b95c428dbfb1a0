//! The operations that the driver submits: what a locked-down ring is left with, and what a kernel must have.

use crate::operations::{Operations, Verbs};
use annulus_ring::{Probe, SetupError, opcode};

/// Those that are in use whatever the verbs.
const ALWAYS: [u8; 10] = [
    opcode::NOP,
    opcode::POLL_ADD,
    opcode::TIMEOUT,
    opcode::ACCEPT,
    opcode::ASYNC_CANCEL,
    opcode::CONNECT,
    opcode::CLOSE,
    opcode::RECV,
    opcode::RECVMSG,
    opcode::SENDMSG,
];

/// Those of sends that do not copy.
const ZERO_COPY: [u8; 2] = [opcode::SEND_ZC, opcode::SENDMSG_ZC];

/// All of them, and nothing else.
pub(super) fn in_use(operations: Operations, zero_copy: bool) -> Vec<u8> {
    let verbs: &[u8] = match operations.verbs {
        Verbs::Multishot | Verbs::RecvSend | Verbs::RecvmsgSendmsg => &[opcode::SEND],
        Verbs::ReadWrite => &[opcode::READ, opcode::WRITE, opcode::WRITEV],
        Verbs::ReadvWritev => &[opcode::READV, opcode::WRITE, opcode::WRITEV],
    };
    let lent: &[u8] = if zero_copy { &ZERO_COPY } else { &[] };
    [&ALWAYS, verbs, lent].concat()
}

/// Those that may be missing: a close is replaced by the plain system call, the timer of quiet by keeping the memory;
/// without receives of messages there are no datagram sockets, which is said where one is made.
const DISPENSABLE: [u8; 3] = [opcode::CLOSE, opcode::TIMEOUT, opcode::RECVMSG];

/// What the kernel has of them.
#[derive(Debug)]
pub(super) struct Offered {
    /// Else descriptors are closed by a plain call.
    pub(super) close: bool,
    /// Else there are no datagram sockets.
    pub(super) messages: bool,
}

impl Offered {
    /// # Errors
    /// [`SetupError::Lacks`], where one is missing that nothing replaces.
    pub(super) fn of(probe: &Probe, needed: &[u8]) -> Result<Self, SetupError> {
        let missing = |code: &u8| !probe.has(*code) && !DISPENSABLE.contains(code);
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
    use crate::op::Op;
    use crate::token::Token;
    use crate::uring::encode::Encoder;
    use crate::uring::quiet::Alarm;
    use annulus_kernel::{Fd, MsgHeader};
    use std::collections::BTreeSet;
    use std::ptr;

    const HEADER: MsgHeader = MsgHeader {
        name: ptr::null(),
        name_len: 0,
        vectors: ptr::null(),
        vector_count: 0,
        control: ptr::null(),
        control_len: 0,
        flags: 0,
    };

    /// One of each.
    fn every_op(header: &MsgHeader) -> [Op; 22] {
        let (fd, len, limit) = (Fd::NONE, 0, 0);
        let (from, into, address) = (ptr::null(), ptr::null_mut(), ptr::null());
        let header = ptr::from_ref(header).cast();
        [
            Op::Nop,
            Op::AcceptMulti { fd },
            Op::Accept { fd },
            Op::ReceiveMulti { fd, limit },
            Op::ReceiveLent { fd },
            Op::Receive { fd, buffer: into, len },
            Op::ReceiveMessages { fd, header },
            Op::ReceiveMessage { fd, header: into },
            Op::SendMessageNow { fd, header },
            Op::SendMessage { fd, header },
            Op::WritableOnce { fd },
            Op::SendNow { fd, buffer: from, len },
            Op::SendVectorNow { fd, header },
            Op::Send { fd, buffer: from, len },
            Op::SendVector { fd, header },
            Op::Lend { fd, buffer: from, len },
            Op::LendVector { fd, header },
            Op::Connect { fd, address, len },
            Op::ReadableOnce { fd },
            Op::Readable { fd },
            Op::Cancel { target: Token::IGNORED },
            Op::Close { fd },
        ]
    }

    #[test]
    fn what_is_in_use_is_what_is_submitted() {
        for operations in Operations::ALL {
            let encoder = Encoder { operations, reports_copies: true };
            // SAFETY: the header is live.
            let entry = |op| unsafe { encoder.entry(Token::IGNORED, op) };
            let entries = every_op(&HEADER).map(entry);
            let submitted = entries.into_iter().chain([Alarm::default().set(0)]);
            let submitted: BTreeSet<u8> = submitted.map(|entry| entry.opcode).collect();
            assert_eq!(submitted, BTreeSet::from_iter(in_use(operations, true)), "{operations}");
            let copying = in_use(operations, false);
            assert!(ZERO_COPY.iter().all(|code| !copying.contains(code)), "{operations}");
        }
    }
}
