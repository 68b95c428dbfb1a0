//! Explains why io_uring cannot be used on this machine, and how to fix that.

use annulus_kernel::process::has_capability;
use annulus_kernel::{Limit, Resource};
use annulus_ring::SetupError;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::fmt;
use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetupObstacle {
    OffForAll,
    OffForMost,
    Seccomp,
    Absent,
    Memlock,
    Addresses,
    Host,
    Descriptors,
    Old,
    Other,
}

impl SetupObstacle {
    fn of(errno: Option<i32>) -> Self {
        match errno.map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS) => Self::of_ban(sysctl().as_deref(), is_privileged()),
            Some(Errno::NOSYS) => Self::Absent,
            Some(Errno::NOMEM) => Self::of_shortage(Limit::of(Resource::AddressSpace)),
            Some(Errno::OPNOTSUPP) => Self::Host,
            Some(Errno::MFILE | Errno::NFILE) => Self::Descriptors,
            Some(Errno::INVAL) => Self::Old,
            _ => Self::Other,
        }
    }

    /// Returns the resource that is short: address space if it is limited, otherwise lockable
    /// memory.
    fn of_shortage(addresses: Limit) -> Self {
        if addresses.soft.is_some() { Self::Addresses } else { Self::Memlock }
    }

    /// Returns the cause of a denial: the sysctl if it denies io_uring, otherwise a seccomp filter.
    fn of_ban(sysctl: Option<&str>, privileged: bool) -> Self {
        match sysctl.map(str::trim) {
            Some("2") => Self::OffForAll,
            Some("1") if !privileged => Self::OffForMost,
            _ => Self::Seccomp,
        }
    }

    /// Returns the cause and a remedy.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::OffForAll => (
                "the sysctl kernel.io_uring_disabled is 2, which turns io_uring off for all processes",
                "as root, `sysctl kernel.io_uring_disabled=0`",
            ),
            Self::OffForMost => (
                "the sysctl kernel.io_uring_disabled is 1, and this process has no CAP_SYS_ADMIN",
                "join the group of kernel.io_uring_group, or as root `sysctl kernel.io_uring_disabled=0`",
            ),
            Self::Seccomp => (
                "a seccomp filter forbids it, probably the container's",
                "allow io_uring_setup, io_uring_enter and io_uring_register in its profile",
            ),
            Self::Absent => {
                ("this kernel has no io_uring, or a sandbox hides it", "run Linux 6.0 or newer")
            }
            Self::Memlock => (
                "the limit on locked memory is too low (memlock; before Linux 5.12, rings count towards it)",
                "raise `ulimit -l`, or use fewer entries",
            ),
            Self::Addresses => (
                "the address space of this process is limited (ulimit -v), and a ring and its buffers reserve some of it",
                "raise `ulimit -v`, or use fewer entries and buffers",
            ),
            Self::Host => ("this host has io_uring turned off", "ask its operator to turn it on"),
            Self::Descriptors => ("no descriptor is left", "raise `ulimit -n`"),
            Self::Old => ("this kernel's io_uring is older than 6.0", "run Linux 6.0 or newer"),
            Self::Other => ("the cause is unknown", "look up the error"),
        }
    }
}

/// The error for an io_uring that cannot be set up here.
#[derive(Debug)]
pub(super) struct Blocked(SetupError);

impl Blocked {
    pub(super) fn new(error: SetupError) -> Self {
        Self(error)
    }

    /// Returns the cause without the remedy.
    pub(super) fn reason(&self) -> String {
        match &self.0 {
            SetupError::Lacks(what) => format!("this kernel's io_uring lacks {what}"),
            SetupError::Size { .. } | SetupError::SqPoll(..) | SetupError::ZeroCopyReceive(..) => {
                self.0.to_string()
            }
            SetupError::Refused(error) => self.caused("io_uring_setup", error),
            SetupError::Step(step, error) => self.caused(step, error),
        }
    }

    fn caused(&self, step: &str, error: &io::Error) -> String {
        format!("{step}: {error}: {}", SetupObstacle::of(self.0.raw_os_error()).words().0)
    }

    fn remedy(&self) -> &'static str {
        match &self.0 {
            SetupError::Lacks(_) => "run a newer kernel",
            _ => SetupObstacle::of(self.0.raw_os_error()).words().1,
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason();
        // No other driver accepts this setting.
        if let SetupError::ZeroCopyReceive(..) = self.0 {
            return write!(f, "{reason}; to do without it, remove the setting zero_copy_receive");
        }
        write!(f, "{reason}; {}, or choose the driver auto or epoll", self.remedy())
    }
}

// No `source`: the text already contains the cause.
impl std::error::Error for Blocked {}

impl From<Blocked> for io::Error {
    fn from(blocked: Blocked) -> Self {
        let kind = match blocked.0 {
            // An error without an errno is about a setting that no driver accepts. Its own text
            // says why.
            SetupError::Step(_, cause) if cause.raw_os_error().is_none() => return cause,
            SetupError::Refused(ref cause)
            | SetupError::SqPoll(_, ref cause)
            | SetupError::ZeroCopyReceive(_, ref cause)
            | SetupError::Step(_, ref cause) => cause.kind(),
            SetupError::Lacks(_) => io::ErrorKind::Unsupported,
            SetupError::Size { .. } => return blocked.0.into(),
        };
        Self::new(kind, blocked)
    }
}

fn sysctl() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()
}

fn is_privileged() -> bool {
    has_capability(CapabilitySet::SYS_ADMIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denial_is_attributed_to_the_sysctl_or_to_seccomp() {
        let cases = [
            (Some("2\n"), true, SetupObstacle::OffForAll),
            (Some("1\n"), false, SetupObstacle::OffForMost),
            (Some("1\n"), true, SetupObstacle::Seccomp),
            (Some("0\n"), false, SetupObstacle::Seccomp),
            (None, false, SetupObstacle::Seccomp),
        ];
        for (sysctl, privileged, cause) in cases {
            assert_eq!(SetupObstacle::of_ban(sysctl, privileged), cause, "{sysctl:?} {privileged}");
        }
    }

    #[test]
    fn address_space_limit_is_not_reported_as_memlock() {
        let limited = Limit { soft: Some(1 << 30), hard: None };
        assert_eq!(SetupObstacle::of_shortage(limited), SetupObstacle::Addresses);
        assert_eq!(SetupObstacle::of_shortage(Limit::default()), SetupObstacle::Memlock);
    }

    #[test]
    fn refusal_shows_call_error_cause_and_remedy() {
        let refused = SetupError::Refused(Errno::NOMEM.into());
        let error = io::Error::from(Blocked::new(refused));
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        let text = error.to_string();
        for part in ["io_uring_setup", "os error 12", "memlock", "ulimit -l", "epoll"] {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
    }

    #[test]
    fn refused_zero_copy_receive_does_not_recommend_drivers_that_lack_it() {
        let refused = SetupError::ZeroCopyReceive(None, Errno::INVAL.into());
        let text = io::Error::from(Blocked::new(refused)).to_string();
        assert!(text.ends_with("remove the setting zero_copy_receive"), "{text}");
        assert!(!text.contains("epoll"), "{text}");
    }

    #[test]
    fn missing_feature_is_shown() {
        let error = io::Error::from(Blocked::new(SetupError::Lacks("multishot receive")));
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().starts_with("this kernel's io_uring lacks multishot receive; "));
    }
}
