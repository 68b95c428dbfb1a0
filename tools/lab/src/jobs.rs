//! Contenders that read jobs, one per line, and answer each with a line of JSON, a [`Sample`].

use std::io::{self, BufRead, BufReader, Write};
use std::ops::Sub;
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use annulus_load::clock::{now, process_cpu};
use anyhow::{Context, Result};

use crate::bench::Sample;
use crate::process::{Process, ProcessError};

/// Where a contender reads jobs, and where it answers. It ends when its input ends.
#[derive(Debug)]
pub(crate) struct Pipes {
    jobs: ChildStdin,
    answers: Receiver<String>,
}

impl Pipes {
    /// The pipes of a process.
    pub(crate) fn new(jobs: ChildStdin, answers: ChildStdout) -> Pipes {
        Pipes { jobs, answers: lines(answers) }
    }

    /// Has a job done; the numbers with these names must be above 0.
    pub(crate) fn ask(
        &mut self,
        process: &mut Process,
        (line, timeout, required): (&str, Duration, &[&str]),
    ) -> Result<Sample, ProcessError> {
        let requested = writeln!(self.jobs, "{line}");
        let answer = match (requested, self.answers.recv_timeout(timeout)) {
            (Ok(()), Ok(answer)) => answer,
            (Ok(()), Err(RecvTimeoutError::Timeout)) => {
                return Err(process.error(format!("no answer to `{line}` within {timeout:?}")));
            }
            _ => return Err(process.error_or_end("it closed its input or output")),
        };
        let wrong = || process.error(format!("its answer to `{line}` makes no sense: `{answer}`"));
        sample(&answer, required).ok_or_else(wrong)
    }
}

/// Parses an answer, and checks the required numbers.
pub(crate) fn sample(answer: &str, required: &[&str]) -> Option<Sample> {
    let sample: Sample = serde_json::from_str(answer).ok()?;
    let is_there = |name: &&str| sample.get(name).is_some_and(|number| number > 0.0);
    required.iter().all(is_there).then_some(sample)
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

/// A point in time, and the CPU time used by this process until then, kernel workers included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockSample {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl ClockSample {
    pub(crate) fn now() -> ClockSample {
        ClockSample { wall: now(), cpu: process_cpu() }
    }

    /// The sample of this many operations in this time.
    pub(crate) fn sample(self, operations: u64) -> Sample {
        let [ns, cpu_ns] = [self.wall, self.cpu].map(|time| time.as_nanos() as f64);
        Sample::from([("operations", operations as f64), ("ns", ns), ("cpu_ns", cpu_ns)])
    }
}

/// The time between two samples.
impl Sub for ClockSample {
    type Output = ClockSample;

    fn sub(self, earlier: ClockSample) -> ClockSample {
        ClockSample { wall: self.wall - earlier.wall, cpu: self.cpu - earlier.cpu }
    }
}
