//! The kernel to simulate: the set-up flags it grants, its features and its operations.

use crate::memory::{FILE_OPCODES, REFUSED_FILE_OPCODES, REGISTERED_BUFFER_OPCODES};
use annulus_ring::opcode::{self, Need, OPERATIONS, Operation};
use annulus_ring::{KernelFeatures, SetupFlags};
use rustix::io::Errno;

/// The simulated operations that are not file calls.
const NON_FILE_OPCODES: [u8; 13] = [
    opcode::NOP,
    opcode::POLL_ADD,
    opcode::SENDMSG,
    opcode::RECVMSG,
    opcode::TIMEOUT,
    opcode::ACCEPT,
    opcode::ASYNC_CANCEL,
    opcode::CONNECT,
    opcode::CLOSE,
    opcode::SEND,
    opcode::RECV,
    opcode::SEND_ZC,
    opcode::SENDMSG_ZC,
];

/// A bit for each simulated opcode.
const SIMULATED_OPCODE_BITS: u64 =
    bits(&NON_FILE_OPCODES) | bits(&FILE_OPCODES) | bits(&REGISTERED_BUFFER_OPCODES);

const fn bits(opcodes: &[u8]) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < opcodes.len() {
        bits |= 1 << opcodes[at];
        at += 1;
    }
    bits
}

const _: () = {
    let (answered, mut at) = (SIMULATED_OPCODE_BITS | bits(&REFUSED_FILE_OPCODES), 0);
    while at < OPERATIONS.len() {
        let Operation { opcode, need, .. } = OPERATIONS[at];
        let never = matches!(need, Need::Never | Need::ZeroCopyReceive);
        assert!(
            never || answered >> opcode & 1 == 1,
            "an operation of the table is neither simulated nor refused"
        );
        at += 1;
    }
};

/// The version-dependent features of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The set-up flags that are granted; any other fails with EINVAL.
    pub setup: SetupFlags,
    /// The feature bits that a set-up reports.
    pub features: KernelFeatures,
    /// Whether a multishot receive may have a limit (Linux 6.17); otherwise a limit fails with
    /// EINVAL.
    pub receive_limit: bool,
    /// Whether a zero-copy send may ask for a usage report (Linux 6.2); otherwise asking fails with
    /// EINVAL.
    pub zero_copy_report: bool,
    /// Opcodes that fail with EINVAL and are missing from the probe.
    pub missing: Vec<u8>,
    /// The error with which every set-up fails, if any.
    pub refusal: Option<Errno>,
}

impl Profile {
    /// Returns the profile of Linux 6.18.
    pub fn current() -> Self {
        Self {
            setup: Self::old().setup | SetupFlags::DEFER_TASKRUN | SetupFlags::NO_SQARRAY,
            features: Self::old().features
                | KernelFeatures::MIN_TIMEOUT
                | KernelFeatures::NO_IOWAIT,
            receive_limit: true,
            zero_copy_report: true,
            missing: Vec::new(),
            ..Self::old()
        }
    }

    /// Returns the profile of Linux 6.0, which has no deferred task work, for example, and needs an
    /// index array.
    pub fn old() -> Self {
        Self {
            setup: SetupFlags::CQSIZE
                | SetupFlags::CLAMP
                | SetupFlags::R_DISABLED
                | SetupFlags::SUBMIT_ALL
                | SetupFlags::COOP_TASKRUN
                | SetupFlags::TASKRUN_FLAG
                | SetupFlags::SINGLE_ISSUER
                | SetupFlags::SQPOLL
                | SetupFlags::SQ_AFF,
            features: KernelFeatures::SINGLE_MMAP
                | KernelFeatures::NODROP
                | KernelFeatures::SUBMIT_STABLE
                | KernelFeatures::FAST_POLL
                | KernelFeatures::EXT_ARG
                | KernelFeatures::CQE_SKIP,
            receive_limit: false,
            zero_copy_report: false,
            missing: vec![opcode::SENDMSG_ZC],
            refusal: None,
        }
    }

    /// Makes every set-up fail with `errno`.
    #[must_use]
    pub fn refusing(self, errno: Errno) -> Self {
        Self { refusal: Some(errno), ..self }
    }

    /// Removes an operation.
    #[must_use]
    pub fn without(mut self, opcode: u8) -> Self {
        self.missing.push(opcode);
        self
    }

    /// Returns true if the kernel has an operation.
    #[inline]
    pub fn has(&self, opcode: u8) -> bool {
        // Runs for each entry, so it tests a bit instead of searching.
        let simulated = opcode < 64 && SIMULATED_OPCODE_BITS >> opcode & 1 == 1;
        simulated && (self.missing.is_empty() || !self.missing.contains(&opcode))
    }

    pub(crate) fn last_opcode(&self) -> u8 {
        (0..64).rev().find(|&code| self.has(code)).unwrap_or(0)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_removes_only_that_operation() {
        let profile = Profile::current().without(opcode::CLOSE);
        assert!(!profile.has(opcode::CLOSE) && profile.has(opcode::RECV));
        assert!(!profile.has(opcode::FUTEX_WAIT));
        assert_eq!(profile.last_opcode(), opcode::FTRUNCATE);
    }
}
