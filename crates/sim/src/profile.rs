//! Which kernel is played: what it grants at set-up, and which operations it has.

use annulus_ring::{KernelFeatures, SetupFlags, opcode};
use rustix::io::Errno;

/// The operations this kernel can play.
const PLAYED: [u8; 31] = [
    opcode::NOP,
    opcode::READV,
    opcode::WRITEV,
    opcode::READ_FIXED,
    opcode::WRITE_FIXED,
    opcode::POLL_ADD,
    opcode::SENDMSG,
    opcode::RECVMSG,
    opcode::TIMEOUT,
    opcode::ACCEPT,
    opcode::ASYNC_CANCEL,
    opcode::CONNECT,
    opcode::CLOSE,
    opcode::READ,
    opcode::WRITE,
    opcode::SEND,
    opcode::RECV,
    opcode::SHUTDOWN,
    opcode::SEND_ZC,
    opcode::SENDMSG_ZC,
    opcode::FSYNC,
    opcode::FALLOCATE,
    opcode::OPENAT,
    opcode::STATX,
    opcode::FADVISE,
    opcode::OPENAT2,
    opcode::RENAMEAT,
    opcode::UNLINKAT,
    opcode::MKDIRAT,
    opcode::LINKAT,
    opcode::FTRUNCATE,
];

/// The same, by bits.
const PLAYED_BITS: u64 = {
    let (mut bits, mut at) = (0, 0);
    while at < PLAYED.len() {
        bits |= 1 << PLAYED[at];
        at += 1;
    }
    bits
};

/// A kernel's abilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Set-up flags that are granted; any other one is answered EINVAL.
    pub setup: SetupFlags,
    /// What the kernel says of itself.
    pub features: KernelFeatures,
    /// Whether a multishot receive can be given a total limit (6.17); else a non-zero one is EINVAL.
    pub receive_limit: bool,
    /// Whether a zero-copy send can be asked to report (6.2); else that is EINVAL.
    pub zero_copy_report: bool,
    /// Bytes that a process may have registered (`RLIMIT_MEMLOCK`); more is ENOMEM.
    pub lockable: u64,
    /// Operations to do without: EINVAL, and absent from the probe.
    pub missing: Vec<u8>,
    /// What every set-up answers instead of a ring.
    pub refusal: Option<Errno>,
}

impl Profile {
    /// Linux 6.18.
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

    /// Linux 6.0: no deferred task work, an index array, receives without a limit, messages only with a copy.
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
            lockable: u64::MAX,
            missing: vec![opcode::SENDMSG_ZC],
            refusal: None,
        }
    }

    /// The same kernel, but every set-up answers `errno`: blocked, missing, or short of memory.
    #[must_use]
    pub fn refusing(self, errno: Errno) -> Self {
        Self { refusal: Some(errno), ..self }
    }

    /// The same kernel without an operation.
    #[must_use]
    pub fn without(mut self, opcode: u8) -> Self {
        self.missing.push(opcode);
        self
    }

    /// Whether the operation is there.
    #[inline]
    pub fn has(&self, opcode: u8) -> bool {
        // Asked for each entry: a bit each, and no search.
        let played = opcode < 64 && PLAYED_BITS >> opcode & 1 == 1;
        played && (self.missing.is_empty() || !self.missing.contains(&opcode))
    }

    /// The highest opcode the kernel knows.
    pub(crate) fn last_opcode(&self) -> u8 {
        PLAYED.into_iter().filter(|&code| self.has(code)).max().unwrap_or(0)
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
    fn a_missing_operation_is_gone_and_the_rest_stays() {
        let profile = Profile::current().without(opcode::SHUTDOWN);
        assert!(!profile.has(opcode::SHUTDOWN) && profile.has(opcode::RECV));
        assert!(!profile.has(opcode::FUTEX_WAIT));
        assert_eq!(profile.last_opcode(), opcode::FTRUNCATE);
    }
}
