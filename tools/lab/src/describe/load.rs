//! The requests to a contender.

use std::time::Duration;

use annulus_load::{Options, Plan, Rate, ServerAddress};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::contender::UNIX_PREFIX;
use super::installed;
use super::parser::Parser;
use super::placeholders::{self, Placeholder, filled, has};
use crate::bench::Cell;

/// Where a server of no TCP address is said to be.
const EXAMPLE_ADDRESS: &str = "127.0.0.1:1";

/// How long our load runs before it is measured.
const DEFAULT_WARM_UP: Duration = Duration::from_millis(100);

/// Words in the command line of a client, beside those of every load.
const COMMAND_PLACEHOLDERS: [&str; 4] = ["seconds", "requests", "script", "rate"];

/// Words in every load.
const LOAD_PLACEHOLDERS: [&str; 5] = ["port", "address", "path", "connections", "depth"];

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
        /// The load. Words in its target are replaced.
        options: Box<Options>,
        /// The same as text.
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
    /// The options of `annulus load`, but for those that a comparison has itself.
    pub options: Options,
    /// The options as text.
    #[serde(skip)]
    pub text: Option<String>,
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
            options: Options::default(),
            text: None,
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
    pub fn split(self) -> Result<Vec<Load>> {
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
        let client = self.client()?;
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
            load.checked().with_context(|| format!("load '{name}'"))
        };
        connections.into_iter().map(load).collect()
    }

    fn client(&self) -> Result<Client> {
        let of_commands = !self.parse.is_empty() || self.before.is_some();
        match (&self.url, &self.command) {
            (Some(url), None) => {
                ensure!(
                    !of_commands,
                    "parse and before are for a command, and there is a url: leave them out"
                );
                let Options { clients, duration, warm_up, pipeline, .. } = &self.options;
                let own = [
                    (clients.is_some(), "-c (connections)"),
                    (duration.is_some(), "-t (--seconds)"),
                    (warm_up.is_some(), "--warm-up"),
                    (pipeline.is_some(), "--pipeline (depth)"),
                ];
                if let Some((_, option)) = own.iter().find(|(given, _)| *given) {
                    bail!("'{url}': the comparison says {option}: leave it out");
                }
                let words = [Some(url.clone()), self.text.clone()].into_iter().flatten().collect();
                let options = Options { target: Some(url.clone()), ..self.options.clone() };
                Ok(Client::Own { options: Box::new(options), words })
            }
            (None, Some(command)) => {
                ensure!(
                    self.options == Options::default(),
                    "options are for a url: write them into the command"
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

fn cell(name: &str, connections: u64, depth: u64) -> Cell {
    Cell::new([("load", name.into()), ("connections", connections.into()), ("depth", depth.into())])
}

/// The replacements of the words for the address of a server.
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
    /// A load of ours, with its own numbers of clients and messages in flight.
    pub(crate) fn own(cell: Cell, options: Options, cost: Duration) -> Load {
        let connections = options.clients.unwrap_or(1) as u64;
        let depth = options.pipeline.unwrap_or(1) as u64;
        let client = Client::Own { options: Box::new(options), words: Vec::new() };
        Load { cell, client, service: String::new(), connections, depth, pace: Pace::Closed, cost }
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

    /// The name of the load, which its cells with other connections share.
    pub fn name(&self) -> String {
        self.cell.parameters().next().map_or_else(String::new, |(_, name)| name.to_string())
    }

    /// Whether it can be made of what is described.
    pub(crate) fn checked(self) -> Result<Load> {
        let example = EXAMPLE_ADDRESS.parse().expect("a constant");
        let rate = matches!(self.pace, Pace::Rate(_) | Pace::Share(_)).then_some(1.0);
        if let Client::Own { options, .. } = &self.client {
            self.plan(options, &example, rate, Duration::from_secs(1))?;
        }
        Ok(self)
    }

    /// The same in a closed loop, with so many requests in flight on each connection.
    pub(crate) fn closed(&self, depth: u64) -> Load {
        Load { pace: Pace::Closed, depth, ..self.clone() }
    }

    /// The replacements of the words of every load.
    pub(crate) fn words(&self, address: &str) -> Vec<Placeholder> {
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

    /// The plan of a slice of our load on a server there, at a rate if there is one.
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
            clients: Some(self.connections as usize),
            pipeline: Some(self.depth as usize),
            warm_up: options.warm_up.or(Some(DEFAULT_WARM_UP)),
            duration: Some(time),
            rate: rate.map(Rate::constant).or(options.rate),
            ..options.clone()
        };
        Ok(options.plan_at(address)?)
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
        assert_eq!(loads.split().expect("two loads").len(), 2);
    }

    #[test]
    fn placeholders_come_from_the_server_and_the_cell() {
        let loads = Loads { url: Some("http://{address}/".into()), ..Loads::default() };
        let load = loads.split().expect("a load").remove(0);
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
