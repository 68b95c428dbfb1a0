//! The requests to a contender.

use std::time::Duration;

use annulus_load::{Plan, Protocol, Rate, Schedule, ServerAddress, Workload};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::contender::UNIX;
use super::installed;
use super::parser::Parser;
use super::words::{self, Word, filled, has};
use crate::bench::Cell;

/// Parses a target and options of `annulus load`.
pub type PlanParser = fn(&[String]) -> Result<Plan>;

/// Where a server is said to be while the words of a load are parsed; each slice has the address of its own.
pub(crate) const EXAMPLE: &str = "127.0.0.1:1";

/// How long our load runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(100);

/// Words in the command line of a client, beside those of every load.
const OF_COMMANDS: [&str; 4] = ["seconds", "requests", "script", "rate"];

/// Words in every load.
const OF_LOADS: [&str; 5] = ["port", "address", "path", "connections", "depth"];

/// A load: one cell.
#[derive(Clone, Debug)]
pub struct Load {
    /// The parameters of the load.
    pub cell: Cell,
    /// The client.
    pub client: Client,
    /// The protocol that servers are started with, if they speak several.
    pub(crate) service: String,
    /// Connections of the client.
    pub(crate) connections: u64,
    /// Requests in flight on each connection; in an open loop the most of them.
    pub(crate) depth: u64,
    /// When requests are sent.
    pub(crate) pace: Pace,
    /// About how long a slice takes.
    pub cost: Duration,
}

/// The client that loads a contender.
#[derive(Clone, Debug)]
pub enum Client {
    /// Our load, in this process. A slice sets the address, and the rate of an open loop.
    Own {
        /// The plan of the load.
        plan: Box<Plan>,
        /// The target and the options that it was made of, if it was.
        words: Vec<String>,
    },
    /// A program.
    Command {
        /// The command line of the program.
        words: Vec<String>,
        /// A command line that is run first; empty if there is none.
        before: Vec<String>,
        /// How its output is read.
        parser: Parser,
    },
    /// The contender itself, which reads a job.
    Job(Job),
}

/// One slice of work.
#[derive(Clone, Debug)]
pub struct Job {
    /// The request, a line.
    pub(crate) line: String,
    /// How long the answer may take.
    pub(crate) timeout: Duration,
    /// The numbers of the answer that must be above 0.
    pub(crate) required: &'static [&'static str],
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Once an answer has arrived: a closed loop.
    Closed,
    /// At this rate, requests a second: an open loop.
    Rate(f64),
    /// At a rate that is a multiple of what the baseline answers in a closed loop with a request in flight on each connection.
    Share(f64),
}

/// A load, with a cell for each number of connections. In a file it has `url`, with the `options` of `annulus load`; or the `command` of
/// another client, with `{connections}`, `{depth}`, `{seconds}`, `{requests}` (as many as fit that time: a short run before each slice
/// says), `{rate}` or `{script}` (of wrk: one of ours), `before` (a command that is run first), and `parse`, if the program is none of
/// wrk, h2load, redis-benchmark, oha, hey and ab. In all of them the server is `{port}` or `{address}`, or `{path}` if it is a Unix socket.
/// `connections` are a number or several, a cell each; `depth` is how many requests are in flight on each; `rate`, requests a second of
/// an open loop, or `share`, the same as a multiple of what the baseline answers in a closed one; `service`, the protocol of the servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Loads {
    /// The name; if there is none, that of the scheme or of the program.
    pub name: Option<String>,
    /// A target of `annulus load`.
    pub url: Option<String>,
    /// The options of `annulus load`.
    pub options: String,
    /// A command line.
    pub command: Option<String>,
    /// A command line that is run before each slice.
    pub before: Option<String>,
    /// How the output is read: `KEY=EXPRESSION` each.
    pub parse: Vec<String>,
    /// The protocol that servers are started with.
    pub service: String,
    /// Numbers of connections.
    #[serde(deserialize_with = "one_or_several")]
    pub connections: Vec<u64>,
    /// Requests in flight on each.
    pub depth: u64,
    /// Requests a second.
    pub rate: Option<f64>,
    /// The same, relative to the baseline.
    pub share: Option<f64>,
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
            options: String::new(),
            command: None,
            before: None,
            parse: Vec::new(),
            service: String::new(),
            connections: vec![50],
            depth: 1,
            rate: None,
            share: None,
        }
    }
}

impl Loads {
    /// The load of each number of connections.
    ///
    /// # Errors
    /// Names the key that has no possible value, and what it may be.
    pub fn split(self, parse: PlanParser) -> Result<Vec<Load>> {
        let pace = match (self.rate, self.share) {
            (Some(_), Some(_)) => bail!("rate and share are two rates: leave one out"),
            (Some(rate), None) => Pace::Rate(positive("rate", rate)?),
            (None, Some(share)) => Pace::Share(positive("share", share)?),
            (None, None) => Pace::Closed,
        };
        ensure!(self.depth > 0, "depth 0: at least one request is in flight");
        ensure!(
            !self.connections.is_empty(),
            "connections [] are no cell: write a number at least"
        );
        ensure!(!self.connections.contains(&0), "connections 0: write a number from 1");
        let client = self.client(pace, parse)?;
        client.check(self.connections.len() > 1, self.depth > 1, pace != Pace::Closed)?;
        let name = self.name.unwrap_or_else(|| client.name());
        let Loads { service, connections, depth, .. } = self;
        let load = |connections| -> Result<Load> {
            let load = Load {
                cell: cell(&name, connections, depth),
                client: client.clone(),
                service: service.clone(),
                connections,
                depth,
                pace,
                cost: Duration::ZERO,
            };
            load.set().with_context(|| format!("load '{name}'"))
        };
        connections.into_iter().map(load).collect()
    }

    fn client(&self, pace: Pace, parse: PlanParser) -> Result<Client> {
        let of_commands = !self.parse.is_empty() || self.before.is_some();
        match (&self.url, &self.command) {
            (Some(url), None) => {
                ensure!(
                    !of_commands,
                    "parse and before are for a command, and there is a url: leave them out"
                );
                let mut words = words::split(url)?;
                if !self.options.is_empty() {
                    words.extend(words::split(&self.options)?);
                }
                let plan = Box::new(plan(&words, pace, parse)?);
                Ok(Client::Own { plan, words })
            }
            (None, Some(command)) => {
                ensure!(
                    self.options.is_empty(),
                    "options are for a url: write them into the command"
                );
                let words = words::split(command)?;
                let before =
                    self.before.as_deref().map(words::split).transpose()?.unwrap_or_default();
                let known = [&OF_LOADS[..], &OF_COMMANDS].concat();
                words::check(&words, &known)?;
                words::check(&before, &known)?;
                let parser = Parser::choose(&words[0], &self.parse)?;
                let has_requests = has(&words, "requests") || !parser.needs_requests();
                ensure!(
                    has_requests,
                    "'{command}' has no {{requests}}: write {} -n {{requests}} -e --csv …",
                    words[0]
                );
                Ok(Client::Command { words, before, parser })
            }
            _ => bail!("a load has a url or a command, and not both"),
        }
    }
}

/// The plan of a target and options. The target is that of an example: so only it may name the server.
fn plan(words: &[String], pace: Pace, parse: PlanParser) -> Result<Plan> {
    let options = words.get(1..).unwrap_or_default();
    if let Some(word) = ["port", "address"].iter().find(|word| has(options, word)) {
        bail!("{{{word}}} is for the target alone: leave it out of the options");
    }
    let known = words_of(EXAMPLE);
    let mut words: Vec<String> = words.iter().map(|word| filled(word, &known)).collect();
    if pace != Pace::Closed {
        words.extend(["--rate", "1"].map(String::from));
    }
    parse(&words)
}

fn cell(name: &str, connections: u64, depth: u64) -> Cell {
    Cell::new([("load", name.into()), ("connections", connections.into()), ("depth", depth.into())])
}

/// The replacements of the words for the address of a server.
fn words_of(address: &str) -> Vec<Word> {
    let after = |found: Option<(&str, &str)>| found.map_or("", |(_, end)| end).to_owned();
    vec![
        ("port", after(address.rsplit_once(':'))),
        ("address", address.to_owned()),
        ("path", after(address.split_once(UNIX))),
    ]
}

fn positive(key: &str, number: f64) -> Result<f64> {
    ensure!(number.is_finite() && number > 0.0, "{key} {number}: write a number above 0");
    Ok(number)
}

impl Client {
    /// The command line of the client; empty if it has none.
    pub(crate) fn words(&self) -> &[String] {
        match self {
            Client::Own { words, .. } | Client::Command { words, .. } => words,
            Client::Job(_) => &[],
        }
    }

    /// The scheme of its target, or the name of its program.
    fn name(&self) -> String {
        let first = self.words().first().map_or("", String::as_str);
        match self {
            Client::Command { .. } => first.rsplit('/').next().unwrap_or(first).to_owned(),
            _ => first.split_once("://").map_or("echo", |(scheme, _)| scheme).to_owned(),
        }
    }

    /// Refuses a command line without the words that differ between servers or cells.
    fn check(&self, has_several: bool, is_deep: bool, is_open: bool) -> Result<()> {
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

    /// How to install the client, if it is a program that is not installed.
    pub(crate) fn missing(&self) -> Option<String> {
        match self {
            Client::Command { words, .. } => installed::find(&words[0]).err(),
            Client::Own { .. } | Client::Job(_) => None,
        }
    }
}

impl Load {
    /// A cell of our load, whose plan says everything but the address.
    pub(crate) fn own(cell: Cell, plan: Plan, cost: Duration) -> Load {
        let connections = plan.clients as u64;
        let client = Client::Own { plan: Box::new(plan), words: Vec::new() };
        let (service, depth, pace) = (String::new(), 1, Pace::Closed);
        Load { cell, client, service, connections, depth, pace, cost }
    }

    /// A cell in which contenders read a job.
    pub(crate) fn job(cell: Cell, job: Job, cost: Duration) -> Load {
        let (client, service) = (Client::Job(job), String::new());
        Load { cell, client, service, connections: 0, depth: 1, pace: Pace::Closed, cost }
    }

    /// Gives the load another name.
    pub fn rename(&mut self, name: &str) {
        self.cell = cell(name, self.connections, self.depth);
    }

    /// Sets how long a slice is measured, and how long it takes besides.
    pub(super) fn last(&mut self, time: Duration, beside: Duration) {
        self.cost = time + beside;
        if let Client::Own { plan, .. } = &mut self.client {
            plan.duration = time;
        }
    }

    /// The name of the load, which its cells with other connections share.
    pub fn name(&self) -> String {
        self.cell.parameters().next().map_or_else(String::new, |(_, name)| name.to_string())
    }

    /// Sets connections and depth in the plan of our load, and checks it.
    fn set(mut self) -> Result<Load> {
        let (connections, depth) = (self.connections as usize, self.depth as usize);
        if let Client::Own { plan, .. } = &mut self.client {
            (plan.clients, plan.warm_up) = (connections, WARM_UP);
            match &mut plan.workload {
                Workload::Streams(streams) => streams.pipeline = depth,
                _ if depth > 1 => bail!("depth {depth}: a connection a message has one in flight"),
                _ => {}
            }
            plan.validate()?;
        }
        Ok(self)
    }

    /// The same in a closed loop, with so many requests in flight on each connection.
    pub(crate) fn closed(&self, depth: u64) -> Load {
        let mut load = Load { pace: Pace::Closed, depth, ..self.clone() };
        if let (Client::Own { plan, .. }, true) = (&mut load.client, self.pace != Pace::Closed) {
            plan.schedule = Schedule::default();
            if let Workload::Streams(streams) = &mut plan.workload {
                streams.pipeline = depth as usize;
            }
        }
        load
    }

    /// The replacements of the words of every load.
    pub(crate) fn words(&self, address: &str) -> Vec<Word> {
        let own = [("connections", self.connections), ("depth", self.depth)];
        let own = own.map(|(name, number)| (name, number.to_string()));
        words_of(address).into_iter().chain(own).collect()
    }

    /// Refuses a load that would not reach a server on another machine.
    pub(super) fn check_remote(&self, remote: Option<&str>) -> Result<()> {
        match remote {
            Some(server)
                if !["address", "path"].iter().any(|word| has(self.client.words(), word)) =>
            {
                bail!(
                    "server '{server}' is not at 127.0.0.1: write {{address}}, its host and its port, in place of a host and {{port}}; of a Unix \
                     socket that is unix:/path, and {{path}} the path alone"
                )
            }
            _ => Ok(()),
        }
    }

    /// The plan of our load for a server, at a rate if it is an open loop. Names of the example become those of the server.
    pub(crate) fn plan(&self, plan: &Plan, address: &ServerAddress, rate: Option<f64>) -> Plan {
        let mut plan = Plan { address: address.clone(), ..plan.clone() };
        if let (Some(rate), Schedule::Open { arrivals, .. }) = (rate, &plan.schedule) {
            plan.schedule = Schedule::Open { rate: Rate::constant(rate), arrivals: *arrivals };
        }
        let ServerAddress::Inet(inet) = address else { return plan };
        let (host, port) = EXAMPLE.rsplit_once(':').expect("a constant");
        if let Protocol::Http(http) | Protocol::Http2(http) = &mut plan.protocol {
            if http.authority == EXAMPLE && has(self.client.words(), "address") {
                http.authority = inet.to_string();
            } else if let Some(named) = http.authority.strip_suffix(&format!(":{port}")) {
                http.authority = format!("{named}:{}", inet.port());
            }
        }
        if let Some(tls) = plan.tls.as_mut().filter(|tls| tls.server_name == host) {
            tls.server_name = inet.ip().to_string();
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::own_plan;

    fn refused(loads: Loads, part: &str) {
        let error = loads.split(own_plan).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn a_load_that_cannot_be_is_refused() {
        let url = || Loads { url: Some("tcp://{address}".into()), ..Loads::default() };
        let command = |line: &str| Loads { command: Some(line.into()), ..Loads::default() };
        refused(Loads::default(), "a url or a command");
        refused(Loads { command: Some("wrk".into()), ..url() }, "a url or a command");
        refused(Loads { depth: 0, ..url() }, "depth 0");
        refused(Loads { rate: Some(0.0), ..url() }, "rate 0: write a number above 0");
        refused(
            Loads { parse: vec!["rate=(.*)".into()], ..url() },
            "parse and before are for a command",
        );
        refused(command("wrk http://127.0.0.1/"), "has neither {port} nor {address}");
        refused(command("some {port}"), "nothing says how the output of some is read");
        let two = Loads { connections: vec![1, 2], ..command("wrk http://{address}/") };
        refused(two, "has no {connections}");
        refused(Loads { depth: 2, ..command("wrk {port}") }, "has no {depth}");
        refused(Loads { rate: Some(1.0), ..command("wrk {port}") }, "has no {rate}");
        let loads = Loads { connections: vec![1, 2], ..command("wrk -c{connections} {port}") };
        assert_eq!(loads.split(own_plan).expect("two loads").len(), 2);
    }

    #[test]
    fn words_are_those_of_the_server_and_of_the_cell() {
        let loads = Loads { url: Some("http://{address}/".into()), ..Loads::default() };
        let load = loads.split(own_plan).expect("a load").remove(0);
        let words = load.words("127.0.0.1:8080");
        assert_eq!(
            words::filled("{port} {address} {connections}{path}", &words),
            "8080 127.0.0.1:8080 50"
        );
        assert_eq!(
            words::filled("{address} {path}", &load.words("unix:/run/a")),
            "unix:/run/a /run/a"
        );
    }
}
