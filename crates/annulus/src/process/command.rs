//! The program to execute, with its arguments and settings.

use super::child::Child;
use super::running::{Watch, reap_orphans, started_and_lost};
use super::start::{Settings, Started, may_hang, start, with_reason};
use crate::blocking::AtEnd;
use crate::errors::with_text;
use crate::runtime::current;
use crate::runtime::spawn::offload;
use crate::tasks::yield_now;
use std::ffi::OsStr;
use std::io;
use std::mem::{replace, swap};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A program to execute, with its arguments and settings. Like [`std::process::Command`], but its
/// children are awaited without blocking the thread.
///
/// ```
/// use annulus::process::{Command, Stdio};
///
/// # annulus::run(async {
/// let mut child = Command::new("tr").args(["a-z", "A-Z"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
/// let mut stdin = child.stdin.take().expect("it is piped");
/// stdin.send("to upper case").await?;
/// stdin.shutdown().await?;
/// let output = child.wait_with_output().await?;
/// assert_eq!(output.stdout, b"TO UPPER CASE");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Command {
    inner: std::process::Command,
    /// Whether the caller has set standard input, output and error.
    chosen: [bool; 3],
    settings: Settings,
    /// Whether a thread is starting a child and has the command, so that `inner` is a placeholder.
    is_starting: bool,
}

impl Command {
    /// Creates a command for the program at this path or with this name in `PATH`. It has no
    /// arguments, and inherits this process's environment, working directory and standard streams.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        std::process::Command::new(program).into()
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.inner.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.inner.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env(name, value);
        self
    }

    /// Sets environment variables.
    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Self {
        self.inner.envs(variables);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env_remove(name);
        self
    }

    /// Removes all environment variables, including those set before.
    pub fn env_clear(&mut self) -> &mut Self {
        self.settings.is_cleared = true;
        self.inner.env_clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.inner.current_dir(directory);
        self
    }

    /// Sets the child's standard input. By default the child inherits it, or gets empty input with
    /// [`output`](Self::output).
    pub fn stdin(&mut self, input: impl Into<Stdio>) -> &mut Self {
        self.chosen[0] = true;
        self.inner.stdin(input);
        self
    }

    /// Sets the child's standard output. By default the child inherits it, or gets a pipe with
    /// [`output`](Self::output).
    pub fn stdout(&mut self, output: impl Into<Stdio>) -> &mut Self {
        self.chosen[1] = true;
        self.inner.stdout(output);
        self
    }

    /// Sets the child's standard error. By default the child inherits it, or gets a pipe with
    /// [`output`](Self::output).
    pub fn stderr(&mut self, errors: impl Into<Stdio>) -> &mut Self {
        self.chosen[2] = true;
        self.inner.stderr(errors);
        self
    }

    /// Sets whether dropping a [`Child`] that is not known to have ended kills it. Off by default,
    /// so it continues to run.
    pub fn kill_on_drop(&mut self, on: bool) -> &mut Self {
        self.settings.kill_on_drop = on;
        self
    }

    /// Sets the child's process group. 0 creates a new group led by the child, which a terminal's
    /// Ctrl-C does not reach. The default is the group of this process.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.settings.group = Some(group);
        self.inner.process_group(group);
        self
    }

    /// Returns the underlying command of the standard library.
    pub fn as_std(&self) -> &std::process::Command {
        &self.inner
    }

    /// Returns the underlying command of the standard library, for settings that are missing here.
    /// [`output`](Self::output) replaces standard streams that were set only through this
    /// reference, and afterwards resets them to be inherited.
    pub fn as_std_mut(&mut self) -> &mut std::process::Command {
        &mut self.inner
    }

    /// Starts the child. See [the cost](crate::process#cost).
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, …, with the program and the cause in the message: its file,
    /// its interpreter, the working directory, an argument or a limit. `Unsupported` under a
    /// simulated kernel. Also fails if no descriptor or process is left, and outside a runtime.
    pub fn spawn(&mut self) -> io::Result<Child> {
        let watch = self.prepare()?;
        let child = start(&mut self.inner, self.settings).map_err(|error| self.named(error))?;
        self.watched(watch, child)
    }

    /// Like [`spawn`](Self::spawn), but starts the child on a thread if the program may be on a
    /// file system that hangs.
    ///
    /// With `collects`, standard streams that the caller has not set are empty or pipes for this
    /// child. They are set after the first wait, so that a dropped future leaves them as they were.
    async fn start(&mut self, collects: bool) -> io::Result<Child> {
        // Report errors of `prepare` before any path is looked up.
        let watch = self.prepare()?;
        let may_hang = may_hang(&self.inner).await?;
        if collects {
            self.set_default(Stdio::null, Stdio::piped);
        }
        let started = match may_hang {
            true => self.start_on_thread().await,
            false => start(&mut self.inner, self.settings).map_err(|error| self.named(error)),
        };
        if collects {
            self.set_default(Stdio::inherit, Stdio::inherit);
        }
        self.watched(watch, started?)
    }

    async fn start_on_thread(&mut self) -> io::Result<std::process::Child> {
        let (core, settings) = (current::get()?, self.settings);
        // The start may outlive this future, so the command itself is shared with the thread.
        let unused = std::process::Command::new(self.inner.get_program());
        let command = Arc::new(Mutex::new(replace(&mut self.inner, unused)));
        self.is_starting = true;
        let on_thread = {
            let command = command.clone();
            move || start(&mut lock(&command), settings).map(|child| Started::new(child, settings))
        };
        let started = offload(&core, AtEnd::Waits, on_thread).await;
        // The thread has ended the start, or no thread could be started.
        swap(&mut self.inner, &mut lock(&command));
        self.is_starting = false;
        let started = started.map_err(|error| self.named(error))?;
        let started = started.unwrap_or_else(|panic| resume_unwind(panic));
        started.map(Started::take).map_err(|error| self.named(error))
    }

    fn prepare(&self) -> io::Result<Watch> {
        if self.is_starting {
            return Err(self.named(io::Error::other(
                "an earlier start of this command has been dropped, and may still wait for a file system that does \
                 not answer; create the command again",
            )));
        }
        let watch = Watch::prepare()
            .map_err(|error| self.named(with_reason(error, &self.inner, self.settings)))?;
        reap_orphans();
        Ok(watch)
    }

    /// Turns a started child into a [`Child`], or kills it if that fails.
    fn watched(&self, watch: Watch, mut child: std::process::Child) -> io::Result<Child> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let running = watch.start(child).map_err(|error| self.named(error))?;
        let mut child = Child::new(running, self.settings.kill_on_drop);
        if let Err(error) = child.take_pipes(pipes) {
            let was_killed = child.start_kill().is_ok();
            return Err(self.named(started_and_lost(error, child.id(), was_killed)));
        }
        Ok(child)
    }

    /// Starts the child and waits for its end. Its pipes are closed; to read its output, call
    /// [`output`](Self::output). Dropping the future [drops the
    /// child](crate::process#children-that-are-dropped).
    ///
    /// # Errors
    /// The errors of [`spawn`](Self::spawn) and [`Child::wait`].
    pub async fn status(&mut self) -> io::Result<ExitStatus> {
        // Starting blocks the loop, and may fail without waiting. Let other tasks run before each
        // start.
        yield_now().await;
        let mut child = self.start(false).await?;
        // A child whose pipe is full would wait forever.
        (child.stdin, child.stdout, child.stderr) = (None, None, None);
        child.wait().await
    }

    /// Starts the child and collects its output until its end. By default, its input is empty and
    /// its outputs are pipes. Dropping the future [drops the
    /// child](crate::process#children-that-are-dropped).
    ///
    /// # Errors
    /// The errors of [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub async fn output(&mut self) -> io::Result<Output> {
        yield_now().await;
        self.start(true).await?.wait_with_output().await
    }

    /// Sets the standard streams that the caller has not set.
    fn set_default(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) {
        let [stdin, stdout, stderr] = self.chosen;
        if !stdin {
            self.inner.stdin(input());
        }
        if !stdout {
            self.inner.stdout(output());
        }
        if !stderr {
            self.inner.stderr(output());
        }
    }

    /// Adds the name of the program to an error.
    fn named(&self, error: io::Error) -> io::Error {
        let text = format!("starting {}: {error}", self.inner.get_program().display());
        with_text(error, text)
    }
}

fn lock(command: &Mutex<std::process::Command>) -> MutexGuard<'_, std::process::Command> {
    command.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<std::process::Command> for Command {
    fn from(inner: std::process::Command) -> Self {
        Self { inner, chosen: [false; 3], settings: Settings::default(), is_starting: false }
    }
}
