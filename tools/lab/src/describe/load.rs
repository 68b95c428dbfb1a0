//! Loads: the requests to a contender.

use std::time::Duration;

use annulus_load::{Options, Plan, Rate, ServerAddress, Turns, fan_out};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::contender::{Contender, UNIX_PREFIX};
use super::installed;
use super::parser::Parser;
use super::placeholders::{self, Placeholder, filled, has};
use crate::bench::{Cell, PERCENT_PARAMETER, PERCENTS};

/// The TCP address that is filled into targets while a load is checked, and for a server at a Unix
/// socket.
const EXAMPLE_ADDRESS: &str = "127.0.0.1:1";

/// The scheme of the load of a broadcast.
const FAN_OUT_SCHEME: &str = "fan-out://";

/// Bytes per message of a broadcast, by default.
const DEFAULT_MESSAGE_BYTES: usize = 128;

/// How long annulus's own loads run before they are measured, by default.
pub(crate) const DEFAULT_WARM_UP: Duration = Duration::from_millis(100);

/// Placeholders only in the command line of a client.
const COMMAND_PLACEHOLDERS: [&str; 4] = ["seconds", "requests", "script", "rate"];

/// Placeholders of a job.
const JOB_PLACEHOLDERS: [&str; 2] = ["depth", "seconds"];

/// The numbers in the answer to a job that must be above 0.
const JOB_NUMBERS: [&str; 3] = ["operations", "ns", "cpu_ns"];

/// How much longer than a slice the answer to a job may take: for the preparation and a warm-up,
/// also on a temporarily slow machine.
const ANSWER_TIMEOUT_SLACK: Duration = Duration::from_secs(30);

/// Placeholders in every load.
const LOAD_PLACEHOLDERS: [&str; 5] = ["port", "address", "path", "connections", "depth"];

/// A placeholder only in the command line of a contender's client: the name of the load.
const LOAD_NAME_PLACEHOLDER: &str = "load";

/// A load, which is one cell of a comparison.
#[derive(Clone, Debug)]
pub struct Load {
    /// The parameters, which reports show.
    pub cell: Cell,
    /// The program or job that loads the contender.
    pub client: Client,
    /// The protocol to start servers with, for servers that speak several.
    pub(crate) service: String,
    pub(crate) connections: u64,
    /// Requests in flight on each connection; in an open loop the maximum.
    pub(crate) depth: u64,
    /// When requests are sent.
    pub(crate) pace: Pace,
    /// Whether a quick run includes the load.
    pub is_quick: bool,
    /// About how long a slice takes.
    pub cost: Duration,
    /// How long annulus's own load is measured, at least.
    pub(crate) min_time: Duration,
    /// How the loads of all contenders in this cell take turns. `None` if each contender is measured
    /// in one piece.
    pub(crate) turns: Option<Turns>,
}

/// The client that loads a contender.
#[derive(Clone, Debug)]
pub enum Client {
    /// A load of annulus, in this process. A slice sets the address, and the rate of an open loop.
    Own {
        /// The load. Placeholders in its target are replaced.
        options: Box<Options>,
        /// The URL, followed by the URL and the options as text, if they were given so.
        words: Vec<String>,
    },
    /// A broadcast of annulus, in this process. The connections are subscribers, the depth is the
    /// number of messages in flight, and a delivery counts as a request.
    FanOut {
        /// Bytes per message.
        message_bytes: usize,
        /// The URL, followed by the options as text.
        words: Vec<String>,
    },
    /// A program.
    Command {
        /// The command line, starting with the program.
        words: Vec<String>,
        /// A command line to run first; empty if not needed.
        before: Vec<String>,
        /// Reads the output of the program.
        parser: Parser,
    },
    /// The client that each contender has.
    OfContender,
    /// No client: the contender reads a job.
    Job(Job),
}

/// One slice of work for a contender that reads jobs.
#[derive(Clone, Debug)]
pub struct Job {
    /// The line that the contender reads.
    pub(crate) line: String,
    /// How long the answer may take.
    pub(crate) timeout: Duration,
    /// The numbers in the answer that must be above 0.
    pub(crate) required: &'static [&'static str],
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// When an answer has arrived: a closed loop.
    Closed,
    /// At this many requests per second: an open loop.
    Rate(f64),
    /// At a multiple of the rate of the baseline in a closed loop with one request in flight on
    /// each connection: an open loop.
    Share(f64),
    /// At the rate that follows from the contender's own peak, in a sweep: an open loop.
    OfPeak,
}

/// A load, with a cell for each number of connections. In a file it has either `url`, with the
/// `options` of `annulus load`, or `command`, the command line of another client, or `job`, a line
/// for servers that read jobs instead of serving: it may contain `{depth}` and `{seconds}`. The URL
/// `fan-out://{address}` is a broadcast of messages of the option `length`: `connections` are its
/// subscribers, `depth` its messages in flight, and its requests are deliveries.
///
/// A command may contain `{connections}`, `{depth}`, `{seconds}`, `{requests}` (as many as fit into
/// that time, found by a short run before each slice), `{rate}`, and `{script}` (the lab's script
/// for wrk). `before` is a command to run first. `parse` says how to read the output of a client
/// other than wrk, h2load, redis-benchmark, oha, hey, ab, gcannon and annulus. In `url` and
/// `command`, the server is `{port}` or `{address}`, or `{path}` for a Unix socket.
///
/// `connections` is a number, or several with a cell each. `depth` is the number of requests in
/// flight on each connection. `rate` makes an open loop with this many requests per second, and
/// `share` one with a multiple of the baseline's rate in a closed loop. `service` is the protocol
/// of the servers. A quick run leaves out loads with `quick = false`. If each server has its own
/// `client`, a load has neither `url` nor `command`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Loads {
    /// The name; by default the scheme of the URL or the name of the program.
    pub name: Option<String>,
    /// A target of `annulus load`.
    pub url: Option<String>,
    /// The options of `annulus load`, except those that the comparison sets.
    pub options: Options,
    /// The URL and the options as text, for reports, if they were given so.
    #[serde(skip)]
    pub text: Option<String>,
    /// The command line of another client.
    pub command: Option<String>,
    /// The line that a contender reads.
    pub job: Option<String>,
    /// A command line to run before each slice.
    pub before: Option<String>,
    /// Expressions that read the output, each `KEY=EXPRESSION`.
    pub parse: Vec<String>,
    /// The protocol to start servers with.
    pub service: String,
    /// Numbers of connections, a cell each.
    #[serde(deserialize_with = "one_or_several")]
    pub connections: Vec<u64>,
    /// Requests in flight on each connection.
    pub depth: u64,
    /// Requests per second of an open loop.
    pub rate: Option<f64>,
    /// The rate of an open loop, relative to the baseline.
    pub share: Option<f64>,
    /// Whether `--quick` includes the load, which is the default.
    pub quick: bool,
}

fn one_or_several<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "connections are a number, such as 50, or several: [1, 50]")]
    enum Numbers {
        One(u64),
        Several(Vec<u64>),
    }
    Ok(match Numbers::deserialize(deserializer)? {
        Numbers::One(one) => vec![one],
        Numbers::Several(all) => all,
    })
}

impl Default for Loads {
    fn default() -> Loads {
        Loads {
            name: None,
            url: None,
            options: Options::default(),
            text: None,
            command: None,
            job: None,
            before: None,
            parse: Vec::new(),
            service: String::new(),
            connections: vec![50],
            depth: 1,
            rate: None,
            share: None,
            quick: true,
        }
    }
}

impl Loads {
    /// Returns the load for each number of connections.
    ///
    /// # Errors
    /// If a key has an invalid value; the error contains the key and the allowed values.
    pub fn split(self) -> Result<Vec<Load>> {
        let pace = match (self.rate, self.share) {
            (Some(_), Some(_)) => bail!("rate and share are both set: remove one"),
            (Some(rate), None) => Pace::Rate(positive("rate", rate)?),
            (None, Some(share)) => Pace::Share(positive("share", share)?),
            (None, None) => Pace::Closed,
        };
        ensure!(self.depth > 0, "depth 0: write a number from 1");
        if let Some(line) = &self.job {
            return self.job(line).map(|load| vec![load]);
        }
        ensure!(!self.connections.is_empty(), "connections is empty: write at least one number");
        ensure!(!self.connections.contains(&0), "connections 0: write a number from 1");
        let client = self.client()?;
        client.check(self.connections.len() > 1, self.depth > 1, pace != Pace::Closed)?;
        let name = self.name.unwrap_or_else(|| client.name());
        let Loads { service, connections, depth, quick: is_quick, .. } = self;
        let load = |connections| -> Result<Load> {
            let (cell, service) = (cell(&name, connections, depth), service.clone());
            let load = Load::new(cell, client.clone(), [connections, depth], Duration::ZERO);
            Load { service, pace, is_quick, ..load }
                .checked()
                .with_context(|| format!("load '{name}'"))
        };
        connections.into_iter().map(load).collect()
    }

    fn job(&self, line: &str) -> Result<Load> {
        let rest = Loads { job: None, name: None, depth: 1, quick: true, ..self.clone() };
        ensure!(
            rest == Loads::default(),
            "'{line}': a job has no other key than name, depth and quick: remove the other keys"
        );
        placeholders::check(&[line.to_owned()], &JOB_PLACEHOLDERS)?;
        let first = line.split(' ').next().unwrap_or_default();
        let name = self.name.as_deref().unwrap_or(first);
        let cell = Cell::new([("load", name.into()), ("depth", self.depth.into())]);
        let job = Job { line: line.into(), timeout: ANSWER_TIMEOUT_SLACK, required: &JOB_NUMBERS };
        let load = Load::job(cell, job, Duration::ZERO);
        Ok(Load { depth: self.depth, is_quick: self.quick, ..load })
    }

    fn client(&self) -> Result<Client> {
        let of_commands = !self.parse.is_empty() || self.before.is_some();
        match (&self.url, &self.command) {
            (Some(url), None) => {
                ensure!(
                    !of_commands,
                    "parse and before are for a command, not for a url: remove them"
                );
                let Options { connections, duration, count, warm_up, pipeline, .. } = &self.options;
                let own = [
                    (connections.is_some(), "-c (connections)"),
                    (duration.is_some(), "-d (--duration)"),
                    (count.is_some(), "-n"),
                    (warm_up.is_some(), "--warm-up"),
                    (pipeline.is_some(), "--pipeline (depth)"),
                ];
                if let Some((_, option)) = own.iter().find(|(given, _)| *given) {
                    bail!("'{url}': the comparison sets {option}: remove it");
                }
                let words = [Some(url.clone()), self.text.clone()].into_iter().flatten().collect();
                if url.starts_with(FAN_OUT_SCHEME) {
                    return self.fan_out(url);
                }
                let options = Options { target: Some(url.clone()), ..self.options.clone() };
                Ok(Client::Own { options: Box::new(options), words })
            }
            (None, Some(command)) => {
                ensure!(
                    self.options == Options::default(),
                    "options are for a url: write them in the command"
                );
                let words = placeholders::split(command)?;
                let before = self
                    .before
                    .as_deref()
                    .map(placeholders::split)
                    .transpose()?
                    .unwrap_or_default();
                let known = [&LOAD_PLACEHOLDERS[..], &COMMAND_PLACEHOLDERS].concat();
                placeholders::check(&words, &known)?;
                placeholders::check(&before, &known)?;
                let parser = Parser::of_command(&words, &self.parse)?;
                let has_requests = has(&words, "requests") || !parser.needs_requests();
                ensure!(
                    has_requests,
                    "'{command}' has no {{requests}}: write {} -n {{requests}} -e --csv …",
                    words[0]
                );
                Ok(Client::Command { words, before, parser })
            }
            (None, None) => {
                ensure!(
                    !of_commands && self.options == Options::default(),
                    "options, parse and before need a url or a command: add one of them"
                );
                Ok(Client::OfContender)
            }
            (Some(_), Some(_)) => bail!("a load has either a url or a command: remove one"),
        }
    }
}

impl Loads {
    /// Returns the load of a broadcast.
    fn fan_out(&self, url: &str) -> Result<Client> {
        let Options { length, .. } = &self.options;
        let known = Options { length: *length, ..Options::default() };
        ensure!(
            self.options == known,
            "'{url}' takes only the option length, the bytes per message: remove the others"
        );
        ensure!(
            self.rate.is_none() && self.share.is_none(),
            "'{url}' has no rate: depth is the number of messages in flight"
        );
        let message_bytes = length.unwrap_or(DEFAULT_MESSAGE_BYTES);
        ensure!(
            (fan_out::MIN_MESSAGE_BYTES..=fan_out::MAX_MESSAGE_BYTES).contains(&message_bytes),
            "length {message_bytes} is out of range: use {} to {} bytes per message",
            fan_out::MIN_MESSAGE_BYTES,
            fan_out::MAX_MESSAGE_BYTES
        );
        let words = vec![url.to_owned(), format!("-l {message_bytes}")];
        Ok(Client::FanOut { message_bytes, words })
    }
}

fn cell(name: &str, connections: u64, depth: u64) -> Cell {
    Cell::new([("load", name.into()), ("connections", connections.into()), ("depth", depth.into())])
}

/// Returns the placeholders for the address of a server.
fn words_of(address: &str) -> Vec<Placeholder> {
    let after = |found: Option<(&str, &str)>| found.map_or("", |(_, end)| end).to_owned();
    vec![
        ("port", after(address.rsplit_once(':'))),
        ("address", address.to_owned()),
        ("path", after(address.split_once(UNIX_PREFIX))),
    ]
}

fn positive(key: &str, number: f64) -> Result<f64> {
    ensure!(number.is_finite() && number > 0.0, "{key} {number}: write a number above 0");
    Ok(number)
}

impl Client {
    /// Parses the command line of a contender's client.
    pub(super) fn of_contender(line: &str, parse: &[String]) -> Result<Client> {
        let words = placeholders::split(line)?;
        let known =
            [&LOAD_PLACEHOLDERS[..], &COMMAND_PLACEHOLDERS, &[LOAD_NAME_PLACEHOLDER]].concat();
        placeholders::check(&words, &known)?;
        let parser = Parser::of_command(&words, parse)?;
        Ok(Client::Command { words, before: Vec::new(), parser })
    }

    /// Returns the command line of the client; empty if it has none.
    pub(crate) fn words(&self) -> &[String] {
        match self {
            Client::Own { words, .. }
            | Client::FanOut { words, .. }
            | Client::Command { words, .. } => words,
            Client::OfContender | Client::Job(_) => &[],
        }
    }

    /// Returns the command line, or the URL and the options of a load.
    fn line(&self) -> String {
        match (self, self.words()) {
            // The text of a load, as it was given, contains the URL.
            (Client::Own { .. }, [_, text]) => text.clone(),
            (_, words) => words.join(" "),
        }
    }

    /// Returns the scheme of the target, or the name of the program.
    fn name(&self) -> String {
        let first = self.words().first().map_or("", String::as_str);
        match self {
            Client::Command { .. } => first.rsplit('/').next().unwrap_or(first).to_owned(),
            _ => first.split_once("://").map_or("echo", |(scheme, _)| scheme).to_owned(),
        }
    }

    /// Refuses a command line without the placeholders that differ between servers or cells.
    fn check(&self, has_several: bool, is_deep: bool, is_open: bool) -> Result<()> {
        if let Client::OfContender = self {
            return Ok(());
        }
        let line = self.line();
        let has = |words: &[&str]| words.iter().any(|word| has(self.words(), word));
        ensure!(
            has(&["port", "address", "path"]),
            "'{line}' has neither {{port}} nor {{address}}: every server would be measured as one; write {{port}} instead of the port"
        );
        if let Client::Command { .. } = self {
            ensure!(
                !has_several || has(&["connections"]),
                "'{line}' has no {{connections}}, so every cell would be the same: add it"
            );
            ensure!(
                !is_deep || has(&["depth", "script"]),
                "'{line}' has no {{depth}}, the number of requests in flight: add it"
            );
            ensure!(
                !is_open || has(&["rate"]),
                "'{line}' has no {{rate}}, the requests per second: add it"
            );
        }
        Ok(())
    }

    /// Returns how to install the client, if it is a missing program.
    pub(crate) fn missing(&self) -> Option<String> {
        match self {
            Client::Command { words, .. } => installed::find_client(&words[0]).err(),
            Client::Own { .. } | Client::FanOut { .. } | Client::OfContender | Client::Job(_) => {
                None
            }
        }
    }
}

impl Load {
    /// Creates a load of annulus, with the connections and the messages in flight of its options.
    pub(crate) fn own(cell: Cell, options: Options, cost: Duration) -> Load {
        let connections = options.connections.unwrap_or(1) as u64;
        let depth = options.pipeline.unwrap_or(1) as u64;
        let client = Client::Own { options: Box::new(options), words: Vec::new() };
        Load::new(cell, client, [connections, depth], cost)
    }

    /// Creates a load for contenders that read a job.
    pub(crate) fn job(cell: Cell, job: Job, cost: Duration) -> Load {
        Load::new(cell, Client::Job(job), [0, 1], cost)
    }

    fn new(cell: Cell, client: Client, [connections, depth]: [u64; 2], cost: Duration) -> Load {
        Load {
            cell,
            client,
            service: String::new(),
            connections,
            depth,
            pace: Pace::Closed,
            is_quick: true,
            cost,
            min_time: Duration::ZERO,
            turns: None,
        }
    }

    /// Returns the loads of a sweep over rates: the closed loop that measures the peak, and an open
    /// loop for each share of it.
    ///
    /// # Errors
    /// If the load sets its own rate, or is a program.
    pub fn sweep(&self) -> Result<Vec<Load>> {
        let Client::Own { options, .. } = &self.client else {
            bail!(
                "'{}': a sweep needs a load of annulus, because the peak is measured without a rate: write --load instead of --load-command",
                self.client.words().join(" ")
            );
        };
        ensure!(
            self.pace == Pace::Closed && options.rate.is_none(),
            "'{}': a sweep chooses the rates: remove --rate",
            self.client.line()
        );
        let open = |percent: u64| {
            let cell = self.cell.with(PERCENT_PARAMETER, percent.into());
            Load { cell, pace: Pace::OfPeak, ..self.clone() }.checked()
        };
        let open = PERCENTS.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok([self.clone()].into_iter().chain(open).collect())
    }

    /// Returns true if contenders read the load as a job.
    pub(super) fn is_job(&self) -> bool {
        matches!(self.client, Client::Job(_))
    }

    /// Sets how long a slice is measured, and about how much longer it takes.
    pub(super) fn set_time(&mut self, time: Duration, overhead: Duration) {
        self.cost = time + overhead;
        if let Client::Job(job) = &mut self.client {
            let words =
                [("depth", self.depth.to_string()), ("seconds", time.as_secs_f64().to_string())];
            job.line = filled(&job.line, &words);
            job.timeout = time + ANSWER_TIMEOUT_SLACK;
        }
    }

    /// Extends slices of `time` that would be shorter than `min_time`.
    pub(crate) fn extend(&mut self, time: Duration, min_time: Duration) {
        self.cost += min_time.saturating_sub(time);
        self.min_time = min_time;
    }

    /// Renames the load.
    pub fn rename(&mut self, name: &str) {
        self.cell = cell(name, self.connections, self.depth);
    }

    /// Returns the name of the load, which its cells share.
    pub fn name(&self) -> String {
        self.cell.parameters().next().map_or_else(String::new, |(_, name)| name.to_string())
    }

    /// Returns the load with the client of this contender, if it has one.
    ///
    /// # Errors
    /// If the command line of the client lacks a placeholder that the load needs.
    pub(super) fn with_client_of(&self, contender: &Contender) -> Result<Load> {
        let Some(client) = &contender.client else { return Ok(self.clone()) };
        client.check(true, self.depth > 1, self.pace != Pace::Closed)?;
        Ok(Load { client: client.clone(), ..self.clone() })
    }

    /// Returns the load if a plan can be created from it.
    pub(crate) fn checked(self) -> Result<Load> {
        let example = EXAMPLE_ADDRESS.parse().expect("the example address is invalid");
        let rate = (self.pace != Pace::Closed).then_some(1.0);
        if let Client::Own { options, .. } = &self.client {
            self.plan(options, &example, rate, Duration::from_secs(1))?;
        }
        Ok(self)
    }

    /// Returns the same load in a closed loop, with this many requests in flight on each
    /// connection.
    pub(crate) fn closed(&self, depth: u64) -> Load {
        Load { pace: Pace::Closed, depth, ..self.clone() }
    }

    /// Returns the placeholders of this load, for a server at this address.
    pub(crate) fn words(&self, address: &str) -> Vec<Placeholder> {
        let own = [("connections", self.connections), ("depth", self.depth)];
        let own = own.map(|(name, number)| (name, number.to_string()));
        let name = (LOAD_NAME_PLACEHOLDER, self.name());
        words_of(address).into_iter().chain(own).chain([name]).collect()
    }

    /// Refuses a load that would not reach the server `remote`, which is not at 127.0.0.1.
    pub(super) fn check_remote(&self, remote: Option<&str>) -> Result<()> {
        match remote {
            Some(server)
                if !["address", "path"].iter().any(|word| has(self.client.words(), word)) =>
            {
                bail!(
                    "server '{server}' is not at 127.0.0.1: write {{address}} (host and port) instead of a host and {{port}}; for a Unix \
                     socket {{address}} is unix:/path and {{path}} only the path"
                )
            }
            _ => Ok(()),
        }
    }

    /// Returns the plan of a slice in which annulus loads a server at this address, at `rate` if
    /// there is one.
    pub(crate) fn plan(
        &self,
        options: &Options,
        address: &ServerAddress,
        rate: Option<f64>,
        time: Duration,
    ) -> Result<Plan> {
        let known = match address {
            ServerAddress::Inet(inet) => self.words(&inet.to_string()),
            ServerAddress::Unix(_) => self.words(EXAMPLE_ADDRESS),
        };
        let options = Options {
            target: options.target.as_deref().map(|target| filled(target, &known)),
            connections: Some(self.connections as usize),
            pipeline: Some(self.depth as usize),
            warm_up: options.warm_up.or(Some(DEFAULT_WARM_UP)),
            duration: Some(time),
            rate: rate.map(Rate::constant).or(options.rate),
            ..options.clone()
        };
        Ok(Plan { turns: self.turns, ..options.plan_at(address)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(loads: Loads, part: &str) {
        let error = loads.split().expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn an_invalid_load_is_refused() {
        let url = || Loads { url: Some("tcp://{address}".into()), ..Loads::default() };
        let command = |line: &str| Loads { command: Some(line.into()), ..Loads::default() };
        refused(
            Loads { parse: vec!["rate=(.*)".into()], ..Loads::default() },
            "need a url or a command",
        );
        refused(Loads { command: Some("wrk".into()), ..url() }, "either a url or a command");
        refused(Loads { depth: 0, ..url() }, "depth 0");
        refused(Loads { rate: Some(0.0), ..url() }, "rate 0: write a number above 0");
        refused(
            Loads { parse: vec!["rate=(.*)".into()], ..url() },
            "parse and before are for a command",
        );
        refused(command("wrk http://127.0.0.1/"), "has neither {port} nor {address}");
        refused(command("some {port}"), "the output format of some is unknown");
        let two = Loads { connections: vec![1, 2], ..command("wrk http://{address}/") };
        refused(two, "has no {connections}");
        refused(Loads { depth: 2, ..command("wrk {port}") }, "has no {depth}");
        refused(Loads { rate: Some(1.0), ..command("wrk {port}") }, "has no {rate}");
        let job = |line: &str| Loads { job: Some(line.into()), ..Loads::default() };
        refused(Loads { rate: Some(1.0), ..job("direct {seconds}") }, "a job has no other key");
        refused(Loads { url: Some("tcp://{port}".into()), ..job("direct") }, "has no other key");
        refused(job("direct {port}"), "unknown placeholder {port}");
        let slow = Loads { quick: false, ..job("direct {seconds}") }.split();
        assert!(!slow.expect("the job is invalid")[0].is_quick);
        let loads = Loads { connections: vec![1, 2], ..command("wrk -c{connections} {port}") };
        assert_eq!(loads.split().expect("the loads are invalid").len(), 2);
    }

    #[test]
    fn a_job_is_filled_with_its_depth_and_the_time_of_a_slice() {
        let job = Some("direct {depth} {seconds}".into());
        let loads = Loads { job, depth: 32, ..Loads::default() };
        let mut load = loads.split().expect("a load").remove(0);
        assert_eq!((load.cell.to_string().as_str(), load.is_job()), ("direct × depth 32", true));
        load.set_time(Duration::from_millis(400), Duration::ZERO);
        let Client::Job(job) = load.client else { panic!("a job") };
        assert_eq!(job.line, "direct 32 0.4");
    }

    #[test]
    fn placeholders_come_from_the_server_and_the_cell() {
        let loads = Loads { url: Some("http://{address}/".into()), ..Loads::default() };
        let load = loads.split().expect("the load is invalid").remove(0);
        let words = load.words("127.0.0.1:8080");
        assert_eq!(
            placeholders::filled("{port} {address} {connections}{path}", &words),
            "8080 127.0.0.1:8080 50"
        );
        assert_eq!(
            placeholders::filled("{address} {path}", &load.words("unix:/run/a")),
            "unix:/run/a /run/a"
        );
    }
}
