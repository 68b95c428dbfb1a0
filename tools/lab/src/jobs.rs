//! Contenders that are separate programs: they read jobs, one per line, and answer each with a line of JSON.
//!
//! All run at once, and are idle between their jobs. A job is one slice of work in one cell; the answer is a
//! [`Sample`]. A contender ends when its input ends.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::{Contenders, Measure, Outcome, Sample, Slice};
use crate::peer::Peers;
use crate::process::{Process, ProcessError, Spec};

/// A contender of a bench, by name.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// The directory and the mode of a peer; none for this program itself.
    peer: Option<(&'static str, Option<&'static str>)>,
}

impl Known {
    /// A contender that is this program itself.
    pub(crate) const fn own(name: &'static str) -> Known {
        Known { name, peer: None }
    }

    /// A contender that is the peer in this directory, in a mode.
    pub(crate) const fn peer(
        name: &'static str,
        directory: &'static str,
        mode: Option<&'static str>,
    ) -> Known {
        Known { name, peer: Some((directory, mode)) }
    }

    /// The arguments of this program, or those of a peer followed by its mode.
    pub(crate) fn arguments(&self, own: Vec<OsString>, peer: Vec<OsString>) -> Vec<OsString> {
        match self.peer {
            None => own,
            Some((_, mode)) => peer.into_iter().chain(mode.map(OsString::from)).collect(),
        }
    }

    /// How to run it with these arguments, or why it is missing.
    pub(crate) fn prepare(
        &self,
        peers: Option<&Peers>,
        pin: Option<usize>,
        arguments: Vec<OsString>,
    ) -> Result<Result<Spec, String>> {
        let spec = |program| Spec { arguments, pin, ..Spec::of(self.name, program) };
        match self.peer {
            Some((directory, _)) => Peers::prepare(peers, directory, spec),
            None => {
                let program = env::current_exe().context("cannot find this program to start it")?;
                Ok(Ok(spec(program)))
            }
        }
    }
}

/// The contender with this name.
pub(crate) fn find<'a>(known: &'a [Known], name: &str) -> Result<&'a Known> {
    let found = known.iter().find(|known| known.name == name);
    found.with_context(|| format!("no contender '{name}' in this version"))
}

/// The job of one cell.
#[derive(Clone, Debug)]
pub struct Job {
    /// The line, without its newline.
    pub line: String,
    /// How long the answer may take: far longer than expected, for a machine that is slow at times.
    pub timeout: Duration,
}

/// All contenders of a bench, running. One that fails in a slice is started anew for its next slice: an answer that comes
/// late must not be taken for that of another job.
#[derive(Debug)]
pub struct Programs {
    specs: Vec<Spec>,
    /// None of those that have failed.
    programs: Vec<Option<Program>>,
    jobs: Vec<Job>,
    required: &'static [&'static str],
}

impl Programs {
    /// Starts every contender. There is a job per cell; in an answer the `required` numbers must be above 0.
    pub fn start(
        contenders: &Contenders,
        jobs: Vec<Job>,
        required: &'static [&'static str],
    ) -> Result<Programs, ProcessError> {
        let specs: Vec<Spec> = contenders.all().cloned().collect();
        let start = |spec| Program::start(spec).map(Some);
        let programs = specs.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Programs { specs, programs, jobs, required })
    }

    fn slice(&mut self, slice: Slice) -> Outcome {
        let (spec, program) = (&self.specs[slice.contender], &mut self.programs[slice.contender]);
        let program = match program {
            Some(program) => program,
            None => program.insert(Program::start(spec).map_err(|error| error.why)?),
        };
        let job = &self.jobs[slice.cell];
        let answer = program.ask(job).map_err(|error| error.why)?;
        let wrong = || {
            program
                .process
                .error(format!("its answer to `{}` makes no sense: `{answer}`", job.line))
        };
        sample(&answer, self.required).ok_or_else(|| wrong().why)
    }
}

impl Measure for Programs {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let outcome = self.slice(slice);
        if outcome.is_err() {
            self.programs[slice.contender] = None;
        }
        outcome
    }
}

/// Parses an answer, and checks the required numbers.
pub(crate) fn sample(answer: &str, required: &[&str]) -> Option<Sample> {
    let sample: Sample = serde_json::from_str(answer).ok()?;
    let is_there = |name: &&str| sample.get(name).is_some_and(|number| number > 0.0);
    required.iter().all(is_there).then_some(sample)
}

/// A running contender, which ends when dropped.
#[derive(Debug)]
struct Program {
    process: Process,
    jobs: ChildStdin,
    answers: Receiver<String>,
}

impl Program {
    /// Starts it.
    fn start(spec: &Spec) -> Result<Program, ProcessError> {
        let (process, jobs, stdout) = Process::start_piped(spec)?;
        Ok(Program { process, jobs, answers: lines(stdout) })
    }

    /// Sends a job and waits for the answer, a line without its newline.
    fn ask(&mut self, job: &Job) -> Result<String, ProcessError> {
        let requested = writeln!(self.jobs, "{}", job.line);
        match (requested, self.answers.recv_timeout(job.timeout)) {
            (Ok(()), Ok(answer)) => Ok(answer),
            (Ok(()), Err(RecvTimeoutError::Timeout)) => {
                let Job { line, timeout } = job;
                Err(self.process.error(format!("no answer to `{line}` within {timeout:?}")))
            }
            _ => Err(self.process.error_or_end("it closed its input or output")),
        }
    }
}

/// The lines of a pipe, read by a thread so that waiting for one can time out.
fn lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut all = BufReader::new(pipe).lines().map_while(io::Result::ok);
        // Ends with the pipe, or when the receiver is dropped.
        all.try_for_each(|line| sender.send(line))
    });
    lines
}

/// The contender's side: answers jobs from standard input on standard output, until the input ends.
///
/// # Errors
/// The first error of `answer`, or of the pipes.
pub(crate) fn answer_all(mut answer: impl FnMut(&str) -> Result<Sample>) -> Result<()> {
    for job in io::stdin().lock().lines() {
        let sample = answer(&job.context("cannot read the next job")?)?;
        let line = serde_json::to_string(&sample)? + "\n";
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
        written.context("cannot write to standard output")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::shell;

    const TIMEOUT: Duration = Duration::from_secs(20);
    const SLICE: Slice = Slice { round: 0, cell: 0, contender: 0 };

    /// Contenders that are a shell with this script.
    fn programs(script: &str, timeout: Duration) -> Programs {
        let spec = shell(script);
        let mut contenders = Contenders::gather([Ok(Ok(spec))], None).expect("one");
        contenders.control = None;
        let jobs = ["1", "20"].map(|line| Job { line: line.into(), timeout });
        Programs::start(&contenders, jobs.into(), &["n"]).expect("a shell")
    }

    #[test]
    fn jobs_are_answered_one_by_one() {
        let mut twice = programs(r#"while read n; do echo "{\"n\":$((n * 2))}"; done"#, TIMEOUT);
        for (cell, number) in [(0, 2.0), (1, 40.0), (0, 2.0)] {
            let sample = twice.measure(Slice { cell, ..SLICE }).expect("an answer");
            assert_eq!(sample, Sample::from([("n", number)]));
        }
    }

    #[test]
    fn an_answer_without_a_required_number_is_quoted() {
        for wrong in ["4 80 7", r#"{"n":0}"#, r#"{"m":1}"#, r#"{"n":"x"}"#] {
            let mut program = programs(&format!("read n; echo '{wrong}'"), TIMEOUT);
            let error = program.measure(SLICE).expect_err(wrong);
            assert_eq!(
                error,
                format!("its answer to `1` makes no sense: `{wrong}`; it printed nothing")
            );
        }
    }

    #[test]
    fn a_contender_that_ends_is_quoted() {
        let error = programs("read n; echo no ring here >&2; exit 1", TIMEOUT).measure(SLICE);
        let expected = "ended (exit status: 1); its last line: no ring here";
        assert_eq!(error, Err(expected.into()));
    }

    /// The first process ends at its second job; the one after it does, too.
    #[test]
    fn a_contender_that_fails_is_started_anew() {
        let mut twice = programs(r#"read n; echo '{"n":1}'; read n; exit 3"#, TIMEOUT);
        for _ in 0..3 {
            assert!(twice.measure(SLICE).is_ok());
            let error = twice.measure(SLICE).expect_err("it ends");
            assert!(error.contains("exit status: 3"), "{error}");
        }
    }

    #[test]
    fn a_contender_that_does_not_answer_times_out() {
        let mut silent = programs("while read n; do :; done", Duration::from_millis(1));
        let error = silent.measure(SLICE).expect_err("nothing");
        assert_eq!(error, "no answer to `1` within 1ms; it printed nothing");
    }
}
