//! A comparison of servers given on the command line: its contenders and its loads.

use super::args::parse_nonzero_time;
use super::run::peers;
use super::subject::Options;
use crate::usage::{UsageError, only_with};
use annulus_lab::bench::{Plan, Precision, Rounds, Sweep, SweepLimit};
use annulus_lab::describe::{Comparison, Contender, Load, Loads, Placement, Setup};
use annulus_load::stats::DEFAULT_MARGIN;
use anyhow::{Context, Result};
use clap::Args;
use std::time::Duration;

/// The default minimum and maximum number of rounds. Rounds are added until half the width of the
/// intervals is at most the margin of the verdict *same*.
const ROUND_LIMITS: [usize; 2] = [15, 30];

/// How long a slice is measured by default.
pub(super) const SLICE_TIME: Duration = Duration::from_secs(1);

/// Servers of your own
#[derive(Args, Debug)]
#[command(next_help_heading = "Servers of your own")]
pub(super) struct ServerArgs {
    /// Compare servers: each NAME is then a command that starts one, or the HOST:PORT or unix:/path
    /// of a running one. The value is the load: a target of annulus load with its options, such as
    /// 'http://127.0.0.1:{port}/ -H "Accept: */*"'
    #[arg(long, value_name = "URL OPTIONS")]
    load: Vec<String>,
    /// Use another program as the load, such as
    /// 'wrk -t1 -c {connections} -d {seconds} http://127.0.0.1:{port}/'
    #[arg(long, value_name = "COMMAND")]
    load_command: Vec<String>,
    /// How to find a number in the output of a --load-command other than wrk, oha, h2load, hey, ab
    /// and redis-benchmark: rate=, requests=, time=, errors=, mean=, p50=, p99= or p99.9=, and a
    /// regular expression with one group
    #[arg(long, value_name = "KEY=REGEX")]
    parse: Vec<String>,
    /// Connections of the load; each number is a cell [default: 50]
    #[arg(short, long, value_name = "COUNT,…", value_delimiter = ',')]
    connections: Vec<u64>,
    /// Requests in flight on each connection [default: 1]
    #[arg(long, value_name = "COUNT")]
    pipeline: Option<u64>,
    /// Requests per second, however fast the server is [default: as fast as replies arrive]
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<f64>,
    /// Measure latency against rate: each server's peak first, then 10 % to 120 % of it, whether or
    /// not the server keeps up
    #[arg(long)]
    sweep: bool,
    /// With --sweep, say up to which rate each server keeps this limit, such as p99<5ms; the
    /// latencies are mean, p50, p99 and p99.9
    #[arg(long, value_name = "LATENCY<TIME")]
    limit: Option<String>,
    /// The names of the servers, in order [default: the names of the programs]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    name: Vec<String>,
    /// The ports of servers without {port} in their command, in order [default: looked up]
    #[arg(long, value_name = "PORT,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..))]
    port: Vec<u16>,
    /// Text that a server prints once it is ready: one for all, or one for each [default: a server
    /// is ready once it listens]
    #[arg(long, value_name = "TEXT")]
    ready: Vec<String>,
    /// How long a server may take to become ready [default: 10]
    #[arg(long, value_name = "TIME", value_parser = parse_nonzero_time)]
    start_timeout: Option<Duration>,
    /// How long a slice is measured [default: 1]
    #[arg(short, long, value_name = "TIME", value_parser = parse_nonzero_time)]
    duration: Option<Duration>,
    /// Let servers and load share all cores; otherwise each has its own core, so that they do not
    /// disturb each other
    #[arg(long)]
    share_cores: bool,
}

impl ServerArgs {
    /// Returns true if a load is given: the names are then servers.
    pub(super) fn are_given(&self) -> bool {
        !self.load.is_empty() || !self.load_command.is_empty()
    }

    /// Rejects options that would have no effect.
    pub(super) fn check(&self, names: &[String]) -> Result<(), UsageError> {
        let is_server = |name: &&String| name.contains(' ') || name.contains("://");
        if let Some(server) = names.iter().find(is_server).filter(|_| !self.are_given()) {
            let text = format!(
                "'{server}' is a server without a load: add --load 'http://127.0.0.1:{{port}}/'"
            );
            return Err(UsageError(text));
        }
        let given = [
            ("--parse", !self.parse.is_empty()),
            ("--connections", !self.connections.is_empty()),
            ("--pipeline", self.pipeline.is_some()),
            ("--rate", self.rate.is_some()),
            ("--sweep", self.sweep),
            ("--name", !self.name.is_empty()),
            ("--port", !self.port.is_empty()),
            ("--ready", !self.ready.is_empty()),
            ("--start-timeout", self.start_timeout.is_some()),
            ("--duration", self.duration.is_some()),
            ("--share-cores", self.share_cores),
        ];
        only_with("--load or --load-command", self.are_given(), &given)?;
        only_with("--load-command", !self.load_command.is_empty(), &given[..1])?;
        only_with("--sweep", self.sweep, &[("--limit", self.limit.is_some())])?;
        if self.sweep && self.rate.is_some() {
            let text = "--sweep chooses the rates from each server's peak: leave out --rate";
            return Err(UsageError(text.into()));
        }
        Ok(())
    }

    /// Sets up the comparison of these servers.
    ///
    /// # Errors
    /// If a server, a load or an option cannot be used; the error contains it.
    pub(super) fn setup(&self, servers: &[String], options: &Options) -> Result<Setup> {
        let usage = |why: anyhow::Error| UsageError(format!("{why:#}"));
        let contenders = self.contenders(servers).map_err(usage)?;
        let limit = self.limit.as_deref().map(SweepLimit::parse).transpose();
        let limit = limit.context("--limit").map_err(usage)?;
        let mut loads = self.loads().map_err(usage)?;
        if self.sweep {
            let swept = loads.iter().map(Load::sweep).collect::<Result<Vec<_>>>();
            loads = swept.map_err(usage)?.concat();
        }
        let placement = if self.share_cores { Placement::Shared } else { Placement::Apart };
        let names: Vec<&str> = contenders.iter().map(|one| one.name.as_str()).collect();
        let name = as_file_name(&names.join("+"));
        let comparison = Comparison::of(&name, contenders, loads, placement)?;
        let mut setup = comparison_setup(comparison, self.duration.unwrap_or(SLICE_TIME), options);
        if let Some(timeout) = self.start_timeout {
            setup.start_timeout = timeout;
        }
        if self.sweep {
            setup.sweep(Sweep { limit });
        }
        Ok(setup)
    }

    fn contenders(&self, servers: &[String]) -> Result<Vec<Contender>> {
        let contenders = servers.iter().map(|text| Contender::of_text(text));
        let mut contenders = contenders.collect::<Result<Vec<_>>>()?;
        numbered(contenders.iter_mut().map(|one| &mut one.name));
        if !self.name.is_empty() {
            check_count("--name", self.name.len(), contenders.len(), "servers")?;
            for (one, name) in contenders.iter_mut().zip(&self.name) {
                one.name.clone_from(name);
            }
        }
        self.set_ready(&mut contenders)?;
        let mut own: Vec<_> = contenders.iter_mut().filter(|one| one.has_own_port()).collect();
        if !self.port.is_empty() {
            check_count("--port", self.port.len(), own.len(), "servers without {port}")?;
            own.iter_mut().zip(&self.port).for_each(|(one, port)| one.port = Some(*port));
        }
        Ok(contenders)
    }

    fn set_ready(&self, contenders: &mut [Contender]) -> Result<()> {
        let mut started: Vec<_> = contenders.iter_mut().filter(|one| one.is_started()).collect();
        match self.ready.as_slice() {
            [] => {}
            [line] => started.iter_mut().for_each(|one| one.ready = Some(line.clone())),
            lines => {
                check_count("--ready", lines.len(), started.len(), "servers that are started")?;
                started
                    .iter_mut()
                    .zip(lines)
                    .for_each(|(one, line)| one.ready = Some(line.clone()));
            }
        }
        Ok(())
    }

    fn loads(&self) -> Result<Vec<Load>> {
        let usual = Loads::default();
        let (connections, depth) = (&self.connections, self.pipeline.unwrap_or(usual.depth));
        let connections = if connections.is_empty() { &usual.connections } else { connections };
        let loads =
            Loads { connections: connections.clone(), depth, rate: self.rate, ..usual.clone() };
        let own = self.load.iter().map(|line| {
            let options = line.parse::<annulus_load::Options>();
            let mut options = options.with_context(|| format!("--load '{line}'"))?;
            let (url, text) = (options.target.take(), Some(line.clone()));
            let loads = Loads { url, options, text, ..loads.clone() };
            loads.split().with_context(|| format!("--load '{line}'"))
        });
        let others = self.load_command.iter().map(|line| {
            let (command, parse) = (Some(line.clone()), self.parse.clone());
            let loads = Loads { command, parse, ..loads.clone() };
            loads.split().with_context(|| format!("--load-command '{line}'"))
        });
        let mut all = own.chain(others).collect::<Result<Vec<_>>>()?;
        let mut names: Vec<String> = all.iter().map(|cells| cells[0].name()).collect();
        numbered(names.iter_mut());
        for (cells, name) in all.iter_mut().zip(names) {
            cells.iter_mut().for_each(|load| load.rename(&name));
        }
        Ok(all.concat())
    }
}

/// Sets up a comparison that a file or the command line describes.
pub(super) fn comparison_setup(comparison: Comparison, time: Duration, options: &Options) -> Setup {
    let name = comparison.name.clone();
    let [least, most] = ROUND_LIMITS;
    // The metric is filled in when the comparison is prepared.
    let precision = Some(Precision { metric: String::new(), half_width: DEFAULT_MARGIN });
    let plan = Plan { name, rounds: Rounds { least, most, precision }, seed: options.seed };
    comparison.setup(plan, time, options.cores, peers())
}

fn check_count(option: &str, given: usize, wanted: usize, what: &str) -> Result<(), UsageError> {
    let error = || {
        UsageError(format!(
            "{option} is given {given} times for {wanted} {what}: give one for each"
        ))
    };
    if given == wanted { Ok(()) } else { Err(error()) }
}

/// Appends a number to each name that has occurred before.
fn numbered<'a>(names: impl Iterator<Item = &'a mut String>) {
    let mut known: Vec<String> = Vec::new();
    for name in names {
        let same = known.iter().filter(|one| *one == name).count();
        known.push(name.clone());
        if same > 0 {
            *name += &format!("-{}", same + 1);
        }
    }
}

/// Replaces characters that are awkward in file names, and limits the length.
fn as_file_name(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
    text.chars().map(|c| if is_plain(c) { c } else { '-' }).take(100).collect()
}
