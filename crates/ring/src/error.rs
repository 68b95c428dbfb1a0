//! Errors of ring set-up and of a full submission queue.

use crate::params::DeviceQueue;
use annulus_kernel::process::has_capability;
use rustix::thread::CapabilitySet;
use std::fmt;
use std::io;

/// An error from setting up a ring.
#[derive(Debug)]
pub enum SetupError {
    /// The kernel refused `io_uring_setup`.
    Refused(io::Error),
    /// The kernel refused `io_uring_setup` with SQ polling, on the given CPU if one was chosen.
    SqPoll(Option<u32>, io::Error),
    /// The kernel refused a zero-copy receive, from the given queue of a device if there is one.
    ZeroCopyReceive(Option<DeviceQueue>, io::Error),
    /// The kernel lacks a required feature.
    Lacks(&'static str),
    /// A size is out of range.
    Size {
        /// The object that would have this size, such as a submission queue.
        what: &'static str,
        /// The requested size.
        given: u32,
        /// The largest allowed size.
        limit: u32,
    },
    /// The named step failed, such as mapping memory or a registration.
    Step(&'static str, io::Error),
}

impl SetupError {
    /// Returns the errno of the cause, if there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Refused(error)
            | Self::SqPoll(_, error)
            | Self::ZeroCopyReceive(_, error)
            | Self::Step(_, error) => error.raw_os_error(),
            Self::Lacks(_) | Self::Size { .. } => None,
        }
    }
}

/// Returns the likely cause of a refused zero-copy receive, and the remedy.
fn zero_copy_receive_advice(
    queue: Option<DeviceQueue>,
    errno: Option<i32>,
    release: &str,
) -> String {
    use rustix::io::Errno;
    match (errno.map(Errno::from_raw_os_error), queue) {
        (Some(Errno::PERM), _) => "this process may not use it; give it CAP_NET_ADMIN".into(),
        (Some(Errno::NOMEM), _) => {
            "the kernel locks its memory; raise `ulimit -l`, or use less".into()
        }
        (Some(Errno::NODEV), Some(queue)) => format!("there is no network device {}", queue.device),
        (_, Some(queue)) => format!(
            "queue {} of network device {} needs a driver that supports it, and Linux 6.18 or newer; this is Linux {release}",
            queue.queue, queue.device
        ),
        (_, None) => {
            format!("without a device, it needs Linux 7.1 or newer; this is Linux {release}")
        }
    }
}

/// Returns the release of the running kernel.
fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Returns the likely cause of refused SQ polling, and the remedy.
fn sq_poll_advice(cpu: Option<u32>, errno: Option<i32>, privileged: bool) -> &'static str {
    match (errno.map(rustix::io::Errno::from_raw_os_error), cpu) {
        (Some(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS), _) if privileged => {
            "this process has CAP_SYS_NICE, so a seccomp filter or another policy forbids it; do not use SQ polling"
        }
        (Some(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS), _) => {
            "this process may not use it; give it CAP_SYS_NICE, or do not use SQ polling"
        }
        (Some(rustix::io::Errno::INVAL), Some(_)) => {
            "this CPU does not exist, or this process may not use it; choose another"
        }
        _ => "do not use SQ polling",
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "io_uring_setup: {error}"),
            Self::SqPoll(cpu, error) => {
                let place = cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
                let is_privileged = has_capability(CapabilitySet::SYS_NICE);
                let advice = sq_poll_advice(*cpu, error.raw_os_error(), is_privileged);
                write!(f, "SQ polling{place}: {error}: {advice}")
            }
            Self::ZeroCopyReceive(queue, error) => {
                write!(f, "zero-copy receive: {error}: ")?;
                f.write_str(&zero_copy_receive_advice(*queue, error.raw_os_error(), &release()))
            }
            Self::Lacks(what) => {
                write!(f, "this kernel's io_uring lacks {what}; use epoll or a newer kernel")
            }
            Self::Size { what, given, limit } => {
                write!(f, "{given} is not a valid size of {what}: use 1 to {limit}")
            }
            Self::Step(step, error) => write!(f, "{step}: {error}"),
        }
    }
}

// The message includes the text of the cause, so the cause is not the `source`.
impl std::error::Error for SetupError {}

impl From<SetupError> for io::Error {
    fn from(error: SetupError) -> Self {
        let kind = match &error {
            SetupError::Refused(cause)
            | SetupError::SqPoll(_, cause)
            | SetupError::ZeroCopyReceive(_, cause)
            | SetupError::Step(_, cause) => cause.kind(),
            SetupError::Lacks(_) => io::ErrorKind::Unsupported,
            SetupError::Size { .. } => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}

/// The submission queue has no free entry; the next [`enter`](crate::Ring::enter) frees entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the submission queue is full; enter the kernel before pushing more")
    }
}

impl std::error::Error for QueueFull {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn advice_on_zero_copy_receive_mentions_both_kernels() {
        let advice = |queue, errno: Errno| {
            zero_copy_receive_advice(queue, Some(errno.raw_os_error()), "6.18.44")
        };
        let old = advice(None, Errno::INVAL);
        assert!(old.contains("Linux 7.1") && old.contains("Linux 6.18.44"), "{old}");
        let queue = Some(DeviceQueue { device: 3, queue: 1 });
        let old = advice(queue, Errno::OPNOTSUPP);
        assert!(old.starts_with("queue 1 of network device 3 ") && old.contains("Linux 6.18 "));
        assert_eq!(advice(queue, Errno::NODEV), "there is no network device 3");
        assert!(advice(None, Errno::PERM).contains("CAP_NET_ADMIN"));
    }

    #[test]
    fn advice_mentions_cap_sys_nice_only_if_it_is_missing() {
        let refused = Some(Errno::PERM.raw_os_error());
        assert!(sq_poll_advice(None, refused, false).contains("give it CAP_SYS_NICE"));
        let advice = sq_poll_advice(None, refused, true);
        assert!(advice.contains("has CAP_SYS_NICE") && advice.contains("seccomp"), "{advice}");
    }
}
