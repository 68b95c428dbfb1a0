//! A process that this process has started.

use super::SIGKILL;
use super::running::Running;
use crate::bytes::thread_bound::stays;
use crate::io::AsyncRecv;
use crate::pipe::{Receiver, Sender};
use crate::signal::Signal;
use crate::tasks::budget;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use std::task::{Context, Poll, ready};

/// A process that this process has started. [Dropping it](crate::process#children-that-are-dropped)
/// does not end the process by default.
///
/// The child's output can be read while it runs:
///
/// ```
/// use annulus::io::AsyncRecv;
/// use annulus::process::{Command, Stdio};
///
/// # annulus::run(async {
/// let mut child = Command::new("seq").arg("3").stdout(Stdio::piped()).spawn()?;
/// let mut lines = child.stdout.take().expect("it is piped").lines(1024);
/// while let Some(line) = lines.next_line().await? {
///     println!("{line}");
/// }
/// assert!(child.wait().await?.success());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// The descriptor of a `Child` (`AsFd`) becomes readable once the process has ended. It refers to
/// the process (`pidfd_open`), or is the read end of a pipe if the kernel refuses that call.
///
/// ```
/// use annulus::process::Command;
/// use annulus::signal::Signal;
/// use annulus::time::timeout;
/// use std::os::unix::process::ExitStatusExt;
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let mut child = Command::new("sleep").arg("1000").kill_on_drop(true).spawn()?;
/// assert!(timeout(Duration::from_millis(1), child.wait()).await.is_err(), "it is still running");
/// child.signal(Signal::SIGTERM)?;
/// assert_eq!(child.wait().await?.signal(), Some(Signal::SIGTERM.number()));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Child {
    /// The sender of the child's input, if that [is piped](super::Command::stdin). Dropping it ends
    /// the input.
    pub stdin: Option<Sender>,
    /// The receiver of the child's output, if that [is piped](super::Command::stdout).
    pub stdout: Option<Receiver>,
    /// The receiver of the child's errors, if they [are piped](super::Command::stderr).
    pub stderr: Option<Receiver>,
    /// `None` only while the child is being dropped.
    running: Option<Running>,
    kill_on_drop: bool,
}

stays!(Send Child Sync Child);

impl Child {
    pub(super) fn new(running: Running, kill_on_drop: bool) -> Self {
        let running = Some(running);
        Self { stdin: None, stdout: None, stderr: None, running, kill_on_drop }
    }

    /// Adopts this process's ends of the child's pipes.
    pub(super) fn take_pipes(
        &mut self,
        (stdin, stdout, stderr): (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>),
    ) -> io::Result<()> {
        self.stdin = stdin.map(Sender::try_from).transpose()?;
        self.stdout = stdout.map(Receiver::try_from).transpose()?;
        self.stderr = stderr.map(Receiver::try_from).transpose()?;
        Ok(())
    }

    /// Returns the process ID. Once the child has been waited for, another process may have the
    /// same ID.
    pub fn id(&self) -> u32 {
        self.running().id()
    }

    /// Returns the child's exit status, or `None` if it is still running. Does not need a running
    /// runtime.
    ///
    /// # Errors
    /// The errors of [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.running_mut().try_wait()
    }

    /// Waits until the child has ended and returns its status. Later calls return the same status.
    /// Closes its [`stdin`](Self::stdin), unless that has been taken, once the child has all of the
    /// queued input, however slowly it reads: a child that reads to the end of its input would
    /// otherwise wait forever.
    ///
    /// Piped output must be read in the meantime, because a child whose pipe is full waits.
    /// [`wait_with_output`](Self::wait_with_output) reads it.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// If the runtime has ended, or if the status is lost, because [SIGCHLD was
    /// ignored](crate::process#sigchld) when the process ended or because other code has waited for
    /// it. The child's output can still be read.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        poll_fn(|cx| {
            self.poll_close_input(cx);
            let exit = budget::poll_with(cx, || self.running_mut().poll_exit(cx));
            if exit.is_ready() {
                self.stdin = None;
            }
            exit
        })
        .await
    }

    /// Sends the queued input, then closes the pipe.
    fn poll_close_input(&mut self, cx: &mut Context<'_>) {
        // If this fails, the child no longer reads, and its status says more than the error.
        if self.stdin.as_mut().is_some_and(|stdin| stdin.poll_drain(cx).is_ready()) {
            self.stdin = None;
        }
    }

    /// Reads the child's output until both streams and the child itself have ended. Closes its
    /// [`stdin`](Self::stdin) as [`wait`](Self::wait) does. Streams that are not piped, or have
    /// been taken, are empty.
    ///
    /// If the child has started processes that outlive it and hold its streams open, this also
    /// waits for those.
    ///
    /// After an error, or if the future is dropped, the child is
    /// [dropped](crate::process#children-that-are-dropped): its pipes are closed, and it continues,
    /// or is killed if [`kill_on_drop`](super::Command::kill_on_drop) is set.
    ///
    /// # Errors
    /// Errors from reading the pipes, and the errors of [`wait`](Self::wait).
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        let mut stdout = Collected::new(self.stdout.take());
        let mut stderr = Collected::new(self.stderr.take());
        // All streams at once, because the process may wait for any of them.
        poll_fn(|cx| {
            self.poll_close_input(cx);
            let first = stdout.poll(cx)?;
            let second = stderr.poll(cx)?;
            if first.is_ready() && second.is_ready() {
                Poll::Ready(io::Result::Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await?;
        let status = self.wait().await?;
        Ok(Output { status, stdout: stdout.bytes, stderr: stderr.bytes })
    }

    /// Sends a signal to the child. Does nothing if the child is known to have ended.
    ///
    /// # Errors
    /// `PermissionDenied` if the child now runs as another user.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.running().signal(signal.number())
    }

    /// Kills the child (SIGKILL) without waiting for its end. Does nothing if the child is known to
    /// have ended.
    ///
    /// # Errors
    /// The errors of [`signal`](Self::signal).
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.running().signal(SIGKILL)
    }

    /// Kills the child (SIGKILL) and waits for its end. This takes long only while the child is in
    /// an uninterruptible system call.
    ///
    /// Cancel-safe: the first poll sends the signal.
    ///
    /// # Errors
    /// The errors of [`signal`](Self::signal) and [`wait`](Self::wait).
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        self.wait().await.map(drop)
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the child is being dropped")
    }

    fn running_mut(&mut self) -> &mut Running {
        self.running.as_mut().expect("the child is being dropped")
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.running().as_fd()
    }
}

impl AsRawFd for Child {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(running) = self.running.take().filter(Running::may_be_ended_here) {
            if self.kill_on_drop {
                // If the kernel refuses the signal, a destructor can only ignore that.
                _ = running.signal(SIGKILL);
            }
            running.detach();
        }
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("id", &self.id())
            .field("has_ended", &self.running().has_ended())
            .finish_non_exhaustive()
    }
}

struct Collected {
    /// `None` after the end of the stream.
    stream: Option<Receiver>,
    bytes: Vec<u8>,
}

impl Collected {
    fn new(stream: Option<Receiver>) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// Reads until the end of the stream.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(stream) = &mut self.stream {
            match ready!(stream.poll_recv(cx))? {
                None => self.stream = None,
                Some(lease) => self.bytes.extend_from_slice(&lease),
            }
        }
        Poll::Ready(Ok(()))
    }
}
