//! A process that runs, or ended and was not waited for; and the awaiting of its end.

use crate::error_text::with_text;
use crate::io::{AsyncFd, Interest};
use crate::runtime::core::Core;
use crate::runtime::current;
use annulus_kernel::{named, process};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// Children whose handle and runtime are gone.
static ORPHANS: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Waits for those orphans that have ended.
pub(super) fn reap_orphans() {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    orphans.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// A process and a descriptor of it, which is readable once it has ended.
pub(super) struct Running {
    /// Until it was waited for, or is an orphan.
    child: Option<Child>,
    id: u32,
    /// Once the child was waited for.
    status: Option<ExitStatus>,
    /// The descriptor of the process.
    process: AsyncFd<OwnedFd>,
    /// The runtime, on which a dropped child is waited for by a task.
    core: Rc<Core>,
}

impl Running {
    /// Whether processes can be started here.
    ///
    /// # Errors
    /// Outside a runtime; `Unsupported` under a simulated kernel, or if the kernel has no descriptors of processes.
    pub(super) fn check() -> io::Result<Rc<Core>> {
        let core = current::get()?;
        if !core.kernel.real_descriptors() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "a simulation starts no processes",
            ));
        }
        process::open(std::process::id()).map_err(|errno| {
            let error = io::Error::from(errno);
            let text =
                format!("no descriptor of a process, which children need (Linux 5.3): {error}");
            with_text(error, text)
        })?;
        Ok(core)
    }

    /// Watches a child. If that fails, it is killed.
    pub(super) fn watch(core: Rc<Core>, mut child: Child) -> io::Result<Self> {
        let id = child.id();
        let watched = process::open(id)
            .map_err(named("pidfd_open"))
            .and_then(|process| AsyncFd::of_own(core.clone(), process, "for a child process"));
        match watched {
            Ok(process) => Ok(Self { child: Some(child), id, status: None, process, core }),
            Err(error) => {
                _ = child.kill();
                adopt(child);
                Err(error)
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// The exit status, if the process has ended.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait().map_err(named("waitpid"))?
        {
            self.status = Some(status);
            self.child = None;
        }
        Ok(self.status)
    }

    /// Ready when it has ended.
    pub(super) fn poll_exit(&mut self, cx: &Context<'_>) -> Poll<io::Result<ExitStatus>> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Poll::Ready(Ok(status));
            }
            ready!(self.process.poll_ready(Interest::Readable, cx))?.clear_ready();
        }
    }

    /// Sends a signal. Nothing happens if the process has ended.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        process::signal(self.process.as_fd(), signal).map_err(named("pidfd_send_signal"))
    }

    /// Waits for the end in the background, so that no zombie stays.
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
        self.process.as_fd()
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

/// Keeps a child until it has ended.
fn adopt(mut child: Child) {
    if matches!(child.try_wait(), Ok(None)) {
        ORPHANS.lock().unwrap_or_else(PoisonError::into_inner).push(child);
    }
}
