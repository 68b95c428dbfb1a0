//! Contenders that are programs of their own: each reads jobs, a line each, and answers each with a line of JSON.
//!
//! All are up at once, and idle until it is their turn. A job asks for one slice of work in one cell; the answer is a
//! [`Sample`]. A contender ends when its input does.

use std::env;
use std::ffi::OsString;
use std::fmt;
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
    /// The directory of a peer and the mode it runs in; none for this program itself.
    peer: Option<(&'static str, Option<&'static str>)>,
}

impl Known {
    /// This program itself.
    pub(crate) const fn own(name: &'static str) -> Known {
        Known { name, peer: None }
    }

    /// The peer in this directory, in a mode.
    pub(crate) const fn peer(
        name: &'static str,
        directory: &'static str,
        mode: Option<&'static str>,
    ) -> Known {
        Known { name, peer: Some((directory, mode)) }
    }

    /// The arguments of this program, or those of a peer with its mode behind them.
    pub(crate) fn arguments(&self, own: Vec<OsString>, peer: Vec<OsString>) -> Vec<OsString> {
        match self.peer {
            None => own,
            Some((_, mode)) => peer.into_iter().chain(mode.map(OsString::from)).collect(),
        }
    }

    /// How to run it with these arguments, or what is missing to have it.
    pub(crate) fn prepare(
        &self,
        peers: Option<&Peers>,
        pin: Option<usize>,
        arguments: Vec<OsString>,
    ) -> Result<Result<Spec, String>> {
        let spec = |program| Spec { name: self.name.into(), program, arguments, pin };
        match self.peer {
            Some((directory, _)) => Peers::prepare(peers, directory, spec),
            None => {
                let program = env::current_exe().context("cannot find this program to start it")?;
                Ok(Ok(spec(program)))
            }
        }
    }
}

/// The contender of this name.
pub(crate) fn find<'a>(known: &'a [Known], name: &str) -> Result<&'a Known> {
    let found = known.iter().find(|known| known.name == name);
    found.with_context(|| format!("no contender '{name}' in this version"))
}

/// What contenders are asked in one cell.
#[derive(Clone, Debug)]
pub struct Job {
    /// The line, without its end.
    pub line: String,
    /// How long the answer may take: far more than it should, on a machine that is slow at times.
    pub timeout: Duration,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// All contenders of a bench, up and waiting.
#[derive(Debug)]
pub struct Programs {
    programs: Vec<Program>,
    jobs: Vec<Job>,
    required: &'static [&'static str],
}

impl Programs {
    /// Starts every contender. They are asked a job in each cell; of an answer the `required` numbers must be above 0.
    pub fn start(
        contenders: &Contenders,
        jobs: Vec<Job>,
        required: &'static [&'static str],
    ) -> Result<Programs, ProcessError> {
        let programs = contenders.all().map(Program::start).collect::<Result<_, _>>()?;
        Ok(Programs { programs, jobs, required })
    }
}

impl Measure for Programs {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let (program, job) = (&mut self.programs[slice.contender], &self.jobs[slice.cell]);
        let answer = program.ask(job).map_err(|error| error.why)?;
        let wrong =
            || program.process.error(format!("its answer to `{job}` makes no sense: `{answer}`"));
        sample(&answer, self.required).ok_or_else(|| wrong().why)
    }
}

/// The sample that an answer is, if the required numbers are above 0.
pub(crate) fn sample(answer: &str, required: &[&str]) -> Option<Sample> {
    let sample: Sample = serde_json::from_str(answer).ok()?;
    let is_there = |name: &&str| sample.get(name).is_some_and(|number| number > 0.0);
    required.iter().all(is_there).then_some(sample)
}

/// A running contender; dropping it ends it.
#[derive(Debug)]
struct Program {
    process: Process,
    jobs: ChildStdin,
    answers: Receiver<String>,
}

impl Program {
    /// Starts it; it says nothing until it is asked.
    fn start(spec: &Spec) -> Result<Program, ProcessError> {
        let (process, jobs, stdout) = Process::start_piped(spec)?;
        Ok(Program { process, jobs, answers: lines(stdout) })
    }

    /// Asks it and waits for its answer, a line without its end.
    fn ask(&mut self, job: &Job) -> Result<String, ProcessError> {
        let asked = writeln!(self.jobs, "{}", job.line);
        match (asked, self.answers.recv_timeout(job.timeout)) {
            (Ok(()), Ok(answer)) => Ok(answer),
            (Ok(()), Err(RecvTimeoutError::Timeout)) => {
                Err(self.process.error(format!("no answer to `{job}` within {:?}", job.timeout)))
            }
            _ => Err(self.process.error_or_end("it closed its input or output")),
        }
    }
}

/// The lines of a pipe, read by a thread, so that waiting for one can time out.
fn lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut all = BufReader::new(pipe).lines().map_while(io::Result::ok);
        // It ends with the pipe, or when the receiver is gone.
        all.try_for_each(|line| sender.send(line))
    });
    lines
}

/// The other side: answers jobs from standard input on standard output, until the input ends.
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

    /// A shell that runs this script.
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
    fn an_answer_without_what_is_required_is_shown() {
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
    fn one_that_ends_is_named_with_its_last_line() {
        let error = programs("read n; echo no ring here >&2; exit 1", TIMEOUT).measure(SLICE);
        let expected = "ended (exit status: 1); its last line: no ring here";
        assert_eq!(error, Err(expected.into()));
    }

    #[test]
    fn one_that_says_nothing_times_out() {
        let mut silent = programs("while read n; do :; done", Duration::from_millis(1));
        let error = silent.measure(SLICE).expect_err("nothing");
        assert_eq!(error, "no answer to `1` within 1ms; it printed nothing");
    }
}
