//! Whole programs under clients: comparisons of programs, and servers of the reader's own.
//!
//! A [`Comparison`] is data, of a file or a command line: servers, each a command line or the address of one that runs, and [`Load`]s,
//! each a client with its connections: ours, or a program whose output is read by a [`Parser`]. Servers are pinned to a core; the client
//! runs on another, unless they [share](Placement) all. CPU time is that of a server and of what it has started, in the measured window: of a client that is a program from
//! its start to its end; requests and latency are those that the client reports. The first server runs a second time as the control; one
//! that can run only once, as its port is always the same or it runs already, is measured twice instead.

mod client;
mod comparison;
mod contender;
mod fixture;
mod installed;
mod load;
mod placement;
mod recipe;
mod servers;
mod syscalls;
mod words;

use std::time::Duration;

use annulus_load::limits;
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::bench::{
    Bench, Contenders, Format, Formula, Layout, Metric, Plan, Prepared, Role, client_cpu, cpu,
    mean, p50, p99, p99_9, parameters, requests, with_ratio,
};
use crate::cores::Cores;
use crate::peer::Peers;
use crate::scratch::Scratch;

pub use crate::server::START_TIMEOUT;
pub use client::{Client, Parser, PlanParser};
pub use comparison::Comparison;
pub use contender::Contender;
pub use load::{Load, Loads, Pace};
pub use placement::Placement;

use client::Clients;
use fixture::Fixture;
use recipe::Recipe;
use servers::Servers;
use syscalls::PERF;

/// A comparison, and how it is measured.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The comparison.
    pub comparison: Comparison,
    /// Its rounds.
    pub plan: Plan,
    /// How long a slice is measured; in whole seconds, rounded up, by clients that count those.
    pub time: Duration,
    /// How long a server may take to be ready, unless it announces its address.
    pub start_timeout: Duration,
    /// The cores of servers and clients.
    pub cores: Cores,
    /// The peers.
    pub peers: Option<Peers>,
    /// Parses what our load is told.
    pub parse: PlanParser,
    /// Whether every server is loaded shortly before the first round, and must answer; and whether none may be missing.
    pub is_strict: bool,
}

impl Setup {
    /// Builds the servers and starts them.
    ///
    /// # Errors
    /// If a server cannot be built or started, or no server or no load is left.
    pub fn prepare(self) -> Result<Prepared> {
        let Setup { comparison, mut plan, time, start_timeout, cores, peers, parse, is_strict } =
            self;
        let scratch = Scratch::within(&std::env::temp_dir())
            .context("cannot make a directory for servers and clients: set TMPDIR elsewhere")?;
        let (directory, seconds) = (scratch.path().to_owned(), time.as_secs_f64());
        let (placement, unpinned) = comparison.placed();
        let (server, client) = (placement.server(cores), placement.load(cores));
        let clients = Clients { core: client, time, directory: directory.clone(), parse };
        comparison.loads.iter().try_for_each(|load| clients.check(load))?;
        let (loads, mut missing) = available(&comparison.loads)?;
        // Servers inherit the limit on open files: a proxy has two for each connection.
        let connections = loads.iter().map(|load| load.connections).max().unwrap_or_default();
        limits::reserve(2 * connections as usize)?;
        let (mut contenders, mut recipes) = gather(&comparison, peers.as_ref(), server)?;
        missing.splice(0..0, contenders.missing);
        if let Some(why) = missing.first().filter(|_| is_strict) {
            anyhow::bail!("{why}");
        }
        missing.extend(unpinned);
        missing.extend(not_counted(&recipes));
        contenders.missing = missing;
        recipes.iter_mut().for_each(|recipe| recipe.timeout = start_timeout);
        let is_open = loads.iter().any(|load| matches!(load.pace, Pace::Rate(_) | Pace::Share(_)));
        let metrics = metrics(recipes.iter().all(Recipe::is_visible), is_open, &mut plan);
        let service = if is_open { "; service: p99.9 from the send" } else { "" };
        let needs_target = recipes.iter().any(|recipe| recipe.needs("target"));
        let target = (needs_target, placement.target(cores));
        let fixture = Fixture::new(&directory, &comparison.site, target)?;
        let cells = loads.iter().map(Load::cell).collect();
        let commands: Vec<_> = loads.iter().map(|load| load.client.words().join(" ")).collect();
        let mut measure =
            Servers::start(recipes, contenders.baseline_index(), loads, clients, fixture)?;
        if is_strict {
            measure.try_out()?;
        }
        let bench = Bench {
            plan,
            terms: format!(" of {seconds} s, {}", placement.terms(cores)),
            legend: format!(
                "; CPU µs: of the server, a request; calls: the server's system calls, a request{service}"
            ),
            layout: Layout::Cells,
            contenders,
            cells,
            metrics,
            idle: None,
            cores: (placement != Placement::Shared).then_some(cores),
            parameters: parameters(json!({
                "comparison": comparison.name, "title": comparison.title, "loads": commands, "seconds": seconds,
                "server_core": server, "load_core": client,
            })),
        };
        Ok(Prepared { bench, measure: Box::new(measure), scratch: Some(scratch) })
    }

    /// About how long a slice takes.
    pub fn cost(&self) -> Duration {
        /// To start and to end a client.
        const CLIENT: Duration = Duration::from_millis(80);
        self.time + CLIENT
    }
}

/// The metrics. If the CPU time of a server cannot be seen, requests a second decide instead. In an open loop, p99.9 from the send to the answer
/// takes the place of the mean: what does not include the client's own queue.
fn metrics(are_visible: bool, is_open: bool, plan: &mut Plan) -> Vec<Metric> {
    let calls = Metric::plain("syscalls", "calls", Formula::number("syscalls"));
    let (mut rate, mut cpu) = (requests(), cpu());
    cpu = Metric { role: Role::Primary, columns: with_ratio(), format: Format::Significant, ..cpu };
    if !are_visible {
        (rate.role, cpu.role) = (Role::Primary, Role::Compared);
        plan.rounds.precision.iter_mut().for_each(|one| one.metric.clone_from(&rate.key));
    }
    let calls = Metric { format: Format::Decimals(2), ..calls };
    let served = Metric::plain("service_p99_9_us", "service", Formula::number("service_p99_9_us"));
    let served = Metric { format: Format::Micros, ..served };
    vec![
        rate,
        cpu,
        calls,
        if is_open { served } else { mean() },
        p50(),
        p99(),
        p99_9(),
        client_cpu(),
    ]
}

/// The servers that are available, with the control, and how to start each.
fn gather(
    comparison: &Comparison,
    peers: Option<&Peers>,
    core: Option<usize>,
) -> Result<(Contenders, Vec<Recipe>)> {
    let (mut recipes, mut absent) = (Vec::new(), Vec::new());
    let found = comparison.contenders.iter().map(|contender| {
        let found = contender.prepare(peers, core)?;
        Ok(match found {
            Ok(recipe) => {
                let spec = recipe.spec.clone();
                recipes.push(recipe);
                Ok(spec)
            }
            Err(why) => {
                absent.push(contender.name.clone());
                Err(why)
            }
        })
    });
    let mut contenders = Contenders::gather(found, Some(&comparison.baseline))?;
    contenders.absent = absent;
    if let Some(control) = &contenders.control {
        recipes.push(recipes[0].named(control));
    }
    Ok((contenders, recipes))
}

/// The loads with a client that is installed, and what is left out for want of a program.
fn available(loads: &[Load]) -> Result<(Vec<Load>, Vec<String>)> {
    let (mut left, mut missing) = (Vec::new(), Vec::new());
    for load in loads {
        match load.client.missing() {
            None => left.push(load.clone()),
            Some(why) => missing.push(format!("load {} is left out: {why}", load.name)),
        }
    }
    ensure!(!left.is_empty(), "no load is left: {}", missing.join("; "));
    Ok((left, missing))
}

/// What cannot be counted, and why.
fn not_counted(recipes: &[Recipe]) -> Vec<String> {
    let perf =
        installed::find(PERF).err().map(|why| format!("system calls are not counted: {why}"));
    let hidden = recipes.iter().take(recipes.len() - 1).filter(|recipe| !recipe.is_visible()).map(|recipe| {
        format!(
            "CPU time and memory of {} are not known: no process of this user listens there; requests/s decide",
            recipe.spec.name
        )
    });
    perf.into_iter().chain(hidden).collect()
}
