//! A child process that is running, or has ended but has not been waited for.

use crate::errors::with_text;
use crate::io::AsyncFd;
use crate::runtime::core::Core;
use crate::runtime::current;
use annulus_kernel::{named, process};
use rustix::io::Errno;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;

/// Children that neither a handle nor a task awaits.
static ORPHANS: Mutex<Vec<Child>> = Mutex::new(Vec::new());

pub(super) fn reap_orphans() {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    orphans.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// The means of awaiting a child's end. It is created before the child is started, because a start
/// cannot be undone.
pub(super) struct Watch {
    core: Rc<Core>,
    /// Read end of a pipe, for a kernel that refuses a descriptor of the process. It becomes
    /// readable once `writing` is closed.
    reading: OwnedFd,
    writing: OwnedFd,
}

impl Watch {
    /// Prepares to watch one child.
    ///
    /// # Errors
    /// Outside a runtime; `Unsupported` under a simulated kernel; if no descriptor is left.
    pub(super) fn prepare() -> io::Result<Self> {
        let core = current::get()?;
        core.require_real("processes cannot be started in a simulation")?;
        process::keep_exit_statuses().map_err(named("sigaction"))?;
        let (reading, writing) = annulus_kernel::pipe::pipe().map_err(named("pipe2"))?;
        Ok(Self { core, reading, writing })
    }

    /// Watches a child that has just been started.
    ///
    /// # Errors
    /// If the child's end cannot be awaited. The child is then killed.
    pub(super) fn start(self, child: Child) -> io::Result<Running> {
        let Self { core, reading, writing } = self;
        let id = child.id();
        let opened = process::open(id);
        let is_process = opened.is_ok();
        let end = match opened {
            Ok(process) => Ok(process),
            Err(refused) => wait_on_thread(id, writing).map(|()| reading).map_err(|error| {
                let text = format!(
                    "its end cannot be awaited, neither through a descriptor (pidfd_open: {refused}) nor by a thread ({error})"
                );
                with_text(error, text)
            }),
        };
        match end.and_then(|end| AsyncFd::of_own(core.clone(), end, "for a child process")) {
            Ok(end) => Ok(Running { child: Some(child), id, status: None, end, is_process, core }),
            Err(error) => {
                let was_killed = process::signal_child(id, super::SIGKILL).is_ok();
                adopt(child);
                Err(started_and_lost(error, id, was_killed))
            }
        }
    }
}

/// Returns the error for a child that was started but cannot be returned.
pub(super) fn started_and_lost(error: io::Error, id: u32, was_killed: bool) -> io::Error {
    let fate = if was_killed { "was killed" } else { "is still running" };
    let text = format!("{error}; process {id} had been started and {fate}");
    with_text(error, text)
}

/// Starts a thread that waits for a child's end and then closes `writing`.
fn wait_on_thread(id: u32, writing: OwnedFd) -> io::Result<()> {
    let wait = move || {
        // An error usually means that other code has waited for the child.
        _ = process::wait_for_end(id);
        drop(writing);
    };
    thread::Builder::new().name("annulus-child".into()).stack_size(64 << 10).spawn(wait).map(drop)
}

/// A process and a descriptor that is readable once it has ended.
pub(super) struct Running {
    /// `None` once this or other code has waited for the child.
    child: Option<Child>,
    id: u32,
    /// `None` until the child has been waited for, and permanently if other code has waited for it.
    status: Option<ExitStatus>,
    end: AsyncFd<OwnedFd>,
    /// Whether `end` is a descriptor of the process rather than the end of a pipe.
    is_process: bool,
    /// The runtime in which the child was started.
    core: Rc<Core>,
}

impl Running {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Returns true if the process is known to have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.child.is_none()
    }

    /// Returns true if the drop of the handle has to kill the process or wait for it. Returns false
    /// in a forked child, because the process belongs to the parent.
    pub(super) fn may_be_ended_here(&self) -> bool {
        !self.has_ended() && self.core.in_owner_process()
    }

    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else {
            return self.status.map(Some).ok_or_else(|| self.lost_status());
        };
        match child.try_wait() {
            Ok(None) => return Ok(None),
            Ok(status) => self.status = status,
            Err(error) if error.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => {}
            Err(error) => return Err(named("waitpid")(error)),
        }
        self.child = None;
        self.try_wait()
    }

    /// Returns the error for a process that has ended and whose status can no longer be read.
    fn lost_status(&self) -> io::Error {
        let why = match process::discards_exit_statuses() {
            true => {
                "this process ignores SIGCHLD or handles it with SA_NOCLDWAIT, so the kernel discards exit statuses; \
                 leave SIGCHLD at its default (SIG_DFL)"
            }
            false => {
                "other code in this process has waited for it; wait for single processes, not for any child"
            }
        };
        let text = format!("the exit status of process {} is lost: {why}", self.id);
        with_text(Errno::CHILD.into(), text)
    }

    pub(super) fn poll_exit(&mut self, cx: &Context<'_>) -> Poll<io::Result<ExitStatus>> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Poll::Ready(Ok(status));
            }
            ready!(self.end.poll_read_edge(cx))?;
        }
    }

    /// Sends a signal. Does nothing if the process has ended.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        let by_descriptor = match self.is_process {
            true => process::signal(self.end.as_fd(), signal),
            false => Err(Errno::NOSYS),
        };
        let sent = match by_descriptor {
            // A seccomp filter may deny the call, so try `kill` instead.
            Err(Errno::NOSYS | Errno::PERM) => {
                process::signal_child(self.id, signal).map_err(named("kill"))
            }
            sent => sent.map_err(named("pidfd_send_signal")),
        };
        match sent {
            Err(error) if crate::io::raw_os_error(&error) == Some(Errno::SRCH.raw_os_error()) => {
                Ok(())
            }
            sent => sent,
        }
    }

    /// Waits for the end in a task, if the loop is running, so that no zombie remains.
    pub(super) fn detach(mut self) {
        reap_orphans();
        let ended = matches!(self.try_wait(), Ok(Some(_)) | Err(_));
        if !ended && self.core.is_running() {
            crate::spawn(async move { poll_fn(|cx| self.poll_exit(cx)).await });
        }
    }
}

impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = self.child.take()
            && self.core.in_owner_process()
        {
            adopt(child);
        }
    }
}

/// Keeps a child, so that it can be reaped once it has ended.
pub(super) fn adopt(mut child: Child) {
    if matches!(child.try_wait(), Ok(None)) {
        ORPHANS.lock().unwrap_or_else(PoisonError::into_inner).push(child);
    }
}
