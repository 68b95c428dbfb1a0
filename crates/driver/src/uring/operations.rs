//! The operations that the driver submits: what a locked-down ring is left with, and what a kernel must have.

use annulus_ring::{Probe, SetupError, opcode};

/// All of them, and nothing else.
pub(super) const IN_USE: [u8; 10] = [
    opcode::NOP,
    opcode::POLL_ADD,
    opcode::SENDMSG,
    opcode::TIMEOUT,
    opcode::ACCEPT,
    opcode::ASYNC_CANCEL,
    opcode::CONNECT,
    opcode::CLOSE,
    opcode::SEND,
    opcode::RECV,
];

/// Those that are replaced: a close by the plain system call, the timer of quiet by keeping the memory.
const REPLACED: [u8; 2] = [opcode::CLOSE, opcode::TIMEOUT];

/// What the kernel has of them.
pub(super) struct Operations {
    /// Else descriptors are closed by a plain call.
    pub(super) close: bool,
}

impl Operations {
    /// # Errors
    /// [`SetupError::Lacks`], where one is missing that nothing replaces.
    pub(super) fn of(probe: &Probe) -> Result<Self, SetupError> {
        let missing = |code: &u8| !probe.has(*code) && !REPLACED.contains(code);
        match IN_USE.into_iter().find(missing) {
            Some(code) => Err(SetupError::Lacks(opcode::name(code).unwrap_or("an operation"))),
            None => Ok(Self { close: probe.has(opcode::CLOSE) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::token::Token;
    use crate::uring::encode;
    use crate::uring::quiet::Alarm;
    use std::collections::BTreeSet;
    use std::ptr;

    /// One of each.
    fn every_op() -> [Op; 14] {
        let (fd, len, limit) = (-1, 0, 0);
        let (from, into, header, address) =
            (ptr::null(), ptr::null_mut(), ptr::null(), ptr::null());
        [
            Op::Nop,
            Op::AcceptMulti { fd },
            Op::Accept { fd },
            Op::ReceiveMulti { fd, limit },
            Op::ReceiveLent { fd },
            Op::Receive { fd, buffer: into, len },
            Op::SendNow { fd, buffer: from, len },
            Op::SendVectorNow { fd, header },
            Op::Send { fd, buffer: from, len },
            Op::SendVector { fd, header },
            Op::Connect { fd, address, len },
            Op::Readable { fd },
            Op::Cancel { target: Token::IGNORED },
            Op::Close { fd },
        ]
    }

    #[test]
    fn what_is_in_use_is_what_is_submitted() {
        let entries = every_op().map(|op| encode::entry(Token::IGNORED, op, 0));
        let submitted = entries.into_iter().chain([Alarm::default().set(0)]);
        let submitted: BTreeSet<u8> = submitted.map(|entry| entry.opcode).collect();
        assert_eq!(submitted, BTreeSet::from(IN_USE));
    }
}
