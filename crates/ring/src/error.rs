//! Errors of ring set-up and of a full submission queue.

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
            Self::Refused(error) | Self::SqPoll(_, error) | Self::Step(_, error) => {
                error.raw_os_error()
            }
            Self::Lacks(_) | Self::Size { .. } => None,
        }
    }
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
    fn advice_mentions_cap_sys_nice_only_if_it_is_missing() {
        let refused = Some(Errno::PERM.raw_os_error());
        assert!(sq_poll_advice(None, refused, false).contains("give it CAP_SYS_NICE"));
        let advice = sq_poll_advice(None, refused, true);
        assert!(advice.contains("has CAP_SYS_NICE") && advice.contains("seccomp"), "{advice}");
    }
}
