//! A comparison of servers given on the command line: its contenders and its loads.

use super::args::parse_nonzero_time;
use super::run::peers;
use super::subject::Options;
use crate::usage::{UsageError, only_with};
use annulus_lab::bench::{Plan, Precision, Rounds, Sweep, SweepLimit};
use annulus_lab::describe::{Comparison, Contender, Load, Loads, Placement, Setup};
use annulus_load::stats::DEFAULT_MARGIN;
use annulus_load::{counted, parse_number};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::fs;
use std::time::Duration;

/// The default minimum and maximum number of rounds. A cell gets further rounds, up to the maximum,
/// until its ratios are known to within ± the margin of the verdict *same*.
const ROUND_LIMITS: [usize; 2] = [15, 30];

/// The maximum number of CPUs that Linux supports on x86.
const MAX_CORES: u64 = 8192;

/// How long a slice is measured by default.
pub(super) const SLICE_TIME: Duration = Duration::from_secs(1);

/// Servers of your own
#[derive(Args, Debug)]
#[command(next_help_heading = "Servers of your own")]
pub(super) struct ServerArgs {
    /// Compare servers under this load
    ///
    /// Each NAME is then a command that starts a server, or the HOST:PORT or unix:/path of a running
    /// one. The value is a target of annulus load with its options, such as
    /// 'http://127.0.0.1:{port}/ -H "Accept: */*"'
    #[arg(long, value_name = "URL OPTIONS")]
    load: Vec<String>,
    /// Use another program as the load, such as
    /// 'wrk -t1 -c {connections} -d {seconds} http://127.0.0.1:{port}/'
    #[arg(long, value_name = "COMMAND")]
    load_command: Vec<String>,
    /// Find a number in the output of a --load-command by a regular expression whose only group is
    /// the number. The keys are rate, requests, time, errors, aborted (requests of the rate without
    /// a reply at the end), refused, mean, p50, p99 and p99.9; times may have a unit, such as
    /// p99_ms. Not needed for wrk, oha, h2load, hey, ab, gcannon, redis-benchmark and annulus load
    /// --json -
    #[arg(long, value_name = "KEY=REGEX")]
    parse: Vec<String>,
    /// Connections, a cell per number [default: 50]
    ///
    /// For --load and --load-command
    #[arg(short, long, value_name = "COUNT,…", value_delimiter = ',')]
    connections: Vec<u64>,
    /// Requests in flight each [default: 1]
    ///
    /// On each connection
    #[arg(long, value_name = "COUNT")]
    pipeline: Option<u64>,
    /// Requests per second, an open loop
    ///
    /// However fast the server is [default: as fast as replies arrive]
    #[arg(long, value_name = "PER SECOND", value_parser = parse_number)]
    rate: Option<f64>,
    /// Latency at 10 % to 120 % of the peak
    ///
    /// Each server's peak is measured first, in a closed loop. Then requests are due at 10 %, 20 % …
    /// 120 % of it, whether or not the server keeps up, and latency counts from when they were due
    #[arg(long)]
    sweep: bool,
    /// With --sweep, say up to which rate each server keeps this limit, such as p99<5ms; the
    /// latencies are mean, p50, p99 and p99.9
    #[arg(long, value_name = "LATENCY<TIME")]
    limit: Option<String>,
    /// Measure each server on each of these numbers of cores: in its command, {cores} is the
    /// number, and {cpus} is that many CPUs of the machine, such as 0,1,2. Implies --share-cores
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=MAX_CORES))]
    cores: Vec<u64>,
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
    ///
    /// In seconds, or with a unit: 300ms
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
            ("--cores", !self.cores.is_empty()),
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
        let placement = if self.share_cores || !self.cores.is_empty() {
            Placement::Shared
        } else {
            Placement::Apart
        };
        let names: Vec<&str> = contenders.iter().map(|one| one.name.as_str()).collect();
        let name = as_file_name(&names.join("+"));
        let comparison = Comparison::of(&name, contenders, loads, placement)?;
        let mut setup = comparison_setup(comparison, self.duration.unwrap_or(SLICE_TIME), options);
        setup.named_by_user = true;
        if let Some(timeout) = self.start_timeout {
            setup.start_timeout = timeout;
        }
        if self.sweep {
            setup.sweep(Sweep { limit });
        }
        Ok(setup)
    }

    fn contenders(&self, servers: &[String]) -> Result<Vec<Contender>> {
        let mut contenders = match self.cores.is_empty() {
            true => servers.iter().map(|text| without_cores(text)).collect::<Result<Vec<_>>>()?,
            false => on_cores(servers, &self.cores, online_cpus())?,
        };
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
    let rounds = Rounds { least, most, precision, until_decided: false };
    let plan = Plan { name, rounds, seed: options.seed };
    comparison.setup(plan, time, options.cores, peers())
}

/// The placeholders that `--cores` replaces.
const CORES_PLACEHOLDERS: [&str; 2] = ["{cores}", "{cpus}"];

/// Returns a server. Placeholders that require `--cores` are refused.
fn without_cores(server: &str) -> Result<Contender> {
    // Double braces are a literal.
    let is_used = |word: &&str| server.replace(&format!("{{{word}}}"), "").contains(*word);
    if let Some(word) = CORES_PLACEHOLDERS.into_iter().find(is_used) {
        bail!("{word} in '{server}' has no value: add the numbers of cores, such as --cores 1,2");
    }
    Contender::of_text(server)
}

/// Returns each server on each number of cores, named by that number.
fn on_cores(servers: &[String], counts: &[u64], available: Option<u64>) -> Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    for server in servers {
        ensure!(
            CORES_PLACEHOLDERS.iter().any(|word| server.contains(word)),
            "'{server}' has neither {{cores}} nor {{cpus}}, so it would be the same on all of them: write for example \
             'taskset -c {{cpus}} my-server {{port}}'"
        );
        for &count in counts {
            if let Some(available) = available.filter(|available| count > *available) {
                bail!("--cores {count}: this machine has {available} CPUs: leave it out");
            }
            let cpus = (0..count).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
            let text = server.replace("{cores}", &count.to_string()).replace("{cpus}", &cpus);
            let mut contender = Contender::of_text(&text)?;
            let cores = counted(count, "core");
            contender.name = match servers.len() {
                1 => cores,
                _ => format!("{} on {cores}", contender.name),
            };
            contenders.push(contender);
        }
    }
    Ok(contenders)
}

/// Returns the number of CPUs of the machine, including those that this process may not use. CPUs
/// that are offline count if a CPU with a higher number is online.
fn online_cpus() -> Option<u64> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let last = online.trim().rsplit([',', '-']).next()?.parse::<u64>().ok()?;
    Some(last + 1)
}

fn check_count(option: &str, given: usize, wanted: usize, what: &str) -> Result<(), UsageError> {
    let error = || {
        UsageError(format!(
            "the numbers of {option} ({given}) and of {what} ({wanted}) differ: give one for each"
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(servers: &[&str], counts: &[u64]) -> Result<Vec<String>> {
        let servers: Vec<String> = servers.iter().map(|text| (*text).to_owned()).collect();
        let contenders = on_cores(&servers, counts, Some(8))?;
        Ok(contenders.into_iter().map(|one| one.name).collect())
    }

    #[test]
    fn each_server_is_measured_on_each_number_of_cores() {
        let one = "taskset -c {cpus} server --workers {cores} --port {port}";
        assert_eq!(names(&[one], &[1, 2, 8]).unwrap(), ["1 core", "2 cores", "8 cores"]);
        let two = names(&["a {port} {cores}", "b {port} {cores}"], &[1, 2]).unwrap();
        assert_eq!(two, ["a on 1 core", "a on 2 cores", "b on 1 core", "b on 2 cores"]);
        let error = names(&["server {port}"], &[1]).unwrap_err().to_string();
        assert!(error.starts_with("'server {port}' has neither {cores} nor {cpus}"), "{error}");
        let error = names(&["server {port} {cores}"], &[9]).unwrap_err().to_string();
        assert_eq!(error, "--cores 9: this machine has 8 CPUs: leave it out");
        let error = without_cores("taskset -c {cpus} a {port}").unwrap_err().to_string();
        assert!(error.ends_with("has no value: add the numbers of cores, such as --cores 1,2"));
        assert!(without_cores("a {{cores}} {port}").is_ok(), "double braces are a literal");
        assert!(online_cpus().is_some_and(|count| count > 0));
    }
}
