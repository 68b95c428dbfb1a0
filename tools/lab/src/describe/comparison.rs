//! A comparison as data: servers and loads, from a file or a command line.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use annulus_load::files::{self, MAX_INPUT_BYTES};
use annulus_load::without_type_names;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::json;
use toml::Spanned;

use super::contender::Contender;
use super::load::{Client, Load, Loads, Pace};
use super::placeholders::has;
use super::placement::Placement;
use super::setup::{MissingPolicy, Presentation, Setup};
use crate::bench::{
    Column, Format, Formula, MIN_RATE_RATIO, Metric, Plan, Role, SYSTEM_CALLS_KEY, client_cost,
    client_cpu, cpu, mean, p50, p99, p99_9, parameters, rate, requests, subscriber_bytes,
    with_ratio,
};
use crate::cores::Cores;
use crate::file_system;
use crate::peer::Peers;
use crate::tables::{Kind, Suite, Table};
use crate::usage_error::{UsageError, distinct, one_line};

/// The number of rounds in which one process of a server is measured. New processes keep the memory
/// layout of a single process from deciding the result.
const ROUNDS_PER_PROCESS: usize = 4;

/// The time to start and end a client.
const CLIENT_OVERHEAD: Duration = Duration::from_millis(80);

/// The files that come with the lab, by name: published tables, and comparisons with other
/// programs.
const CATALOGUE: [(&str, &str); 25] = [
    ("bench-echo", include_str!("../../catalogue/bench-echo.toml")),
    ("fibers", include_str!("../../catalogue/fibers.toml")),
    ("file", include_str!("../../catalogue/file.toml")),
    ("go-uring", include_str!("../../catalogue/go-uring.toml")),
    ("nop", include_str!("../../catalogue/nop.toml")),
    ("op-modes", include_str!("../../catalogue/op-modes.toml")),
    ("tcp", include_str!("../../catalogue/tcp.toml")),
    ("udp", include_str!("../../catalogue/udp.toml")),
    ("http", include_str!("../../catalogue/http.toml")),
    ("https", include_str!("../../catalogue/https.toml")),
    ("axum-2", include_str!("../../catalogue/axum-2.toml")),
    ("files", include_str!("../../catalogue/files.toml")),
    ("store", include_str!("../../catalogue/store.toml")),
    ("fan-out", include_str!("../../catalogue/fan-out.toml")),
    ("pieces", include_str!("../../catalogue/pieces.toml")),
    ("proxy", include_str!("../../catalogue/proxy.toml")),
    ("proxy-2", include_str!("../../catalogue/proxy-2.toml")),
    ("overload", include_str!("../../catalogue/overload.toml")),
    ("reads", include_str!("../../catalogue/reads.toml")),
    ("kv", include_str!("../../catalogue/kv.toml")),
    ("arrival", include_str!("../../catalogue/arrival.toml")),
    ("kv-arrival", include_str!("../../catalogue/kv-arrival.toml")),
    ("log", include_str!("../../catalogue/log.toml")),
    ("clients", include_str!("../../catalogue/clients.toml")),
    ("clients-h2", include_str!("../../catalogue/clients-h2.toml")),
];

/// The content of a comparison file.
#[derive(Clone, Debug)]
pub enum Description {
    /// Servers and loads.
    Comparison(Comparison),
    /// Published tables.
    Suite(Suite),
}

/// Servers to compare, and the loads on them. In a file:
///
/// ```toml
/// title = "two file servers"
///
/// [[server]]
/// command = "nginx -e stderr -c {configuration}"
/// configuration = "a.conf"                 # next to this file; its placeholders are replaced too
///
/// [[server]]
/// name = "python"
/// command = "python3 -m http.server {port} --bind 127.0.0.1 --directory {site}"
/// ready = "Serving HTTP"
///
/// [[load]]
/// url = "http://127.0.0.1:{port}/4k"       # requested by the built-in client, `annulus load`
/// connections = [1, 50]
///
/// [site]
/// 4k = 4096                                # a file of this many random bytes
/// ```
///
/// [`Contender`] documents the keys of a server, and [`Loads`] the keys of a load.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The name of the file.
    pub name: String,
    /// What is compared, in a few words.
    pub title: String,
    /// The servers; each is compared with the baseline.
    pub contenders: Vec<Contender>,
    /// The server that ratios refer to; the first one by default.
    pub baseline: String,
    /// The loads on the servers.
    pub loads: Vec<Load>,
    /// Files in the directory `{site}`, with their sizes in bytes.
    pub site: BTreeMap<String, u64>,
    /// The cores that servers and clients run on.
    pub placement: Placement,
}

/// A file. `kind`, `document`, `machine`, `commands` and `[[table]]` belong to published tables,
/// `title` to both, and the other keys to comparisons.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    server: Vec<Spanned<Contender>>,
    #[serde(default)]
    baseline: String,
    #[serde(default)]
    load: Vec<Spanned<Loads>>,
    #[serde(default)]
    site: BTreeMap<String, u64>,
    #[serde(default)]
    placement: Placement,
    kind: Option<Kind>,
    #[serde(default)]
    document: String,
    #[serde(default)]
    machine: Vec<String>,
    #[serde(default)]
    commands: Vec<String>,
    #[serde(default)]
    table: Vec<Table>,
}

impl Description {
    /// Returns the names of the files that come with the lab.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CATALOGUE.iter().map(|(name, _)| *name)
    }

    /// Returns the file with this name that comes with the lab.
    pub fn find(name: &str) -> Option<Description> {
        let (name, text) = CATALOGUE.iter().find(|(known, _)| *known == name)?;
        Some(Description::parse(name, text).expect("a file of the catalogue is invalid"))
    }

    /// Returns the comparison, or `None` for published tables.
    pub fn comparison(self) -> Option<Comparison> {
        match self {
            Description::Comparison(comparison) => Some(comparison),
            Description::Suite(_) => None,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A [`UsageError`] with the file and why it cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Description> {
        let read = || {
            let text = files::read_text(path, MAX_INPUT_BYTES)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let mut described = Description::parse(&name, &text)?;
            if let Description::Comparison(comparison) = &mut described {
                let directory = path.parent().unwrap_or(Path::new(""));
                let contenders = comparison.contenders.iter_mut();
                contenders.for_each(|one| one.directory = Some(directory.to_owned()));
            }
            anyhow::Ok(described)
        };
        read().map_err(|why| UsageError(format!("{}: {why:#}", path.display())).into())
    }

    /// Parses and checks the text of a file.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Description> {
        let at = |at: usize| {
            let (number, line) = line_at(text, at);
            format!("line {number}, `{line}`")
        };
        let file: File = toml::from_str(text).map_err(|error| {
            let place = error.span().map_or("the file".into(), |span| at(span.start));
            anyhow!("{place}: {}", without_type_names(error.message()).replace('\n', " "))
        })?;
        let File { title, server, baseline, load, site, placement, .. } = file;
        if let Some(kind) = file.kind {
            ensure!(
                server.is_empty() && load.is_empty(),
                "kind is for published tables, which list their own servers: remove [[server]] and [[load]]"
            );
            let File { document, machine, commands, table: tables, .. } = file;
            let suite = Suite { title, document, kind, machine, commands, tables };
            return suite.checked().map(Description::Suite).map_err(|why| anyhow!(one_line(why)));
        }
        ensure!(file.table.is_empty(), "[[table]] needs a kind: echo, connect, udp, nop or file");
        let (mut contenders, mut loads) = (Vec::new(), Vec::new());
        for entry in server {
            let place = entry.span().start;
            contenders.push(entry.into_inner().checked().with_context(|| at(place))?);
        }
        for entry in load {
            let place = entry.span().start;
            loads.extend(entry.into_inner().split().with_context(|| at(place))?);
        }
        let name = name.into();
        Comparison { name, title, contenders, baseline, loads, site, placement }
            .checked()
            .map(Description::Comparison)
    }
}

impl Comparison {
    /// Returns how to install the missing servers and clients.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        let servers = self.contenders.iter().filter_map(Contender::missing);
        servers.chain(self.loads.iter().filter_map(|load| load.client.missing()))
    }

    /// Creates a comparison of these servers under these loads. The first server is the baseline.
    ///
    /// # Errors
    /// A [`UsageError`] if the comparison cannot be measured, or would measure all servers as one.
    pub fn of(
        name: &str,
        contenders: Vec<Contender>,
        loads: Vec<Load>,
        placement: Placement,
    ) -> Result<Comparison> {
        let (baseline, site) = (String::new(), BTreeMap::new());
        let title = "servers of a command line".to_owned();
        let name = name.to_owned();
        let comparison = Comparison { name, title, contenders, baseline, loads, site, placement };
        comparison.checked().map_err(|why| UsageError(format!("{why:#}")).into())
    }

    fn checked(mut self) -> Result<Comparison> {
        ensure!(
            !self.contenders.is_empty(),
            "no server: add [[server]] with a command or an address"
        );
        ensure!(!self.loads.is_empty(), "no load: add [[load]] with a url, a command or a job");
        let names: Vec<_> = self.contenders.iter().map(|one| &one.name).collect();
        distinct(&names, |name| format!("the server name '{name}'"))?;
        distinct_loads(&self.loads)?;
        if self.has_jobs() {
            ensure!(
                self.loads.iter().all(Load::is_job),
                "a server either serves or reads jobs: give all loads a job, or none"
            );
            let running = self.contenders.iter().find(|one| !one.is_started());
            ensure!(
                running.is_none(),
                "server '{}' already runs, and cannot read jobs: write its command",
                running.map_or("", |one| &one.name)
            );
            let listening = self.contenders.iter().find(|one| !one.has_own_port());
            ensure!(
                listening.is_none(),
                "server '{}' reads jobs, so {{port}} in its command has no effect: remove it",
                listening.map_or("", |one| &one.name)
            );
            self.contenders = self.contenders.into_iter().map(Contender::answering_jobs).collect();
        }
        if self.baseline.is_empty() {
            self.baseline.clone_from(&self.contenders[0].name);
        }
        let names = || self.contenders.iter().map(|one| one.name.as_str()).collect::<Vec<_>>();
        if !names().contains(&self.baseline.as_str()) {
            bail!(
                "baseline '{}' is not a server; the servers are {}",
                self.baseline,
                names().join(", ")
            );
        }
        self.check_clients()?;
        for file in self.site.keys() {
            let is_plain = !file.is_empty() && !file.contains('/') && file != "." && file != "..";
            ensure!(is_plain, "site '{file}' is not a file name: write one without a slash");
        }
        let remote = self.contenders.iter().find(|one| one.is_remote());
        for load in &self.loads {
            load.check_remote(remote.map(|one| one.name.as_str()))
                .with_context(|| format!("load '{}'", load.name()))?;
        }
        Ok(self)
    }

    /// Returns true if slices may take a fraction of a second: each client is a closed loop of ours
    /// or takes a number of requests. Other programs need whole seconds, and in an open loop or a
    /// broadcast, a short slice has too few latencies.
    pub fn allows_short_slices(&self) -> bool {
        self.loads.iter().all(|load| match &load.client {
            Client::Own { .. } => load.pace == Pace::Closed,
            Client::Command { words, .. } => has(words, "requests"),
            Client::FanOut { .. } | Client::Job(_) | Client::OfContender => false,
        })
    }

    /// Returns true if the servers read jobs.
    fn has_jobs(&self) -> bool {
        self.loads.iter().any(Load::is_job)
    }

    /// Returns true if the clients of the servers are compared, not the servers.
    fn compares_clients(&self) -> bool {
        self.contenders.iter().any(|one| one.client.is_some())
    }

    /// Checks that either all servers have a client of their own, or all loads have one.
    fn check_clients(&self) -> Result<()> {
        let lacks = self.contenders.iter().find(|one| one.client.is_none());
        for load in &self.loads {
            match (&load.client, self.compares_clients(), lacks) {
                (Client::OfContender, false, _) => bail!(
                    "load '{}' has no url, command or job: add one, or a client to each server",
                    load.name()
                ),
                (Client::OfContender, true, Some(one)) => {
                    bail!("server '{}' has no client, but others have one: add it", one.name)
                }
                (Client::OfContender, true, None) => {}
                (_, true, _) => bail!(
                    "load '{}' and servers both have a client: remove one of them",
                    load.name()
                ),
                (_, false, _) => {}
            }
            for one in &self.contenders {
                load.with_client_of(one).with_context(|| format!("server '{}'", one.name))?;
            }
        }
        Ok(())
    }

    /// Returns the placement, and why it differs from the requested one. A server that is already
    /// running is not pinned. If it is compared with one that is started, nothing is pinned,
    /// because otherwise one of two identical programs would win.
    fn placed(&self) -> (Placement, Option<String>) {
        let running = self.contenders.iter().find(|one| !one.is_started());
        let is_mixed = self.contenders.iter().any(Contender::is_started);
        match running.filter(|_| is_mixed && self.placement != Placement::Shared) {
            Some(one) => {
                let why = format!("{} runs already, so nothing is pinned to a core", one.name);
                (Placement::Shared, Some(why))
            }
            None => (self.placement, None),
        }
    }

    /// Returns the comparison, ready to be measured in these rounds, in slices of this time, on
    /// these cores.
    pub fn setup(self, plan: Plan, time: Duration, cores: Cores, peers: Option<Peers>) -> Setup {
        let ((placement, unpinned), mut plan) = (self.placed(), plan);
        let has_jobs = self.has_jobs();
        let Comparison { name, title, contenders, baseline, mut loads, site, .. } = self;
        loads.iter_mut().for_each(|load| load.set_time(time, CLIENT_OVERHEAD));
        let is_open = loads.iter().any(|load| load.pace != Pace::Closed);
        let are_visible = contenders.iter().all(Contender::is_visible);
        let compares_clients = contenders.iter().any(|one| one.client.is_some());
        let mut metrics = match (has_jobs, compares_clients) {
            (true, _) => job_metrics(),
            (false, true) => client_metrics(),
            (false, false) => metrics(are_visible, is_open, &mut plan),
        };
        let is_broadcast = loads.iter().any(|load| matches!(load.client, Client::FanOut { .. }));
        metrics.extend(is_broadcast.then(subscriber_bytes));
        let broadcast = if is_broadcast {
            "; a request is a message at one subscriber; latency: until the last subscriber has it"
        } else {
            ""
        };
        let service = if is_open { "; service: p99.9 from the send" } else { "" };
        let seconds = time.as_secs_f64();
        let place = match has_jobs {
            true => format!("all on core {}", cores.server),
            false => placement.terms(cores),
        };
        let shown = Presentation {
            kind: "programs",
            title: Some(title.clone()),
            terms: format!(" of {seconds} s, {place}{}", cores.shown_awake()),
            legend: match (has_jobs, compares_clients) {
                (true, _) => "; CPU µs: of all threads, per operation".into(),
                (_, true) => "; CPU µs per request: of the client, from its start to its end, and of the server".into(),
                (false, false) => format!(
                    "; CPU µs: of the server, per request; calls: the server's system calls per request{service}{broadcast}"
                ),
            },
            metrics,
            parameters: parameters(json!({
                "comparison": name, "title": title, "seconds": seconds,
                "server_core": placement.server(cores), "load_core": placement.load(cores),
            })),
        };
        Setup {
            contenders,
            baseline: Some(baseline),
            files: loads.iter().map(open_files).max().unwrap_or_default(),
            loads,
            site,
            placement,
            missing: MissingPolicy::Refuse,
            check: has_jobs.then_some(|_, directory| file_system::name(directory)),
            notes: unpinned.into_iter().collect(),
            rounds_per_process: ROUNDS_PER_PROCESS,
            ..Setup::new(plan, time, cores, peers, shown)
        }
    }
}

/// Returns the number of open files that a load needs here or in a server, which inherits the
/// limit: a proxy has two per connection, and a broadcast has one.
fn open_files(load: &Load) -> u64 {
    match load.client {
        Client::FanOut { .. } => load.connections,
        _ => 2 * load.connections,
    }
}

/// Returns the metrics. If the CPU time of a server is not visible, requests per second decide
/// instead. In an open loop, p99.9 of the service time replaces the mean, because it excludes the
/// queue in the client.
fn metrics(are_visible: bool, is_open: bool, plan: &mut Plan) -> Vec<Metric> {
    let calls = Metric::plain(SYSTEM_CALLS_KEY, "calls", Formula::number(SYSTEM_CALLS_KEY));
    let (mut rate, mut cpu) = (requests(), cpu());
    cpu = Metric { role: Role::Primary, columns: with_ratio(), format: Format::Significant, ..cpu };
    if !are_visible {
        (rate.role, cpu.role) = (Role::Primary, Role::Compared);
        plan.rounds.precision.iter_mut().for_each(|one| one.metric.clone_from(&rate.key));
    }
    let calls = Metric { format: Format::Decimals(2), ..calls };
    let served = Metric::plain("service_p99_9_us", "service", Formula::number("service_p99_9_us"));
    let served = Metric { format: Format::Micros, ..served };
    let time = if is_open { served } else { mean() };
    vec![rate, cpu, calls, time, p50(), p99(), p99_9(), client_cpu()]
}

/// Returns the metrics for contenders that read jobs.
fn job_metrics() -> Vec<Metric> {
    let rate = Metric { role: Role::Guard(MIN_RATE_RATIO), columns: with_ratio(), ..rate() };
    let cpu =
        Metric { role: Role::Primary, columns: with_ratio(), format: Format::Significant, ..cpu() };
    vec![rate, cpu, p50(), p99(), p99_9()]
}

/// Returns the metrics for clients. Each reports latencies in its own way, so they decide nothing.
fn client_metrics() -> Vec<Metric> {
    let server = Metric { noun: String::new(), columns: vec![Column::Value], ..cpu() };
    let server = Metric { title: "server CPU µs".into(), format: Format::Significant, ..server };
    let plain =
        |metric: Metric| Metric { role: Role::Plain, columns: vec![Column::Value], ..metric };
    vec![requests(), client_cost(), server, plain(p50()), plain(p99()), client_cpu()]
}

fn distinct_loads(loads: &[Load]) -> Result<(), UsageError> {
    let cells: Vec<_> = loads.iter().map(|load| &load.cell).collect();
    distinct(&cells, |cell| format!("the load {cell}"))
}

/// Returns the number and the text of the line at a byte offset.
fn line_at(text: &str, at: usize) -> (usize, &str) {
    let before = &text[..at.min(text.len())];
    let number = before.matches('\n').count() + 1;
    (number, text.lines().nth(number - 1).unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(text: &str) -> Result<Comparison> {
        Ok(Description::parse("small", text)?.comparison().expect("the file is a suite"))
    }

    /// A part of [`SMALL`], and [`JOBS`], which servers that read jobs need instead.
    const JOBLESS: &str = "[[server]]\nname = \"b\"\naddress = \"127.0.0.1:80\"\n\
        [[load]]\nurl = \"http://127.0.0.1:{port}/\"\nconnections = [1, 50]\n";
    const JOBS: &str = "[[load]]\njob = \"go {seconds}\"\ndepth = 1\n";

    const SMALL: &str = "title = \"t\"\n\
        [[server]]\ncommand = \"a --port {port} -v\"\n\
        [[server]]\nname = \"b\"\naddress = \"127.0.0.1:80\"\n\
        [[load]]\nurl = \"http://127.0.0.1:{port}/\"\nconnections = [1, 50]\n\
        [site]\n4k = 4096\n";

    #[test]
    fn every_catalogue_file_is_complete() {
        let all = Description::names()
            .map(|name| (name, Description::find(name).expect("the catalogue lacks the name")));
        let counts: Vec<_> = all
            .filter_map(|(name, described)| match described {
                Description::Comparison(one) => {
                    Some((name, one.contenders.len(), one.loads.len(), one.baseline))
                }
                Description::Suite(_) => None,
            })
            .collect();
        let expected = [
            ("http", 7, 6, "tokio"),
            ("https", 5, 4, "tokio"),
            ("axum-2", 3, 4, "tokio"),
            ("files", 6, 3, "nginx"),
            ("store", 5, 9, "redis-server"),
            ("fan-out", 12, 24, "tokio-gathering"),
            ("pieces", 7, 6, "tokio-gathering"),
            ("proxy", 7, 5, "haproxy"),
            ("proxy-2", 5, 2, "haproxy"),
            ("overload", 7, 4, "haproxy"),
            ("reads", 10, 9, "tokio"),
            ("kv", 5, 8, "tokio"),
            ("arrival", 6, 6, "tokio"),
            ("kv-arrival", 5, 6, "tokio"),
            ("log", 5, 3, "tokio"),
            ("clients", 4, 8, "annulus"),
            ("clients-h2", 2, 6, "annulus"),
        ];
        assert_eq!(
            counts,
            expected.map(|(name, servers, loads, base)| (name, servers, loads, base.to_owned()))
        );
        assert!(Description::find("gopher").is_none());
    }

    #[test]
    fn a_file_has_servers_and_a_cell_for_each_number_of_connections() {
        let comparison = small(SMALL).expect("the comparison is invalid");
        let names: Vec<_> = comparison.contenders.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((names, comparison.baseline.as_str()), (vec!["a", "b"], "a"));
        let cells: Vec<_> = comparison.loads.iter().map(|load| load.cell.to_string()).collect();
        assert_eq!(cells, ["http × 1 connection × depth 1", "http × 50 connections × depth 1"]);
    }

    /// If only one of two servers were pinned, their comparison would be unfair.
    #[test]
    fn nothing_is_pinned_if_only_one_server_already_runs() {
        let comparison = small(SMALL).expect("the comparison is invalid");
        let (placement, why) = comparison.placed();
        assert_eq!(placement, Placement::Shared);
        assert_eq!(why.as_deref(), Some("b runs already, so nothing is pinned to a core"));
        for index in [0, 1] {
            let mut alike = comparison.clone();
            alike.contenders.remove(index);
            assert_eq!(alike.placed(), (Placement::Apart, None));
        }
    }

    #[test]
    fn errors_in_a_file_name_their_line() {
        for (from, to, parts) in [
            ("title", "titel", &["line 1, `titel = \"t\"`", "unknown field `titel`"][..]),
            ("address =", "adress =", &["line 6", "unknown field `adress`"]),
            ("[1, 50]", "[1, 0]", &["connections", "0"]),
            ("[1, 50]", "\"many\"", &["line 9"]),
            ("[1, 50]", "[50, 50]", &["http × 50 connections × depth 1 is given twice"]),
            ("[1, 50]", "50\nrate = 5.0\nshare = 0.5", &["line 7", "rate and share"]),
            (
                "{port} -v",
                "{prot} -v",
                &["line 2", "unknown placeholder {prot}: known placeholders are {port}, "],
            ),
            ("{port}/\"", "80/\"", &["line 7", "has neither {port} nor {address}"]),
            ("name = \"b\"", "name = \"a\"", &["the server name 'a' is given twice"]),
            ("name = \"b\"", "command = \"b\"", &["line 4", "command and address"]),
            ("127.0.0.1:80\"", "10.0.0.1:80\"", &["load 'http'", "write {address}"]),
            ("127.0.0.1:80\"", "somewhere\"", &["line 4", "address 'somewhere'"]),
            ("a --port {port} -v", "a 'b", &["line 2", "unterminated quote"]),
            (
                "title = \"t\"",
                "title = \"t\"\nbaseline = \"c\"",
                &["baseline 'c'", "the servers are a, b"],
            ),
            ("4k =", "\"../k\" =", &["site '../k'"]),
            (JOBLESS, JOBS, &["server 'a' reads jobs, so {port} in its command has no effect"]),
        ] {
            let text = SMALL.replace(from, to);
            assert_ne!(text, SMALL, "{from}");
            let error = format!("{:#}", small(&text).expect_err(to));
            assert!(parts.iter().all(|part| error.contains(part)), "{to}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error =
            Description::read(Path::new("/no/such.toml")).expect_err("a missing file was read");
        assert!(
            error.is::<UsageError>() && error.to_string().starts_with("/no/such.toml: No such"),
            "{error}"
        );
    }
}
