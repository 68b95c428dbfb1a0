//! Descriptors of processes (Linux 5.3): unlike a number, one never names another process. And the privileges of this process and the CPUs of its
//! threads.
#![allow(unsafe_code)]

use rustix::io::{Errno, Result};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::{CapabilitySet, CpuSet, capabilities};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A descriptor of the process with this number, which becomes readable when that ends.
///
/// # Errors
/// `NOSYS` before Linux 5.3; `SRCH` if there is no such process; out of descriptors.
pub fn open(process: u32) -> Result<OwnedFd> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    rustix::process::pidfd_open(process, PidfdFlags::empty())
}

/// Sends a signal to a process, by its number.
///
/// # Errors
/// `SRCH` if the process has ended and was waited for; `PERM`; `INVAL` for a number that no signal has.
pub fn signal(process: BorrowedFd<'_>, signal: i32) -> Result<()> {
    let (fd, info, flags) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>(), 0u32);
    // SAFETY: the descriptor is open, and without information about the signal the call reads no memory.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, info, flags) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// Whether this process has a capability.
pub fn has_capability(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// The CPUs that the calling thread may use.
///
/// # Errors
/// If a filter denies the call; `INVAL` on a machine with more CPUs than a set has.
pub fn cpus() -> Result<CpuSet> {
    rustix::thread::sched_getaffinity(None)
}

/// Sets the CPUs that the calling thread, and threads that it starts later, may use.
///
/// # Errors
/// `INVAL` if the process may use none of them.
pub fn set_cpus(cpus: &CpuSet) -> Result<()> {
    rustix::thread::sched_setaffinity(None, cpus)
}
