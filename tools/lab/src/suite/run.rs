//! Measures a suite: its bench, its cells, and the figures of a report.

use std::time::Duration;

use annulus_load::{Options, limits};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::report::SuiteReport;
use crate::bench::{self, Bench, Cell, Metric, Rounds, SYSTEM_CALLS_KEY};
use crate::cores::Cores;
use crate::describe::{Load, MissingPolicy, Setup};
use crate::echo::{self, Catalogue, Echo, Transport};
use crate::file::{self, Cycles};
use crate::nop;
use crate::peer::Peers;
use crate::proc::Memory;
use crate::programs::Definition;
use crate::tables::{Figure, Kind, Question, Suite};
use annulus_load::stats::median;

/// How long a slice of a server is usually measured. On a shared machine, a slow period begins or
/// ends within seconds. So short slices are closer to what they are compared with, and there can be
/// more of them.
const SLICE_TIME: Duration = Duration::from_millis(50);

/// How long a server is under load before it is measured.
const WARM_UP: Duration = Duration::from_millis(20);

/// How long a slow server takes for a request, and how many bytes it echoes per second.
const SLOW_REQUEST: Duration = Duration::from_micros(25);
const SLOW_BYTES_PER_SECOND: f64 = 8e8;

/// The longest time to which a slice is extended. A server that needs longer leaves connections
/// without a byte for so long that the load gives them up.
const MAX_EXTENDED_TIME: Duration = Duration::from_secs(5);

/// Roughly how long a quick run may take.
const QUICK_RUN_TIME: Duration = Duration::from_secs(50);

/// How long servers idle before their memory is read again, in normal and quick runs. Annulus's
/// servers release unused memory sooner.
const IDLE_TIMES: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(12)];

/// The bytes of a MB in the documents. [`DOCUMENT_RUN_SECONDS`] is the length of a run in the
/// document that lists the megabytes moved.
const BYTES_PER_MB: f64 = (1 << 20) as f64;
const DOCUMENT_RUN_SECONDS: f64 = 30.0;

/// The plan of a suite's run.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct SuitePlan {
    /// The cores of servers and load.
    #[serde(flatten)]
    pub cores: Cores,
    /// Whether to shorten the run to about a minute.
    pub quick: bool,
    /// Number of times that each contender is measured in each cell; the minimum if cells are
    /// measured until their verdict is decided.
    pub rounds: usize,
    /// The seed for the order of slices and the payload.
    pub seed: u64,
}

impl SuitePlan {
    /// Returns the normal duration, or the shorter one in a quick run.
    fn time(&self, [usual, quick]: [Duration; 2]) -> Duration {
        if self.quick { quick } else { usual }
    }
}

/// A suite, its plan, and notes for the report, such as which parts were omitted.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteRun {
    pub(super) name: String,
    pub(super) suite: Suite,
    pub(super) plan: SuitePlan,
    pub(super) notes: Vec<String>,
}

impl SuiteRun {
    /// Creates a run of this suite.
    pub fn new(name: &str, suite: Suite, plan: SuitePlan) -> SuiteRun {
        SuiteRun { name: name.to_owned(), suite, plan, notes: Vec::new() }
    }

    /// Returns the suite.
    pub fn suite(&self) -> &Suite {
        &self.suite
    }

    /// Returns the comparison that measures the suite. Adds notes about unknown contenders and
    /// cells that cannot be measured here.
    ///
    /// # Errors
    /// If no contender or cell is left.
    pub fn setup(&mut self, catalogue: Catalogue) -> Result<Setup> {
        let setup = match self.suite.kind {
            Kind::Echo | Kind::Connect | Kind::Udp => self.echo(catalogue)?,
            Kind::Nop => {
                let cells = self.every(|q| q.of.entries.map(nop::cell).into_iter().collect());
                self.programs(&nop::BENCH, cells, catalogue.into_peers())?
            }
            Kind::File => {
                let cells = self.every(|q| cycles(q).map(Cycles::cell).into_iter().collect());
                self.programs(&file::BENCH, cells, catalogue.into_peers())?
            }
        };
        let mut setup = Setup { missing: MissingPolicy::LeaveOutBroken, ..setup };
        setup.shown.title = Some(format!("{} ({})", self.suite.title, self.suite.document));
        Ok(setup)
    }

    /// Omits cells of a quick run if there are too many, with a note. Call it after unwanted cells
    /// have been removed.
    pub fn shorten(&mut self, setup: &mut Setup) {
        setup.loads = self.thin(std::mem::take(&mut setup.loads), setup.contenders.len());
    }

    /// Adds notes about missing contenders, and about the file system of the files.
    pub fn prepared(&mut self, bench: &Bench) {
        bench.contenders.missing.iter().for_each(|why| self.note(why.clone()));
        if let Some(file_system) = bench.parameters.get("file_system") {
            let name = file_system.as_str().unwrap_or_default();
            self.note(format!("files are on {name}; set TMPDIR to use another directory"));
        }
    }

    /// Returns the suite with the figures of a report.
    pub fn report(&self, report: &bench::Report) -> SuiteReport {
        SuiteReport::new(self, report)
    }

    fn note(&mut self, why: String) {
        if !self.notes.contains(&why) {
            self.notes.push(why);
        }
    }

    /// Returns the comparison of echo servers. The load is streams, a connection per message over
    /// four event loops, or datagrams.
    fn echo(&mut self, catalogue: Catalogue) -> Result<Setup> {
        let plan = self.plan;
        let is_udp = self.suite.kind == Kind::Udp;
        let transport = if is_udp { Transport::Udp } else { Transport::Tcp };
        let per_connection = self.suite.kind == Kind::Connect;
        let mut servers = Vec::new();
        for name in self.every(|question| question.servers.clone()) {
            match catalogue.choose(&name, transport) {
                Ok(choice) => servers.push(choice),
                Err(why) => self.note(in_this_version(&why)),
            }
        }
        ensure!(!servers.is_empty(), "no server is left to measure: {}", self.notes.join("; "));
        let of_memory = self.suite.questions().any(|question| question.figure.is_of_memory());
        let cells = self.cells()?;
        let echo = Echo {
            plan: self.bench_plan(),
            transport,
            servers,
            load: Options {
                warm_up: Some(WARM_UP),
                pin: Some(plan.cores.load),
                seed: Some(plan.seed),
                per_connection,
                threads: per_connection.then_some(4),
                ..Options::default()
            },
            time: SLICE_TIME,
            cores: plan.cores,
            peers: catalogue.into_peers(),
        };
        let mut setup = echo.setup(&cells)?;
        self.extend(&mut setup.loads);
        setup.shown.metrics.push(Metric::hidden(SYSTEM_CALLS_KEY));
        Ok(Setup { idle: of_memory.then(|| plan.time(IDLE_TIMES)), ..setup })
    }

    /// Extends slices in which a slow server would not answer all connections once, with a note.
    fn extend(&mut self, loads: &mut [Load]) {
        for load in loads {
            let time = loop_time(&load.cell);
            load.extend(SLICE_TIME, time);
            if time > SLICE_TIME {
                let seconds = time.as_secs_f64();
                self.note(format!("slices of {} take {seconds:.1} s", load.cell));
            }
        }
    }

    fn programs(
        &mut self,
        definition: &'static Definition,
        cells: Vec<Cell>,
        peers: Option<Peers>,
    ) -> Result<Setup> {
        let (plan, cores) = (self.bench_plan(), self.plan.cores);
        let slice = definition.slices.map(|slices| self.plan.time(slices)).unwrap_or_default();
        let contenders = definition.contenders(&self.contenders(definition)?)?;
        let loads = definition.loads(cells, slice);
        Ok(Setup { contenders, loads, ..definition.setup(plan, slice, cores, peers) })
    }

    fn bench_plan(&self) -> bench::Plan {
        let rounds = Rounds::fixed(self.plan.rounds);
        bench::Plan { name: format!("suite {}", self.name), rounds, seed: self.plan.seed }
    }

    /// Returns the contenders of the suite that this version has, and adds notes about the others.
    fn contenders(&mut self, definition: &Definition) -> Result<Vec<String>> {
        let names = self.every(|question| question.servers.clone());
        let (names, unknown): (Vec<String>, Vec<String>) = names
            .into_iter()
            .partition(|name| definition.known.iter().any(|(known, _)| known == name));
        unknown.iter().for_each(|name| self.note(format!("no contender '{name}' in this version")));
        ensure!(!names.is_empty(), "no contender is left to measure: {}", self.notes.join("; "));
        Ok(names)
    }

    /// Returns the cells of connections and bytes. Omits those with more connections than the
    /// process may open files, with a note about each.
    ///
    /// # Errors
    /// If no cell is left.
    fn cells(&mut self) -> Result<Vec<Cell>> {
        let room = limits::available_connections();
        let needed = |cell: &Cell| cell.number("connections").unwrap_or_default() as usize;
        let all = self.every(|question| message(question).into_iter().collect());
        let (cells, beyond): (Vec<Cell>, Vec<Cell>) =
            all.into_iter().partition(|cell| needed(cell) <= room);
        for cell in beyond {
            let needed = needed(&cell);
            let way = format!("{room} are left under the limit; raise it (ulimit -Hn)");
            self.note(format!("{cell}: needs {needed} open files, and {way}"));
        }
        ensure!(!cells.is_empty(), "no cell is left to measure: {}", self.notes.join("; "));
        Ok(cells)
    }

    /// Returns the distinct values of all questions, in order.
    fn every<T: PartialEq>(&self, of: impl Fn(&Question) -> Vec<T>) -> Vec<T> {
        let mut all = Vec::new();
        for one in self.suite.questions().flat_map(|question| of(&question)) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }

    /// Omits cells of a quick run, evenly, so that it ends in time.
    fn thin(&mut self, loads: Vec<Load>, contenders: usize) -> Vec<Load> {
        // The additional contender is the control.
        let slices = ((contenders + 1) * self.plan.rounds) as u32;
        let total: Duration = loads.iter().map(|load| load.cost * slices).sum();
        if !self.plan.quick || total <= QUICK_RUN_TIME {
            return loads;
        }
        let all = loads.len();
        let kept =
            ((all as f64 * QUICK_RUN_TIME.as_secs_f64() / total.as_secs_f64()) as usize).max(1);
        self.note(format!("--quick: {kept} of {all} cells"));
        // Keeps the first and the last cell, if at least two are kept.
        let step = (all - 1) as f64 / (kept.max(2) - 1) as f64;
        let indices: Vec<usize> = (0..kept).map(|n| (n as f64 * step).round() as usize).collect();
        let numbered = loads.into_iter().enumerate();
        numbered.filter(|(index, _)| indices.contains(index)).map(|(_, load)| load).collect()
    }
}

/// Returns the cell of a question with connections and bytes.
fn message(question: &Question) -> Option<Cell> {
    Some(echo::cell(question.of.connections?, question.of.bytes?))
}

/// Returns how long a slow server takes to answer all connections of a closed loop once. A request
/// waits for those of all other connections, and only requests that begin and end within a slice
/// count.
fn loop_time(cell: &Cell) -> Duration {
    let [connections, bytes] =
        ["connections", "bytes"].map(|name| cell.number(name).unwrap_or_default() as f64);
    let request = SLOW_REQUEST.as_secs_f64() + bytes / SLOW_BYTES_PER_SECOND;
    Duration::from_secs_f64(request * connections).min(MAX_EXTENDED_TIME)
}

/// Returns the cell of a question with workers, cycles and bytes.
fn cycles(question: &Question) -> Option<Cycles> {
    let (workers, bytes) = (question.of.connections? as u64, question.of.bytes? as u64);
    Some(Cycles { workers, cycles: question.of.cycles?, bytes })
}

fn cell(question: &Question) -> Option<Cell> {
    let entries = || question.of.entries.map(nop::cell);
    cycles(question).map(Cycles::cell).or_else(|| message(question)).or_else(entries)
}

pub(super) fn figure(report: &bench::Report, question: &Question, contender: &str) -> Option<f64> {
    if question.figure.is_of_memory() {
        return memory(report, question.figure, contender);
    }
    let cell = cell(question)?;
    let of = |contender: &str, key| report.row(contender, &cell)?.value(key);
    let value = |key| of(contender, key);
    let megabytes = || Some(value("rate")? * question.of.bytes? as f64 / BYTES_PER_MB);
    match question.figure {
        Figure::Rate => median(third(&rates(report, contender, &cell), question.of.part)),
        Figure::Percent => {
            let first = &report.settings.contenders.specs.first()?.name;
            Some(100.0 * value("rate")? / of(first, "rate")?)
        }
        Figure::Average => value("mean_us"),
        Figure::P99 => value("p99_us"),
        Figure::AverageMs => value("mean_us").map(|us| us / 1e3),
        Figure::P99Ms => value("p99_us").map(|us| us / 1e3),
        Figure::MegabytesPerSecond => megabytes(),
        Figure::Megabytes => megabytes().map(|megabytes| megabytes * DOCUMENT_RUN_SECONDS),
        Figure::CpuSeconds => value("cpu_seconds"),
        Figure::RealSeconds => value("real_seconds"),
        Figure::VirtualMb | Figure::ResidentMb | Figure::IdleMb => None,
    }
}

/// Returns the rates of all rounds.
fn rates(report: &bench::Report, contender: &str, cell: &Cell) -> Vec<f64> {
    let rate = bench::rate();
    let slices = report.samples.iter();
    let slices = slices.filter(|slice| slice.contender == contender && slice.cell == *cell);
    slices.filter_map(|slice| slice.sample.as_ref().and_then(|sample| rate.of.of(sample))).collect()
}

/// Returns the memory of a contender in MB of 2^20 bytes, as in `top`.
fn memory(report: &bench::Report, figure: Figure, contender: &str) -> Option<f64> {
    let footprint = report.memory.iter().find(|footprint| footprint.contender == contender)?;
    let megabytes =
        |memory: Option<Memory>, of: fn(Memory) -> u64| Some(of(memory?) as f64 / BYTES_PER_MB);
    match figure {
        Figure::VirtualMb => megabytes(footprint.after, |memory| memory.virtual_bytes),
        Figure::ResidentMb => megabytes(footprint.after, |memory| memory.resident_bytes),
        _ => megabytes(footprint.idle, |memory| memory.resident_bytes),
    }
}

/// Returns the first, second or last third of the rounds, or all of them if `part` is `None`.
fn third(rates: &[f64], part: Option<usize>) -> &[f64] {
    let edge = |part: usize| rates.len() * part / 3;
    part.map_or(rates, |part| &rates[edge(part - 1)..edge(part)])
}

/// Removes the list of known servers from an error about an unknown one.
fn in_this_version(why: &str) -> String {
    let part = why.split(": known servers are ").next().unwrap_or(why);
    if part == why { why.to_owned() } else { format!("{part} in this version") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::suites::small;

    #[test]
    fn only_a_quick_run_omits_cells_and_notes_it() {
        let suite = small();
        let slice = Duration::from_millis(2500);
        let loads = |count| nop::BENCH.loads((1..=count).map(nop::cell), slice / 3);
        let thinned = |run: &mut SuiteRun, contenders| {
            let left = run.thin(loads(24), contenders);
            left.iter().map(|load| load.cell.job()).collect::<Vec<_>>()
        };
        let run = |quick| {
            let cores = Cores::new(0, 0);
            SuiteRun::new("small", suite.clone(), SuitePlan { cores, quick, rounds: 3, seed: 1 })
        };
        let mut usual = run(false);
        assert_eq!(thinned(&mut usual, 3).len(), 24);
        assert!(usual.notes.is_empty());
        let mut quick = run(true);
        assert_eq!(thinned(&mut quick, 3), ["1", "9", "16", "24"]);
        assert_eq!(quick.notes, ["--quick: 4 of 24 cells"]);
        assert_eq!(thinned(&mut quick, 99), ["1"], "at least one cell is kept");
    }

    #[test]
    fn slices_are_extended_where_a_closed_loop_takes_longer() {
        let cores = Cores::new(0, 0);
        let plan = SuitePlan { cores, quick: false, rounds: 3, seed: 1 };
        let mut run = SuiteRun::new("small", small(), plan);
        let cells = [(1000, 1000), (10_000, 1024), (1000, 1 << 20), (10_000, 1 << 20)];
        let mut loads = cells.map(|(connections, bytes)| {
            let cell = echo::cell(connections, bytes);
            Load::own(cell, Options::default(), SLICE_TIME + Duration::from_secs(1))
        });
        run.extend(&mut loads);
        let costs = [1_050_000, 1_262_800, 2_335_720, 6_000_000].map(Duration::from_micros);
        assert_eq!(loads.each_ref().map(|load| load.cost), costs);
        let times = loads.map(|load| load.min_time.max(SLICE_TIME));
        assert_eq!(times, costs.map(|cost| cost - Duration::from_secs(1)));
        assert_eq!(run.notes.len(), 3);
        assert_eq!(run.notes[1], "slices of 1000 connections × 1048576 bytes take 1.3 s");
    }

    #[test]
    fn thirds_are_consecutive_and_take_every_round() {
        let rates: Vec<f64> = (0..7).map(f64::from).collect();
        let parts = [1, 2, 3].map(|part| third(&rates, Some(part)).to_vec());
        assert_eq!(parts.concat(), rates);
        assert_eq!(parts.map(|part| part.len()), [2, 2, 3]);
        assert_eq!(third(&rates, None), rates);
    }
}
