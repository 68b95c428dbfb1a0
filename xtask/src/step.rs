//! A command that is printed and run in the workspace's root.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Error, Result, ensure};

use crate::failed_tests::FailedTests;
use crate::skipped;

/// The result of a verb: the steps that could not run here, each with its reason, or an error. The
/// first line of an error is the reason; the rest is a report.
pub(crate) type Outcome = Result<Vec<String>>;

/// Splits the error of a verb into its reason and its report.
pub(crate) fn reason_and_report(error: &Error) -> (String, String) {
    let text = format!("{error:#}");
    let (reason, report) = text.split_once('\n').unwrap_or((&text, ""));
    (reason.to_owned(), report.to_owned())
}

/// How many of the last lines of stderr a failure repeats.
const MAX_STDERR_LINES: usize = 40;

/// How long one command may run tests in CI, several times as long as on a slow machine. A test
/// that hangs must not hide the results of all others.
const MAX_TEST_MINUTES: u32 = 45;
/// The exit status of `timeout` after it has stopped a command.
const TIMED_OUT: i32 = 124;

/// A command to run. Its stdin is empty.
#[derive(Clone)]
pub(crate) struct Step {
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
    /// Commands to start when the first test program of this step runs.
    beside: Vec<Step>,
}

impl Step {
    /// Creates a step that runs `program` with `arguments`, which are separated by spaces.
    pub(crate) fn new(program: &str, arguments: &str) -> Self {
        let arguments = arguments.split_whitespace().map(Into::into).collect();
        Self { program: program.into(), arguments, variables: Vec::new(), beside: Vec::new() }
    }

    /// Adds one argument, which may contain spaces.
    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable for this command.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts another command when the first test program runs: tests wait a lot, and leave CPU
    /// time for a compiler.
    pub(crate) fn start_with_tests(mut self, other: Self) -> Self {
        self.beside.push(other);
        self
    }

    /// Prints the command, runs it, and fails unless it succeeds. In CI, where other parts follow,
    /// the error repeats the last lines of its stderr.
    pub(crate) fn run(self) -> Outcome {
        let (status, last) = match is_ci() {
            true => self.run_keeping_stderr()?,
            false => (self.status()?, String::new()),
        };
        ensure!(status.success(), "`{self}` ended with {status}\n{last}");
        Ok(Vec::new())
    }

    /// Prints the command and starts it in the background with low priority. Its output is
    /// discarded.
    pub(crate) fn start(self) -> Outcome {
        let mut nice = Self { program: "nice".into(), ..self.clone() };
        nice.arguments.insert(0, resolve(self.program));
        nice.spawn(|command| command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        Ok(Vec::new())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(resolve(self.program.clone()));
        command.current_dir(root()).stdin(Stdio::null()).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Prints the command and starts it with its output set by `output`.
    fn spawn(&self, output: impl FnOnce(&mut Command) -> &mut Command) -> Result<Child> {
        eprintln!("$ {self}");
        output(&mut self.command()).spawn().with_context(|| format!("`{self}` did not start"))
    }

    /// Prints the command, runs it and forwards its stderr; returns its status and the last lines
    /// of stderr.
    pub(crate) fn run_keeping_stderr(&self) -> Result<(ExitStatus, String)> {
        let mut child = self.spawn(|command| command.stderr(Stdio::piped()))?;
        let errors = BufReader::new(child.stderr.take().expect("stderr is not piped"));
        let mut lines = Vec::new();
        for line in errors.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            eprintln!("{line}");
            lines.push(line);
        }
        let last = &lines[lines.len().saturating_sub(MAX_STDERR_LINES)..];
        Ok((child.wait()?, last.join("\n")))
    }

    /// Like [`run`](Self::run), but for a cargo command that runs tests. A few failed tests are
    /// repeated alone, one after the other. If they all pass then, the command succeeds, and they
    /// are reported at the end of the whole run. Otherwise the error repeats the reports of the
    /// failed tests.
    pub(crate) fn run_tests(mut self) -> Outcome {
        let (status, tests) = self.test()?;
        let names = tests.repeatable();
        if !status.success() && !names.is_empty() && self.alone(names).test()?.1.have_passed(names)
        {
            tests.keep_as_flaky();
            return Ok(Vec::new());
        }
        self.check_tests(status, &tests)
    }

    /// Like [`run_tests`](Self::run_tests), but does not repeat failed tests: for tests with many
    /// random or measured cases, where a second run would hide what the first has found.
    pub(crate) fn run_tests_once(mut self) -> Outcome {
        let (status, tests) = self.test()?;
        self.check_tests(status, &tests)
    }

    /// Runs the tests of each name with a separate command, so that a name without a test fails.
    pub(crate) fn run_each(names: &[&str], step: impl Fn(&str) -> Self) -> Outcome {
        names.iter().try_for_each(|name| step(name).run_tests_once().map(drop))?;
        Ok(Vec::new())
    }

    /// # Errors
    /// Fails if a test failed, or if none passed: a filter that matches nothing exits with status
    /// 0.
    fn check_tests(&self, status: ExitStatus, tests: &FailedTests) -> Outcome {
        ensure!(
            status.code() != Some(TIMED_OUT),
            "`{self}` was stopped after {MAX_TEST_MINUTES} minutes; still running: {:?}\n{}",
            tests.hanging(),
            tests.report()
        );
        ensure!(status.success(), "`{self}` ended with {status}\n{}", tests.report());
        ensure!(!tests.none_passed(), "`{self}` ran no test: check that its filter matches one");
        Ok(Vec::new())
    }

    /// Prints the command, runs it, and collects its test results.
    ///
    /// # Errors
    /// Fails if the command cannot be run, or in CI if it skipped tests that CI must not skip.
    fn test(&mut self) -> Result<(ExitStatus, FailedTests)> {
        let skips = skipped::new_file()?;
        let limited = if is_ci() { self.limited() } else { self.clone() };
        let mut child = limited
            .spawn(|command| command.stdout(Stdio::piped()).env(skipped::FILE_VARIABLE, &skips))?;
        let mut output = BufReader::new(child.stdout.take().expect("stdout is not piped"));
        // The first output appears when cargo has built everything and released its build lock.
        if output.fill_buf().is_ok() {
            self.beside.drain(..).try_for_each(|other| other.start().map(drop))?;
        }
        let tests = FailedTests::read(output, io::stdout());
        let status = child.wait()?;
        let listed = skipped::collect(&skips);
        if status.success() {
            listed?;
        }
        let unread = || format!("the output of `{self}` was not read to the end");
        Ok((status, tests.with_context(unread)?))
    }

    /// Returns the same command with a time limit for its whole process group.
    fn limited(&self) -> Self {
        let program = resolve(self.program.clone());
        let limit = format!("--kill-after=30 {MAX_TEST_MINUTES}m");
        let mut limited = Self::new("timeout", &limit).argument(program);
        limited.arguments.extend_from_slice(&self.arguments);
        limited.variables.clone_from(&self.variables);
        limited
    }

    /// Returns the same command for these tests only, one after the other.
    fn alone(&self, names: &[String]) -> Self {
        let mut alone = Self { beside: Vec::new(), ..self.clone() };
        if !alone.arguments.iter().any(|argument| argument == "--") {
            alone = alone.argument("--");
        }
        names.iter().fold(alone.argument("--exact").argument("--test-threads=1"), Self::argument)
    }

    /// Prints the command, runs it, and returns its exit status.
    pub(crate) fn status(&self) -> Result<ExitStatus> {
        Ok(self.spawn(|command| command)?.wait()?)
    }

    /// Prints the command, runs it, and returns its exit status and its stdout.
    pub(crate) fn capture(self) -> Result<(ExitStatus, String)> {
        let output = self.spawn(|command| command.stdout(Stdio::piped()))?.wait_with_output()?;
        Ok((output.status, String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Runs the command silently; returns its stdout, or `None` if it cannot be run or fails.
    pub(crate) fn probe(self) -> Option<String> {
        let output = self.command().stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Formats the command like a shell line.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.variables.iter().try_for_each(|(name, value)| write!(f, "{name}='{value}' "))?;
        write!(f, "{}", self.program.display())?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", argument.display()))
    }
}

/// Returns true in CI, where required parts must not be skipped.
pub(crate) fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !["", "0", "false"].iter().any(|off| value == *off))
}

/// Returns the workspace's root. Cargo passes the directory of this package to the programs that it
/// runs.
pub(crate) fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.and_then(|path| Some(path.parent()?.to_owned())).unwrap_or_else(|| PathBuf::from("."))
}

/// Returns cargo's target directory. A relative `CARGO_TARGET_DIR` is relative to the current
/// directory.
pub(crate) fn target() -> PathBuf {
    let chosen = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    chosen.and_then(|path| std::path::absolute(path).ok()).unwrap_or_else(|| root().join("target"))
}

/// Resolves `cargo` to the cargo that runs this program.
fn resolve(program: OsString) -> OsString {
    let running = if program == "cargo" { env::var_os("CARGO") } else { None };
    running.unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_runs_no_test_fails() {
        // Complete lines of a test program, because the output of this test may be parsed as well.
        let say = |passed| {
            format!("echo running 1 test; echo 'test result: ok. {passed} passed; finished in 0s'")
        };
        for run in [Step::run_tests, Step::run_tests_once] {
            assert!(run(Step::new("sh", "-c").argument(say(1))).is_ok());
            let text = run(Step::new("sh", "-c").argument(say(0))).unwrap_err().to_string();
            assert!(text.contains("ran no test"), "{text}");
        }
    }

    #[test]
    fn other_command_starts_with_the_tests() {
        let path = env::temp_dir().join(format!("annulus-xtask-{}", std::process::id()));
        let path = path.display().to_string();
        let other = Step::new("touch", &path);
        // Ends only once the other command has started.
        let waits = format!(
            "test ! -e {path} || exit 1; echo running 1 test; until test -e {path}; do :; done; \
             rm {path}; echo 'test result: ok. 1 passed; finished in 0s'"
        );
        assert!(
            Step::new("sh", "-c").argument(waits).start_with_tests(other).run_tests_once().is_ok()
        );
    }

    #[test]
    fn last_lines_of_stderr_are_kept() {
        let step = Step::new("sh", "-c").argument("seq 100 >&2; exit 3");
        let Ok((status, last)) = step.run_keeping_stderr() else { panic!("sh did not start") };
        let lines: Vec<&str> = last.lines().collect();
        assert_eq!((status.code(), lines.len()), (Some(3), MAX_STDERR_LINES));
        assert_eq!((lines.first(), lines.last()), (Some(&"61"), Some(&"100")));
    }
}
