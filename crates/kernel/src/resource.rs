//! Resource limits of this process, and the machine's memory.
#![allow(unsafe_code)]

use std::fs;
use std::mem::MaybeUninit;

/// Returns the machine's memory in bytes, or `None` if the call is refused. Needs neither `/proc`
/// nor a descriptor.
pub fn machine_memory() -> Option<u64> {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the memory for the answer outlives the call, and a `struct sysinfo` of zeroes is
    // valid.
    let (done, info) = unsafe { (libc::sysinfo(info.as_mut_ptr()), info.assume_init()) };
    #[allow(clippy::unnecessary_cast, reason = "the type of the field differs by architecture")]
    let total = info.totalram as u64;
    (done == 0).then(|| total.saturating_mul(u64::from(info.mem_unit)))
}

/// A resource with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `RLIMIT_NOFILE`: descriptors.
    OpenFiles,
    /// `RLIMIT_MEMLOCK`: bytes of locked memory.
    LockedMemory,
    /// `RLIMIT_AS`: bytes of address space.
    AddressSpace,
}

/// A limit, where `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The limit that applies.
    pub soft: Option<u64>,
    /// The limit up to which the process may raise the soft limit.
    pub hard: Option<u64>,
}

impl Limit {
    /// Reads a limit of this process from `/proc`. A limit that cannot be read counts as unlimited.
    ///
    /// Does not call `getrlimit`: if a seccomp filter denies that call, rustix returns the error as
    /// a limit.
    pub fn of(resource: Resource) -> Limit {
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Limit::parse(&limits, resource).unwrap_or_default()
    }

    fn parse(limits: &str, resource: Resource) -> Option<Limit> {
        let label = match resource {
            Resource::OpenFiles => "Max open files",
            Resource::LockedMemory => "Max locked memory",
            Resource::AddressSpace => "Max address space",
        };
        let line = limits.lines().find_map(|line| line.strip_prefix(label))?;
        let mut words = line.split_whitespace();
        let mut next = || match words.next()? {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(Limit { soft: next()?, hard: next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROC_LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max locked memory         8388608              8388608              bytes     
Max address space         unlimited            unlimited            bytes     
Max open files            1024                 524288               files     
";

    #[test]
    fn limits_in_proc_are_parsed() {
        let of = |resource| Limit::parse(PROC_LIMITS, resource);
        assert_eq!(of(Resource::OpenFiles), Some(Limit { soft: Some(1024), hard: Some(524_288) }));
        assert_eq!(of(Resource::AddressSpace), Some(Limit::default()));
        assert_eq!(of(Resource::LockedMemory).and_then(|limit| limit.hard), Some(8_388_608));
        assert_eq!(Limit::parse("", Resource::OpenFiles), None);
        assert_eq!(Limit::parse("Max open files  many", Resource::OpenFiles), None);
    }

    #[test]
    fn open_files_limit_matches_getrlimit() {
        let asked = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let limit = Limit::of(Resource::OpenFiles);
        assert_eq!((limit.soft, limit.hard), (asked.current, asked.maximum));
    }
}
