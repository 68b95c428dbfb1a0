//! Contenders that read jobs, one per line, and answer each with a [`Sample`] as a line of JSON.

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

/// The pipes from which a contender reads jobs and to which it writes answers. The contender ends
/// when its input ends.
#[derive(Debug)]
pub(crate) struct Pipes {
    jobs: ChildStdin,
    answers: Receiver<String>,
}

impl Pipes {
    pub(crate) fn new(jobs: ChildStdin, answers: ChildStdout) -> Pipes {
        Pipes { jobs, answers: lines(answers) }
    }

    /// Sends a job and waits for the answer, in which the `required` numbers must be above 0.
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
        let wrong = || process.error(format!("its answer to `{line}` is not valid: `{answer}`"));
        sample(&answer, required).ok_or_else(wrong)
    }
}

/// Parses an answer; `None` if it is invalid or a required number is not above 0.
pub(crate) fn sample(answer: &str, required: &[&str]) -> Option<Sample> {
    let sample: Sample = serde_json::from_str(answer).ok()?;
    let is_there = |name: &&str| sample.get(name).is_some_and(|number| number > 0.0);
    required.iter().all(is_there).then_some(sample)
}

/// Returns the lines of a pipe, read by a thread so that waiting for a line can time out.
fn lines(pipe: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut all = BufReader::new(pipe).lines().map_while(io::Result::ok);
        // Ends at the end of the pipe, at an error such as invalid UTF-8, or once the receiver has
        // been dropped.
        all.try_for_each(|line| sender.send(line))
    });
    lines
}

/// Acts as the contender: answers jobs from standard input on standard output until the input ends.
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

/// A point in time, with the CPU time of this process until then, including kernel workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockSample {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl ClockSample {
    pub(crate) fn now() -> ClockSample {
        ClockSample { wall: now(), cpu: process_cpu() }
    }

    /// Returns the sample of this many operations in this time.
    pub(crate) fn sample(self, operations: u64) -> Sample {
        let [ns, cpu_ns] = [self.wall, self.cpu].map(|time| time.as_nanos() as f64);
        Sample::from([("operations", operations as f64), ("ns", ns), ("cpu_ns", cpu_ns)])
    }
}

impl Sub for ClockSample {
    type Output = ClockSample;

    fn sub(self, earlier: ClockSample) -> ClockSample {
        ClockSample { wall: self.wall - earlier.wall, cpu: self.cpu - earlier.cpu }
    }
}
