//! The program to execute, with its arguments and settings.

use super::child::Child;
use super::reason::reason;
use super::running::{Watch, reap_orphans, started_and_lost};
use crate::errors::with_text;
use crate::tasks::yield_now;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};

/// A program to execute, with its arguments and settings: a [`std::process::Command`] whose
/// children are awaited.
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
    kill_on_drop: bool,
    /// Whether each standard stream was chosen: input, output, errors.
    chosen: [bool; 3],
    /// The process group. This and `is_cleared` are kept here because the standard library's
    /// command does not expose them.
    group: Option<i32>,
    is_cleared: bool,
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
        self.is_cleared = true;
        self.inner.env_clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.inner.current_dir(directory);
        self
    }

    /// Sets the child's standard input. The default is inherited, or empty with
    /// [`output`](Self::output).
    pub fn stdin(&mut self, input: impl Into<Stdio>) -> &mut Self {
        self.chosen[0] = true;
        self.inner.stdin(input);
        self
    }

    /// Sets the child's standard output. The default is inherited, or a pipe with
    /// [`output`](Self::output).
    pub fn stdout(&mut self, output: impl Into<Stdio>) -> &mut Self {
        self.chosen[1] = true;
        self.inner.stdout(output);
        self
    }

    /// Sets the child's standard error. The default is inherited, or a pipe with
    /// [`output`](Self::output).
    pub fn stderr(&mut self, errors: impl Into<Stdio>) -> &mut Self {
        self.chosen[2] = true;
        self.inner.stderr(errors);
        self
    }

    /// Sets whether dropping a [`Child`] that is not known to have ended kills it. Off by default,
    /// so it continues to run.
    pub fn kill_on_drop(&mut self, on: bool) -> &mut Self {
        self.kill_on_drop = on;
        self
    }

    /// Sets the child's process group. 0 creates a new group led by the child, which a terminal's
    /// Ctrl-C does not reach. The default is the group of this process.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.group = Some(group);
        self.inner.process_group(group);
        self
    }

    /// Returns the underlying command of the standard library.
    pub fn as_std(&self) -> &std::process::Command {
        &self.inner
    }

    /// Returns the underlying command of the standard library, for settings that are missing here.
    /// [`output`](Self::output) ignores standard streams set there, and resets them to be
    /// inherited.
    pub fn as_std_mut(&mut self) -> &mut std::process::Command {
        &mut self.inner
    }

    /// Starts the child. See [the cost](crate::process#cost).
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, …, with the program and the cause in the message: its file,
    /// its interpreter, the working directory, an argument or a limit. If no descriptor or process
    /// is left. Outside a runtime. `Unsupported` under a simulated kernel.
    pub fn spawn(&mut self) -> io::Result<Child> {
        let watch = Watch::prepare().map_err(|error| self.failed(error))?;
        reap_orphans();
        let mut child = self.inner.spawn().map_err(|error| self.failed(error))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let running = watch.start(child).map_err(|error| self.named(error))?;
        let mut child = Child::new(running, self.kill_on_drop);
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
        // Starting takes long and may fail at once every time, so let other tasks run first.
        yield_now().await;
        let mut child = self.spawn()?;
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
        self.set_default(Stdio::null, Stdio::piped);
        let spawned = self.spawn();
        // The next child inherits these streams again.
        self.set_default(Stdio::inherit, Stdio::inherit);
        spawned?.wait_with_output().await
    }

    /// Sets the standard streams that were not chosen.
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

    /// Adds the cause to the error of a start.
    fn failed(&self, error: io::Error) -> io::Error {
        match reason(&self.inner, self.group, self.is_cleared, &error) {
            Some(reason) => {
                let text = format!("{error}: {reason}");
                self.named(with_text(error, text))
            }
            None => self.named(error),
        }
    }

    /// Adds the name of the program to an error.
    fn named(&self, error: io::Error) -> io::Error {
        let text = format!("starting {}: {error}", self.inner.get_program().display());
        with_text(error, text)
    }
}

impl From<std::process::Command> for Command {
    fn from(inner: std::process::Command) -> Self {
        Self { inner, kill_on_drop: false, chosen: [false; 3], group: None, is_cleared: false }
    }
}
