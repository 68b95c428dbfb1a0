//! Child processes that do not outlive this one.
//!
//! A process that is killed runs no destructor, so the kernel ends its children: each asks, before it becomes the
//! program, for SIGKILL when its parent dies (`PR_SET_PDEATHSIG`). The kernel takes the *thread* that forked for the
//! parent, so one thread, which lives as long as the process, starts all children.

#![allow(unsafe_code)] // A closure that runs between fork and exec.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A command to be started, with the CPUs of the thread that asks.
struct Request {
    command: Command,
    cpus: CpuSet,
    reply: Sender<io::Result<Child>>,
}

/// Starts a command that is killed when this process ends, however it ends. As [`Command::spawn`] has it, the child
/// inherits the CPUs of the calling thread.
///
/// # Errors
/// Those of [`Command::spawn`], and if the thread that starts children cannot be made.
pub fn spawn(command: Command) -> io::Result<Child> {
    let cpus = sched_getaffinity(None)?;
    let (reply, answer) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts child processes has ended");
    spawner()?.send(Request { command, cpus, reply }).map_err(|_| gone(mpsc::RecvError))?;
    answer.recv().map_err(gone)?
}

/// Starts a command in the same way, waits for its end, and collects what it printed.
///
/// # Errors
/// As [`spawn`], and those of reading the output.
pub fn output(mut command: Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output()
}

/// The way to the thread that starts children, which is made on first use.
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
        // The caller waits for this answer: it cannot be gone.
        let _ = reply.send(started.and_then(|()| start(command)));
    }
}

fn start(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    // SAFETY: between fork and exec the closure makes two system calls, which allocate nothing and take no lock.
    unsafe { command.pre_exec(move || die_with(parent)) };
    command.spawn()
}

/// Has the kernel kill the calling process when `parent` dies.
fn die_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before the call above sends no signal: the child has another parent already. No parent at all
    // (0) means that it is in another PID namespace, where it cannot be told from another.
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
    fn the_end_of_the_thread_that_asked_ends_no_child() {
        let sleep = || {
            let mut command = Command::new("/bin/sleep");
            command.arg("1000");
            spawn(command).expect("a child")
        };
        let mut child = thread::spawn(sleep).join().expect("no panic");
        assert_eq!(child.try_wait().expect("a status"), None);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }

    #[test]
    fn a_child_has_the_cpus_of_the_thread_that_asked() {
        let cpus = affinity::allowed().expect("CPUs");
        let core = *cpus.last().expect("one at least");
        let shown = || {
            let mut command = Command::new("/bin/grep");
            command.args(["Cpus_allowed_list", "/proc/self/status"]);
            String::from_utf8(output(command).expect("it runs").stdout).expect("text")
        };
        let pinned = affinity::pin(core).expect("an allowed CPU");
        assert_eq!(shown(), format!("Cpus_allowed_list:\t{core}\n"));
        drop(pinned);
        let free = shown();
        assert!(cpus.len() == 1 || free != format!("Cpus_allowed_list:\t{core}\n"), "{free}");
    }

    #[test]
    fn a_child_whose_parent_is_gone_does_not_start() {
        // No process has this number.
        let other = Pid::from_raw(i32::MAX).expect("a number");
        let refused = thread::spawn(move || {
            let refused = die_with(other).expect_err("another parent");
            set_parent_process_death_signal(None).expect("as it was");
            refused
        });
        let refused = refused.join().expect("no panic");
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::CANCELED.raw_os_error()));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = spawn(Command::new("/nowhere/at/all")).expect_err("no such program");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
