//! The program to execute, with its arguments and settings.

use super::child::Child;
use super::reason::reason;
use super::running::{Watch, reap_orphans, started_and_lost};
use crate::error_text::with_text;
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
    /// Which standard streams were chosen: input, output, errors.
    chosen: [bool; 3],
    /// The process group, and whether the environment was cleared, which the command of the
    /// standard library does not tell.
    group: Option<i32>,
    is_cleared: bool,
}

impl Command {
    /// The program at this path or of this name in `PATH`: without arguments, with the environment,
    /// the directory and the standard streams of this process.
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

    /// Sets a variable of the environment.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env(name, value);
        self
    }

    /// Sets variables of the environment.
    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Self {
        self.inner.envs(variables);
        self
    }

    /// Removes a variable of the environment.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env_remove(name);
        self
    }

    /// Removes all variables of the environment, also those that were set before.
    pub fn env_clear(&mut self) -> &mut Self {
        self.is_cleared = true;
        self.inner.env_clear();
        self
    }

    /// The directory in which it runs.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.inner.current_dir(directory);
        self
    }

    /// Where it reads from. Inherited by default; with [`output`](Self::output) empty.
    pub fn stdin(&mut self, input: impl Into<Stdio>) -> &mut Self {
        self.chosen[0] = true;
        self.inner.stdin(input);
        self
    }

    /// Where it writes to. Inherited by default; with [`output`](Self::output) a pipe.
    pub fn stdout(&mut self, output: impl Into<Stdio>) -> &mut Self {
        self.chosen[1] = true;
        self.inner.stdout(output);
        self
    }

    /// Where it writes errors to. Inherited by default; with [`output`](Self::output) a pipe.
    pub fn stderr(&mut self, errors: impl Into<Stdio>) -> &mut Self {
        self.chosen[2] = true;
        self.inner.stderr(errors);
        self
    }

    /// Whether a [`Child`] that is dropped before its end was seen is killed. Off by default: it
    /// then goes on running.
    pub fn kill_on_drop(&mut self, on: bool) -> &mut Self {
        self.kill_on_drop = on;
        self
    }

    /// The process group that it belongs to; 0 is a new one that it leads, which a terminal's
    /// Ctrl-C does not reach. The group of this process by default.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.group = Some(group);
        self.inner.process_group(group);
        self
    }

    /// The command of the standard library.
    pub fn as_std(&self) -> &std::process::Command {
        &self.inner
    }

    /// The command of the standard library, for settings that are missing here. Standard streams
    /// that are chosen there count as not chosen for [`output`](Self::output), after which they are
    /// inherited.
    pub fn as_std_mut(&mut self) -> &mut std::process::Command {
        &mut self.inner
    }

    /// Starts it. See [the cost](crate::process#cost).
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, …, naming the program and what is wrong: the program, its
    /// interpreter, the working directory, an argument, a limit. Out of descriptors or processes.
    /// Outside a runtime. `Unsupported` under a simulated kernel.
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

    /// Starts it, and waits for its end. Pipes to it are closed: with an output that is to be read,
    /// call [`output`](Self::output). Dropping the future has the effect of [dropping the
    /// child](crate::process#children-that-are-dropped).
    ///
    /// # Errors
    /// The errors of [`spawn`](Self::spawn) and [`Child::wait`].
    pub async fn status(&mut self) -> io::Result<ExitStatus> {
        // It may fail at once, each time, and takes long.
        yield_now().await;
        let mut child = self.spawn()?;
        // A child whose pipe is full would wait for ever.
        (child.stdin, child.stdout, child.stderr) = (None, None, None);
        child.wait().await
    }

    /// Starts it, and collects its output until its end. Standard streams that were not chosen are:
    /// an empty input, and pipes. Dropping the future has the effect of [dropping the
    /// child](crate::process#children-that-are-dropped).
    ///
    /// # Errors
    /// The errors of [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub async fn output(&mut self) -> io::Result<Output> {
        yield_now().await;
        self.set_default(Stdio::null, Stdio::piped);
        let spawned = self.spawn();
        // The next child inherits them again.
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

    /// The error of a start, with what is wrong.
    fn failed(&self, error: io::Error) -> io::Error {
        match reason(&self.inner, self.group, self.is_cleared, &error) {
            Some(reason) => {
                let text = format!("{error}: {reason}");
                self.named(with_text(error, text))
            }
            None => self.named(error),
        }
    }

    /// The error with the name of the program.
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
