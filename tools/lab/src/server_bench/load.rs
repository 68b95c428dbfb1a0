//! What one client asks of a server.

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

use super::client::{Client, Parser};
use super::contender::UNIX;
use super::words::{self, Word, has};
use crate::bench::Cell;

/// Words in the command line of a client, beside those of every load.
const OF_COMMANDS: [&str; 4] = ["seconds", "requests", "script", "rate"];

/// Words in every load.
const OF_LOADS: [&str; 5] = ["port", "address", "path", "connections", "depth"];

/// A load. In a file it has `url`, with the `options` of `annulus load`; or the `command` of another client, with `{connections}`,
/// `{depth}`, `{seconds}`, `{requests}` (as many as fit that time: a short run before each slice tells), `{rate}` or `{script}` (of wrk:
/// one of ours), `before` (a command that is run first), and `parse`, if the program is none of wrk, h2load, redis-benchmark, oha, hey
/// and ab. In all of them the server is `{port}` or `{address}`, or `{path}` if it is a Unix socket. `connections` are a number or several, a cell each; `depth` is how
/// many requests are in flight on each; `rate`, requests a second of an open loop, or `share`, the same as a multiple of what the
/// baseline answers in a closed one; `service`, what servers are told to speak.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// The client.
    pub client: Client,
    /// What servers are told to speak, if they speak several protocols.
    pub service: String,
    /// Connections of the client.
    pub connections: u64,
    /// Requests in flight on each connection; in an open loop the most of them.
    pub depth: u64,
    /// When requests are sent.
    pub pace: Pace,
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

/// A load, with a cell for each number of connections.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Loads {
    /// Its name; if there is none, that of the scheme or of the program.
    pub name: Option<String>,
    /// A target of `annulus load`.
    pub url: Option<String>,
    /// Its options.
    pub options: String,
    /// A command line.
    pub command: Option<String>,
    /// A command line that is run before each slice.
    pub before: Option<String>,
    /// How the output is read: `KEY=EXPRESSION` each.
    pub parse: Vec<String>,
    /// What servers are told to speak.
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
    pub fn split(self) -> Result<Vec<Load>> {
        let client = self.client()?;
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
        client.check(self.connections.len() > 1, self.depth > 1, pace != Pace::Closed)?;
        let name = self.name.unwrap_or_else(|| client.name());
        let Loads { service, connections, depth, .. } = self;
        let load = |connections| Load {
            name: name.clone(),
            client: client.clone(),
            service: service.clone(),
            connections,
            depth,
            pace,
        };
        Ok(connections.into_iter().map(load).collect())
    }

    fn client(&self) -> Result<Client> {
        let parse = !self.parse.is_empty() || self.before.is_some();
        match (&self.url, &self.command) {
            (Some(url), None) => {
                ensure!(
                    !parse,
                    "parse and before are for a command, and there is a url: leave them out"
                );
                let mut words = words::split(url)?;
                if !self.options.is_empty() {
                    words.extend(words::split(&self.options)?);
                }
                Ok(Client::Own(words))
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
                let is_told = has(&words, "requests") || !parser.needs_requests();
                ensure!(
                    is_told,
                    "'{command}' has no {{requests}}: write {} -n {{requests}} -e --csv …",
                    words[0]
                );
                Ok(Client::Command { words, before, parser })
            }
            _ => bail!("a load has a url or a command, and not both"),
        }
    }
}

fn positive(key: &str, number: f64) -> Result<f64> {
    ensure!(number.is_finite() && number > 0.0, "{key} {number}: write a number above 0");
    Ok(number)
}

impl Load {
    /// Its parameters.
    pub(crate) fn cell(&self) -> Cell {
        Cell::new([
            ("load", self.name.as_str().into()),
            ("connections", self.connections.into()),
            ("depth", self.depth.into()),
        ])
    }

    /// What takes the place of the words of every load.
    pub(super) fn words(&self, address: &str) -> Vec<Word> {
        let after = |found: Option<(&str, &str)>| found.map_or("", |(_, end)| end).to_owned();
        vec![
            ("port", after(address.rsplit_once(':'))),
            ("address", address.to_owned()),
            ("path", after(address.split_once(UNIX))),
            ("connections", self.connections.to_string()),
            ("depth", self.depth.to_string()),
        ]
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(loads: Loads, part: &str) {
        let error = loads.split().expect_err(part).to_string();
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
        assert_eq!(loads.split().expect("two loads").len(), 2);
    }

    #[test]
    fn words_are_those_of_the_server_and_of_the_cell() {
        let loads = Loads { url: Some("http://{address}/".into()), ..Loads::default() };
        let load = loads.split().expect("a load").remove(0);
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
