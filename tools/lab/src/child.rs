//! Child processes that end with this one.
//!
//! A killed process runs no destructors, so the kernel must end its children. Before a child
//! executes the program, it asks to receive SIGKILL when its parent dies (`PR_SET_PDEATHSIG`). To
//! the kernel, the parent is the *thread* that forked, so a single thread that lives as long as the
//! process starts all children.

#![allow(unsafe_code)] // A closure that runs between fork and exec.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A command to start, with the CPUs of the requesting thread.
struct Request {
    command: Command,
    cpus: CpuSet,
    reply: Sender<io::Result<Child>>,
}

/// Starts a command that is killed when this process ends, however it ends. Like
/// [`Command::spawn`], but the calling thread's CPUs are passed to the child explicitly.
///
/// # Errors
/// The errors of [`Command::spawn`], and if the spawning thread cannot be started.
pub fn spawn(command: Command) -> io::Result<Child> {
    let cpus = sched_getaffinity(None)?;
    let (reply, answer) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts child processes has ended");
    spawner()?.send(Request { command, cpus, reply }).map_err(|_| gone(mpsc::RecvError))?;
    answer.recv().map_err(gone)?
}

/// Starts a command like [`spawn`], waits until it ends, and returns its output.
///
/// # Errors
/// The errors of [`spawn`] and of reading the output.
pub fn output(mut command: Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output()
}

/// Returns the channel to the spawning thread, which is started on first use.
fn spawner() -> io::Result<Sender<Request>> {
    static SPAWNER: Mutex<Option<Sender<Request>>> = Mutex::new(None);
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = &*spawner {
        return Ok(sender.clone());
    }
    let (sender, requests) = mpsc::channel();
    thread::Builder::new().name("spawner".into()).spawn(move || serve(&requests))?;
    Ok(spawner.insert(sender).clone())
}

fn serve(requests: &Receiver<Request>) {
    for Request { command, cpus, reply } in requests {
        let started = sched_setaffinity(None, &cpus).map_err(io::Error::from);
        // The caller waits for this reply, so its receiver exists.
        let _ = reply.send(started.and_then(|()| start(command)));
    }
}

fn start(mut command: Command) -> io::Result<Child> {
    // If exit statuses were discarded, children could not be waited for, and their ids could be
    // reused by other processes.
    annulus_kernel::process::keep_exit_statuses()?;
    let parent = getpid();
    // SAFETY: between fork and exec the closure makes two system calls, which allocate nothing and
    // take no lock.
    unsafe { command.pre_exec(move || die_with(parent)) };
    command.spawn()
}

/// Makes the kernel kill the calling process when `parent` dies.
fn die_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the parent died before the call above, no signal is sent, but the child already has
    // another parent. A parent in another PID namespace has id 0 and cannot be checked.
    match getppid() {
        Some(now) if now != parent => Err(rustix::io::Errno::CANCELED.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_load::affinity;

    #[test]
    fn a_child_outlives_the_thread_that_requested_it() {
        let sleep = || {
            let mut command = Command::new("/bin/sleep");
            command.arg("1000");
            spawn(command).expect("cannot start a child")
        };
        let mut child = thread::spawn(sleep).join().expect("the thread panicked");
        assert_eq!(child.try_wait().expect("the status cannot be read"), None);
        child.kill().expect("the child cannot be killed");
        child.wait().expect("the child cannot be waited for");
    }

    #[test]
    fn a_child_inherits_the_cpus_of_the_requesting_thread() {
        let cpus = affinity::allowed().expect("the CPUs cannot be read");
        let core = *cpus.last().expect("there is no CPU");
        let shown = || {
            let mut command = Command::new("/bin/grep");
            command.args(["Cpus_allowed_list", "/proc/self/status"]);
            String::from_utf8(output(command).expect("the command failed").stdout)
                .expect("the output is not UTF-8")
        };
        let pinned = affinity::pin(core).expect("the CPU is not allowed");
        assert_eq!(shown(), format!("Cpus_allowed_list:\t{core}\n"));
        drop(pinned);
        let free = shown();
        assert!(cpus.len() == 1 || free != format!("Cpus_allowed_list:\t{core}\n"), "{free}");
    }

    #[test]
    fn a_child_whose_parent_has_ended_does_not_start() {
        // No process has this id.
        let other = Pid::from_raw(i32::MAX).expect("the id is invalid");
        let refused = thread::spawn(move || {
            let refused = die_with(other).expect_err("a process with another parent was accepted");
            set_parent_process_death_signal(None).expect("the signal cannot be reset");
            refused
        });
        let refused = refused.join().expect("the thread panicked");
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::CANCELED.raw_os_error()));
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error =
            spawn(Command::new("/nowhere/at/all")).expect_err("a missing program was started");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
