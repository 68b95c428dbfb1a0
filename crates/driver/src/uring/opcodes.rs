//! The opcodes that the driver submits. A locked-down ring allows only these, and the kernel must
//! have those that are not optional.

use annulus_ring::opcode::{self, MemoryUse, Need, OPERATIONS, Operation};
use annulus_ring::{Entry, EntryFlags, Probe, SetupError};

/// Returns true if the driver may submit this operation on a locked-down ring, which has no
/// zero-copy receives.
fn is_used(operation: &Operation, zero_copy: bool) -> bool {
    match operation.need {
        Need::Always | Need::Optional => true,
        Need::ZeroCopy => zero_copy,
        Need::ZeroCopyReceive | Need::File | Need::Never => false,
    }
}

pub(super) fn opcodes_in_use(zero_copy: bool) -> Vec<u8> {
    OPERATIONS.iter().filter(|row| is_used(row, zero_copy)).map(|row| row.opcode).collect()
}

/// Returns true if the table lists the entry's operation as one that the driver submits, and agrees
/// with `refers_to_memory` on whether the operation refers to the submitter's memory.
pub(super) fn is_listed(entry: &Entry, refers_to_memory: bool) -> bool {
    let selects = entry.flags & EntryFlags::BUFFER_SELECT.bits() != 0;
    opcode::operation(entry.opcode).is_some_and(|row| {
        let may_refer = row.memory != MemoryUse::None && (refers_to_memory || !selects);
        let is_used = row.need == Need::ZeroCopyReceive || is_used(row, true);
        is_used && may_refer == refers_to_memory
    })
}

/// The optional opcodes that the kernel has. TIMEOUT is also optional, but
/// [`TrimTimer`](super::trim_timer::TrimTimer) detects whether it is missing.
#[derive(Debug)]
pub(super) struct SupportedOps {
    /// If false, descriptors are closed by a system call.
    pub(super) close: bool,
    /// If false, datagram sockets are unsupported, and opening one is an error.
    pub(super) messages: bool,
}

impl SupportedOps {
    /// # Errors
    /// Returns [`SetupError::Lacks`] if a required opcode is missing.
    pub(super) fn of(probe: &Probe, zero_copy: bool) -> Result<Self, SetupError> {
        let is_needed = |row: &&Operation| is_used(row, zero_copy) && row.need != Need::Optional;
        let mut needed = OPERATIONS.iter().filter(is_needed);
        if let Some(missing) = needed.find(|row| !probe.has(row.opcode)) {
            return Err(SetupError::Lacks(missing.name));
        }
        Ok(Self { close: probe.has(opcode::CLOSE), messages: probe.has(opcode::RECVMSG) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uring::trim_timer::TrimTimer;

    #[test]
    fn zero_copy_is_allowed_only_if_the_ring_uses_it() {
        let more: Vec<u8> = opcodes_in_use(true)
            .into_iter()
            .filter(|code| !opcodes_in_use(false).contains(code))
            .collect();
        assert_eq!(more, [opcode::SEND_ZC, opcode::SENDMSG_ZC]);
        assert!(opcodes_in_use(false).contains(&Entry::from(TrimTimer::default().start(0)).opcode));
    }
}
