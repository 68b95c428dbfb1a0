//! Processes and signals, the capabilities of this process, and the CPUs of its threads. Unlike a
//! process number, a process descriptor (Linux 5.3) never comes to refer to another process.
#![allow(unsafe_code)]

use crate::call::last_error;
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, waitid};
use rustix::thread::{CapabilitySet, CpuSet, capabilities};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

/// Opens a descriptor of the process with this number. It becomes readable when the process ends.
///
/// # Errors
/// `NOSYS` before Linux 5.3; `SRCH` if no process has this number; `MFILE` if this process is out
/// of descriptors.
pub fn open(process: u32) -> Result<OwnedFd> {
    rustix::process::pidfd_open(pid(process)?, PidfdFlags::empty())
}

fn pid(process: u32) -> Result<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)
}

/// Sends the signal with this number to a process.
///
/// # Errors
/// `SRCH` if the process has ended and has been waited for; `PERM`; `INVAL` if no signal has this
/// number.
pub fn signal(process: BorrowedFd<'_>, signal: i32) -> Result<()> {
    let (fd, info, flags) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>(), 0u32);
    // SAFETY: the descriptor is open, and without information about the signal the call reads no
    // memory.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, info, flags) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Sends a signal to a child by its process number, after making sure that the number still belongs
/// to the child: the child has not been waited for, and the kernel [keeps its exit
/// status](keep_exit_statuses).
///
/// # Errors
/// `SRCH` if the child has ended and has been waited for; `PERM`; `INVAL` if no signal has this
/// number.
pub fn signal_child(child: u32, signal: i32) -> Result<()> {
    keep_exit_statuses()?;
    let (pid, options) = (pid(child)?, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    match retry_on_intr(|| waitid(WaitId::Pid(pid), options | WaitIdOptions::NOHANG)) {
        Err(Errno::CHILD) => return Err(Errno::SRCH),
        looked => looked?,
    };
    // SAFETY: the call takes numbers only.
    match unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Blocks until a child has ended. The child stays a zombie, so its status can still be collected.
///
/// # Errors
/// `CHILD` if the child has been waited for; any error that a seccomp filter returns.
pub fn wait_for_end(child: u32) -> Result<()> {
    let (child, options) = (pid(child)?, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    retry_on_intr(|| waitid(WaitId::Pid(child), options)).map(drop)
}

/// Makes the kernel keep the exit status of children until they are waited for. The kernel does so
/// by default, unless the process ignores SIGCHLD, as it may have inherited, or handles it with
/// `SA_NOCLDWAIT`.
///
/// # Errors
/// Any error that a seccomp filter returns.
pub fn keep_exit_statuses() -> Result<()> {
    let mut action = action(libc::SIGCHLD)?;
    if !is_discarding(&action) {
        return Ok(());
    }
    if action.sa_sigaction == libc::SIG_IGN {
        action.sa_sigaction = libc::SIG_DFL;
    }
    action.sa_flags &= !libc::SA_NOCLDWAIT;
    // SAFETY: the action is the current one, with the default handler if the signal was ignored,
    // and without `SA_NOCLDWAIT`.
    match unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Returns true if the kernel discards the exit status of children that end now.
pub fn discards_exit_statuses() -> bool {
    action(libc::SIGCHLD).is_ok_and(|action| is_discarding(&action))
}

fn is_discarding(action: &libc::sigaction) -> bool {
    action.sa_sigaction == libc::SIG_IGN || action.sa_flags & libc::SA_NOCLDWAIT != 0
}

/// Returns true if this process ignores a signal (`SIG_IGN`) now.
pub fn ignores(signal: i32) -> bool {
    action(signal).is_ok_and(|action| action.sa_sigaction == libc::SIG_IGN)
}

/// Returns this process's action for a signal.
fn action(signal: i32) -> Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the current one, and all zeroes are a valid
    // action.
    let (answer, action) = unsafe {
        let answer = libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        (answer, action.assume_init())
    };
    if answer == 0 { Ok(action) } else { Err(last_error()) }
}

/// Returns true if this process has a capability.
pub fn has_capability(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Returns the CPUs that the calling thread may use.
///
/// # Errors
/// `INVAL` on a machine with more CPUs than fit into a set; any error that a seccomp filter
/// returns.
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
