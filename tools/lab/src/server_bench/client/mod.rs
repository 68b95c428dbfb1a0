//! The clients: our load, and programs.

mod command;
mod known;
mod own;
mod parser;
mod redis_benchmark;
mod wrk;

use std::path::PathBuf;
use std::time::Duration;

use annulus_load::{Observer, Plan, affinity};
use anyhow::{Context, Result, ensure};

use super::installed;
use super::load::Load;
use super::words::{filled, has};
use crate::bench::{Sample, rate};
use crate::server::one_line;

pub use parser::Parser;

/// Parses the words of a command line of `annulus load`.
pub type PlanParser = fn(&[String]) -> Result<Plan>;

/// What loads servers.
#[derive(Clone, Debug)]
pub enum Client {
    /// Our load: a target, and options of `annulus load`.
    Own(Vec<String>),
    /// A program.
    Command {
        /// Its command line.
        words: Vec<String>,
        /// A command line that is run first; empty if there is none.
        before: Vec<String>,
        /// How its output is read.
        parser: Parser,
    },
}

/// Requests that tell how many there are in a slice, for each that is in flight on a connection.
const PROBE: u64 = 1000;

/// More requests a second than there can be: a run that is too short to be timed has infinitely many.
const MOST_RATE: f64 = 1e8;

/// How much longer than the slice a client may take.
const SLACK: Duration = Duration::from_secs(30);

/// How long a client may take that is not told for how long to run.
const LONGEST: Duration = Duration::from_secs(600);

/// How long a load is tried out.
const BRIEF: Duration = Duration::from_millis(200);

impl Client {
    /// Its command line.
    pub(super) fn words(&self) -> &[String] {
        match self {
            Client::Own(words) | Client::Command { words, .. } => words,
        }
    }

    /// The scheme of its target, or the name of its program.
    pub(super) fn name(&self) -> String {
        let first = &self.words()[0];
        match self {
            Client::Own(_) => {
                first.split_once("://").map_or("echo", |(scheme, _)| scheme).to_owned()
            }
            Client::Command { .. } => first.rsplit('/').next().unwrap_or(first).to_owned(),
        }
    }

    /// Refuses a command line in which nothing says what differs between servers or cells.
    pub(super) fn check(&self, has_several: bool, is_deep: bool, is_open: bool) -> Result<()> {
        let line = self.words().join(" ");
        let has = |words: &[&str]| words.iter().any(|word| has(self.words(), word));
        ensure!(
            has(&["port", "address", "path"]),
            "'{line}' has neither {{port}} nor {{address}}: every server would be measured as one; write {{port}} in place of the port"
        );
        if let Client::Command { .. } = self {
            ensure!(
                !has_several || has(&["connections"]),
                "'{line}' has no {{connections}}: every cell would be the same"
            );
            ensure!(
                !is_deep || has(&["depth", "script"]),
                "'{line}' has no {{depth}}: it says how many requests are in flight"
            );
            ensure!(
                !is_open || has(&["rate"]),
                "'{line}' has no {{rate}}: it says how many requests are due a second"
            );
        }
        Ok(())
    }

    /// How to install it, if it is a program that is not installed.
    pub(super) fn missing(&self) -> Option<String> {
        match self {
            Client::Own(_) => None,
            Client::Command { words, .. } => installed::find(&words[0]).err(),
        }
    }
}

/// How clients are run.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    /// Their core, unless they run on any.
    pub(super) core: Option<usize>,
    /// For how long.
    pub(super) time: Duration,
    /// A directory for their scripts.
    pub(super) directory: PathBuf,
    /// Parses what our load is told.
    pub(super) parse: PlanParser,
}

impl Clients {
    /// The same for a short time, as far as a client can be told.
    pub(super) fn brief(&self) -> Clients {
        Clients { time: self.time.min(BRIEF), ..self.clone() }
    }

    /// Checks that a load is possible, without a server.
    ///
    /// # Errors
    /// Those of the parser.
    pub(super) fn check(&self, load: &Load) -> Result<()> {
        let Client::Own(words) = &load.client else { return Ok(()) };
        let example = if has(words, "path") { "unix:/path" } else { "127.0.0.1:1" };
        let plan = own::plan(words, load, example, None, self.time, self.parse);
        plan.map(drop).with_context(|| format!("load '{}'", load.name))
    }

    /// Loads a server, in an open loop if there is a rate, and notifies the observer of the measured window: for programs from their
    /// start to their end.
    ///
    /// # Errors
    /// If the client cannot run, or a request failed.
    pub(super) fn run(
        &self,
        load: &Load,
        address: &str,
        rate: Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<Sample, String> {
        match &load.client {
            Client::Own(words) => {
                let _pinned = self.core.map(affinity::pin).transpose().map_err(one_line)?;
                let plan = own::plan(words, load, address, rate, self.time, self.parse);
                own::run(plan, observer)
            }
            Client::Command { words, before, parser } => {
                let mut known = load.words(address);
                known.push(("seconds", self.time.as_secs_f64().ceil().to_string()));
                known.extend(rate.map(|rate| ("rate", shown(rate))));
                if has(words, "script") {
                    let path = wrk::write_script(load.depth, &self.directory).map_err(one_line)?;
                    known.push(("script", path.display().to_string()));
                }
                let fill = |words: &[String]| {
                    words.iter().map(|word| filled(word, &known)).collect::<Vec<_>>()
                };
                if !before.is_empty() {
                    command::run(&fill(before), self.core, LONGEST, &mut ())?;
                }
                match has(words, "requests") {
                    true => self.run_requests(&fill(words), parser, load.depth, observer),
                    false => {
                        let is_timed = has(words, "seconds");
                        let patience = if is_timed { self.time + SLACK } else { LONGEST };
                        command::run(&fill(words), self.core, patience, observer)?
                            .sample(parser, None)
                    }
                }
            }
        }
    }

    /// Runs a client that is told the number of requests, not the time: a short run comes first, and tells it.
    fn run_requests(
        &self,
        words: &[String],
        parser: &Parser,
        depth: u64,
        observer: &mut dyn Observer,
    ) -> Result<Sample, String> {
        let run = |requests: u64, observer: &mut dyn Observer| {
            let known = [("requests", requests.to_string())];
            let words: Vec<_> = words.iter().map(|word| filled(word, &known)).collect();
            let run = command::run(&words, self.core, LONGEST, observer)?;
            run.sample(parser, Some(requests))
        };
        let least = PROBE * depth;
        let probe = run(least, &mut ())?;
        let rate = rate().of.of(&probe).unwrap_or_default().min(MOST_RATE);
        run(least.max((rate * self.time.as_secs_f64()) as u64), observer)
    }
}

/// A rate as programs take it: whole, unless that would be another one.
fn shown(rate: f64) -> String {
    let whole = rate.round();
    let rate = if (rate - whole).abs() <= 0.01 * rate { whole } else { rate };
    rate.to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_small_rate_stays_what_it_is() {
        assert_eq!([0.4, 2.5, 1000.4, 2.0].map(super::shown), ["0.4", "2.5", "1000", "2"]);
    }
}
