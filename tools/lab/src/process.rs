//! Runs a contender as a process: starts it, pins it, and ends it with everything that it has
//! started.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annulus_load::{affinity, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::child;
use crate::guard;
use crate::output::OutputReader;
use crate::process_tree;

/// How long a server may take to announce its address, unless another time is given.
pub const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a process may take to end after SIGTERM before it is killed.
const TERM_TIMEOUT: Duration = Duration::from_secs(2);
/// How many times to search for processes that a contender has started, since they may start others
/// before they are killed.
const MAX_KILL_PASSES: usize = 5;

/// How to run a contender. Its JSON has the name, the words of the command line with only the name
/// of the program, and the core, and only these can be read back.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(from = "SpecJson", into = "SpecJson")]
pub struct Spec {
    /// The name in tables and errors.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
    /// Environment variables to set.
    pub variables: Vec<(OsString, OsString)>,
    /// The core to pin all threads of the program to.
    pub pin: Option<usize>,
}

impl Spec {
    /// Creates the spec of a program without arguments and without a core.
    pub fn of(name: &str, program: impl Into<PathBuf>) -> Spec {
        Spec { name: name.into(), program: program.into(), ..Spec::default() }
    }

    /// Returns the same program with another name.
    pub fn named(&self, name: String) -> Spec {
        Spec { name, ..self.clone() }
    }

    /// Returns the words of the command line: variables, the name of the program, and arguments.
    pub fn command(&self) -> Vec<String> {
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        let variables = self.variables.iter();
        let mut command: Vec<String> =
            variables.map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
        command.extend(self.program.file_name().map(text));
        command.extend(self.arguments.iter().map(|word| text(word)));
        command
    }
}

/// The JSON form of a [`Spec`].
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SpecJson {
    name: String,
    command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    core: Option<usize>,
}

impl From<Spec> for SpecJson {
    fn from(spec: Spec) -> SpecJson {
        SpecJson { command: spec.command(), name: spec.name, core: spec.pin }
    }
}

impl From<SpecJson> for Spec {
    fn from(SpecJson { name, command, core }: SpecJson) -> Spec {
        let mut words = command.into_iter().peekable();
        let mut variables = Vec::new();
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
            variables.push((name.into(), value.into()));
            words.next();
        }
        let program = words.next().unwrap_or_default().into();
        let arguments = words.map(OsString::from).collect();
        Spec { name, program, arguments, variables, pin: core }
    }
}

/// A failure of a contender, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessError {
    /// The contender.
    pub name: String,
    /// The failure, with the last line of the contender's output.
    pub why: String,
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for ProcessError {}

/// A running contender, which is ended when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    handle: Arc<OwnedFd>,
    status: Option<ExitStatus>,
    mark: String,
    pub(crate) output: OutputReader,
}

impl Process {
    /// Starts a contender without input and standard output.
    pub(crate) fn start(spec: &Spec) -> Result<Process, ProcessError> {
        Process::spawn(spec, [Stdio::null(), Stdio::null()], |_, stderr| OutputReader::of(stderr))
    }

    /// Starts a contender with pipes to its input and from its output.
    pub(crate) fn start_piped(
        spec: &Spec,
    ) -> Result<(Process, ChildStdin, ChildStdout), ProcessError> {
        let pipes = [Stdio::piped(), Stdio::piped()];
        let mut process = Process::spawn(spec, pipes, |_, stderr| OutputReader::of(stderr))?;
        let stdin = process.child.stdin.take().expect("the command has no such pipe");
        let stdout = process.child.stdout.take().expect("the command has no such pipe");
        Ok((process, stdin, stdout))
    }

    /// Starts a contender without input and reads both its outputs, keeping the last `kept` bytes
    /// and looking for a text.
    pub(crate) fn start_read(
        spec: &Spec,
        kept: usize,
        awaited_text: Option<String>,
    ) -> Result<Process, ProcessError> {
        let read = |child: &mut Child, stderr: ChildStderr| {
            let stdout = child.stdout.take().expect("the command has no such pipe");
            OutputReader::reading(vec![Box::new(stderr), Box::new(stdout)], kept, awaited_text)
        };
        Process::spawn(spec, [Stdio::null(), Stdio::piped()], read)
    }

    /// Starts a program without input. Its standard output is read into a separate reader; both
    /// readers keep this many bytes.
    pub(crate) fn start_separate(
        spec: &Spec,
        kept: usize,
    ) -> Result<(Process, OutputReader), ProcessError> {
        let reading = |pipe: Box<dyn Read + Send>| OutputReader::reading(vec![pipe], kept, None);
        let read = |_: &mut Child, stderr: ChildStderr| reading(Box::new(stderr));
        let mut process = Process::spawn(spec, [Stdio::null(), Stdio::piped()], read)?;
        let stdout = process.child.stdout.take().expect("the command has no such pipe");
        Ok((process, reading(Box::new(stdout))))
    }

    fn spawn(
        spec: &Spec,
        [stdin, stdout]: [Stdio; 2],
        read: impl FnOnce(&mut Child, ChildStderr) -> OutputReader,
    ) -> Result<Process, ProcessError> {
        static NEXT_MARK: AtomicU32 = AtomicU32::new(0);
        let Spec { name, program, arguments, variables, pin } = spec;
        let error = |why| ProcessError { name: name.clone(), why };
        // A process group of its own: Ctrl-C at the terminal reaches only the lab, which ends its
        // children after it has stopped measuring.
        let mark = process_tree::mark(Some(NEXT_MARK.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().cloned());
        command.env(process_tree::MARK_VARIABLE, &mark);
        command.process_group(0).stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        // A child inherits the affinity, so none of its threads starts on another core.
        let _pinned = pin.map(affinity::pin).transpose().map_err(|why| error(why.to_string()))?;
        let mut child = child::spawn(command)
            .map_err(|why| error(format!("cannot start `{}`: {why}", program.display())))?;
        guard::add(child.id());
        let stderr = child.stderr.take().expect("the command has no such pipe");
        let output = read(&mut child, stderr);
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(handle) => {
                let handle = Arc::new(handle);
                running_handles().push(Arc::clone(&handle));
                Ok(Process { name: name.clone(), child, handle, status: None, mark, output })
            }
            Err(why) => {
                // Without a handle, the contender cannot be watched. It can still be killed as a
                // child.
                let _ = child.kill();
                guard::remove(child.id());
                let _ = child.wait();
                Err(error(format!("cannot watch it: {why}")))
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the status of the process if it has ended or ends within `timeout`.
    pub(crate) fn ended(&mut self, timeout: Duration) -> Option<ExitStatus> {
        is_dead_within(&self.handle, timeout).then(|| self.reap()).flatten()
    }

    /// Returns an error if the process has ended or ends within `timeout`.
    pub(crate) fn check(&mut self, timeout: Duration) -> Result<(), ProcessError> {
        if !is_dead_within(&self.handle, timeout) {
            return Ok(());
        }
        let status = self.reap().map_or("unknown".into(), |status| status.to_string());
        self.output.read_to_end(TERM_TIMEOUT);
        Err(self.error(format!("ended ({status})")))
    }

    /// Returns an error saying that the process has ended, if it ends within [`TERM_TIMEOUT`], and
    /// otherwise an error with the message `why`. Both include the last line of the output, if
    /// any.
    pub(crate) fn error_or_end(&mut self, why: &str) -> ProcessError {
        self.check(TERM_TIMEOUT).err().unwrap_or_else(|| self.error(why.into()))
    }

    /// Returns an error with the message `why` and the last line of the output, if any.
    pub(crate) fn error(&self, why: String) -> ProcessError {
        let finished = self
            .output
            .last_line()
            .map_or("it printed nothing".into(), |line| format!("its last line: {line}"));
        ProcessError { name: self.name.clone(), why: format!("{why}; {finished}") }
    }

    /// Kills what the process has started, waits for the process itself, and returns its status.
    /// The process must have ended, or must be about to end.
    fn reap(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // Remaining children would use the contender's core and keep its pipes open. The id of
            // the group is not reused until the process is reaped.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            // Processes that have left the group would do the same.
            for _ in 0..MAX_KILL_PASSES {
                let marked = process_tree::marked(&self.mark);
                if marked.is_empty() {
                    break;
                }
                kill(&marked);
            }
            guard::remove(self.child.id());
            self.status = self.child.wait().ok();
        }
        self.status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Processes without the mark in their environment can only be found through their parents.
        let alive = self.status.is_none();
        let started = if alive { process_tree::started_by(self.pid()) } else { Vec::new() };
        // Signalling a process that has ended fails harmlessly.
        let _ = pidfd_send_signal(&self.handle, Signal::TERM);
        if !is_dead_within(&self.handle, TERM_TIMEOUT) {
            let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        }
        running_handles().retain(|handle| !Arc::ptr_eq(handle, &self.handle));
        self.reap();
        kill(&started);
    }
}

/// Kills processes and waits until they have ended, for at most [`TERM_TIMEOUT`] each.
fn kill(handles: &[OwnedFd]) {
    for handle in handles {
        // Fails only if the process has already ended.
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
    handles.iter().for_each(|handle| _ = is_dead_within(handle, TERM_TIMEOUT));
}

/// Handles of the running processes, for [`kill_all`]. Unlike a pid, a handle never refers to
/// another process.
static RUNNING_HANDLES: Mutex<Vec<Arc<OwnedFd>>> = Mutex::new(Vec::new());

/// Kills every contender, for when the lab must end at once. While the result is held, no thread
/// can drop or start a contender, so the signal handler decides how this process ends.
pub(crate) fn kill_all() -> MutexGuard<'static, Vec<Arc<OwnedFd>>> {
    let processes = running_handles();
    for handle in processes.iter() {
        // Fails only if the process has already ended.
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
    // The caller removes the contenders' files next, so the contenders must have ended.
    processes.iter().for_each(|handle| _ = is_dead_within(handle, TERM_TIMEOUT));
    processes
}

fn running_handles() -> MutexGuard<'static, Vec<Arc<OwnedFd>>> {
    RUNNING_HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if the process has ended or ends within `timeout`. A signal to this process does
/// not shorten the wait: after the first Ctrl-C, a slice is still measured to its end.
fn is_dead_within(handle: &OwnedFd, timeout: Duration) -> bool {
    let began = clock::now();
    loop {
        let left = timeout.saturating_sub(clock::now() - began);
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::*;

    /// Returns a contender that is a shell with this script.
    pub(crate) fn shell(script: &str) -> Spec {
        Spec { arguments: vec!["-c".into(), script.into()], ..Spec::of("shell", "/bin/sh") }
    }

    /// Returns true if a child has ended and was reaped.
    fn is_gone(pid: u32) -> bool {
        !Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_process_is_pinned_and_ended() {
        let core = affinity::allowed().expect("the cores cannot be read")[0];
        let spec = Spec { pin: Some(core), ..shell("exec sleep 1000") };
        let mut process = Process::start(&spec).expect("the process did not start");
        process.check(Duration::ZERO).expect("the process has ended");
        let pid = process.pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .expect("the status cannot be read");
        assert!(status.contains(&format!("Cpus_allowed_list:\t{core}\n")), "{status}");
        drop(process);
        assert!(is_gone(pid));
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_killed_with_its_children() {
        let script = "trap '' TERM; echo ready; while :; do sleep 1000; done";
        let (process, _, mut stdout) =
            Process::start_piped(&shell(script)).expect("the process did not start");
        stdout.read_exact(&mut [0; 6]).expect("the process printed nothing");
        let pid = process.pid();
        drop(process);
        assert!(is_gone(pid));
        // The sleeping child also held the pipe, so the end of the pipe means that no child is
        // left.
        assert_eq!(stdout.read(&mut [0; 1]).expect("the output cannot be read"), 0);
    }

    #[test]
    fn processes_started_in_other_sessions_are_killed_too() {
        // One process has no mark, but a parent that is still running. The parent of another
        // process has ended.
        let script = "setsid env -i sleep 1000 & (setsid sh -c 'sleep 1000 & setsid sleep 1000' &)
            echo ready; exec sleep 1000";
        for ends_by_itself in [false, true] {
            let script = match ends_by_itself {
                true => "(setsid sleep 1000 &); echo ready; exit 7",
                false => script,
            };
            let (mut process, _, mut stdout) =
                Process::start_piped(&shell(script)).expect("the process did not start");
            stdout.read_exact(&mut [0; 6]).expect("the process printed nothing");
            if ends_by_itself {
                process.check(Duration::from_secs(20)).expect_err("the process did not end");
            }
            drop(process);
            // Every process held the pipe.
            assert_eq!(stdout.read(&mut [0; 1]).expect("the output cannot be read"), 0);
        }
    }

    #[test]
    fn a_process_that_ends_is_quoted() {
        let script = "echo 'bind: address in use' >&2; exit 7";
        let mut process = Process::start(&shell(script)).expect("the process did not start");
        let error = process.check(Duration::from_secs(20)).expect_err("the process did not end");
        let expected = "shell: ended (exit status: 7); its last line: bind: address in use";
        assert_eq!(error.to_string(), expected);
        assert_eq!(process.check(Duration::ZERO), Err(error), "it stays dead");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Process::start(&Spec::of("shell", "/nowhere/echo"))
            .expect_err("a missing program was started");
        let expected = "shell: cannot start `/nowhere/echo`: No such";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
