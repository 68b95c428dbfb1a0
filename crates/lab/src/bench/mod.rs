//! The definition of a bench: contenders × cells, measured in interleaved rounds (ADR 0018).
//!
//! A [`Bench`] is data: what is compared, under which parameters, by which metrics, how often. What differs in kind, how a
//! contender is started and asked, is behind [`Measure`]. Everything else is here, once: the order of the slices, ratios
//! with intervals, verdicts, doubts and the report.

mod cell;
mod contenders;
mod doubt;
mod metric;
mod record;
mod report;
mod schedule;
mod verdict;

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::cores::Cores;
use crate::environment::Environment;
use crate::proc::Memory;
use crate::scratch::Scratch;

pub use cell::{Cell, Value};
pub use contenders::Contenders;
pub use doubt::CLIENT_CPU_SHARE;
pub use metric::{
    Better, CPU, Column, Fold, Format, MB, Metric, PLAIN, RATE, Role, Sample, grouped,
};
pub use record::{Outcome, Record};
pub use report::{Comparison, Figure, Footprint, Report, Row, SliceRow};
pub use schedule::Slice;
pub use verdict::{Outcome as VerdictOutcome, Verdict};

/// How many times a run is saved on its way.
const SAVES: usize = 10;

/// A bench. As JSON it says how it was set up.
#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    /// What it is called, and how often it measures.
    #[serde(flatten)]
    pub plan: Plan,
    /// How it is run, in words that follow the number of rounds: ` of 0.2 s, all on core 0`.
    pub terms: String,
    /// What a reader must know about its figures.
    #[serde(skip)]
    pub legend: &'static str,
    /// How its tables are laid out.
    #[serde(skip)]
    pub layout: Layout,
    /// What is compared.
    #[serde(flatten)]
    pub contenders: Contenders,
    /// Under which parameters.
    #[serde(skip)]
    pub cells: Vec<Cell>,
    /// By what, in the order of the columns.
    #[serde(skip)]
    pub metrics: Vec<Metric>,
    /// How long contenders are left idle before their memory is read again, if they are.
    #[serde(skip)]
    pub idle: Option<Duration>,
    /// The cores of server and load, if both take part.
    #[serde(skip)]
    pub cores: Option<Cores>,
    /// What else the report says about how it was set up.
    #[serde(flatten)]
    pub parameters: Map<String, Json>,
}

/// What a run is called, and how often it measures, whatever that is.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The name of the bench.
    #[serde(rename = "bench")]
    pub name: String,
    /// How often each contender is measured in each cell.
    #[serde(flatten)]
    pub rounds: Rounds,
    /// The seed of the order, of the messages and of the intervals.
    pub seed: u64,
}

/// How many rounds a cell gets.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rounds {
    /// As many in any case.
    #[serde(rename = "rounds")]
    pub least: usize,
    /// As many at most.
    #[serde(rename = "rounds_max")]
    pub most: usize,
    /// How narrow intervals are to be, for which more rounds are measured.
    pub precision: Option<Precision>,
}

/// How well ratios are to be known.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Precision {
    /// The key of the metric.
    pub metric: &'static str,
    /// Half the width of its intervals at most.
    pub half_width: f64,
}

/// How tables are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A table a cell: a row a contender, a column a metric, and the verdict under it.
    Cells,
    /// A table a metric: a row a cell, a column a contender.
    Matrix,
}

/// What measures a slice: real processes, or a stand-in that needs neither process nor clock.
pub trait Measure {
    /// Measures one slice, or says in one line why what came of it cannot be accepted.
    fn measure(&mut self, slice: Slice) -> Outcome;

    /// The memory of every contender, the control's last; nothing if that is not read.
    fn memory(&self) -> Vec<Option<Memory>> {
        Vec::new()
    }
}

/// Hears how a run goes on, and may end it early.
pub trait Observer {
    /// So many slices are done, of as many that are planned so far.
    fn progress(&mut self, done: usize, planned: usize);

    /// A report to keep in case the run does not reach its end.
    fn save(&mut self, report: &Report);

    /// Whether to stop after this slice.
    fn is_stopped(&self) -> bool;
}

/// A bench whose contenders are up.
pub struct Prepared {
    /// The bench.
    pub bench: Bench,
    /// What measures its slices.
    pub measure: Box<dyn Measure>,
    /// The directory of its files, if it has one.
    pub scratch: Option<Scratch>,
}

impl Rounds {
    /// As many rounds, whatever comes out.
    pub fn fixed(rounds: usize) -> Rounds {
        Rounds { least: rounds, most: rounds, precision: None }
    }
}

impl Bench {
    /// How many slices there will be at least.
    pub fn planned(&self) -> usize {
        self.contenders.all().count() * self.cells.len() * self.plan.rounds.least
    }

    /// Whether the ratios of a cell are known as well as was asked for. Those that were never measured are left out: more
    /// rounds would not help them.
    fn is_precise(&self, record: &Record, cell: usize) -> bool {
        let Some(Precision { metric, half_width }) = self.plan.rounds.precision else {
            return true;
        };
        let Some(metric) = self.metrics.iter().find(|known| known.key == metric) else {
            return true;
        };
        let places = 1..self.contenders.all().count();
        let ratios = places.filter_map(|place| record.ratio(metric, place, 0, cell));
        ratios
            .map(|ratio| ratio.half_width())
            .all(|half| half.is_some_and(|half| half <= half_width))
    }

    /// Measures every cell in every round, and further rounds of those that are not precise yet.
    fn measure(
        &self,
        measure: &mut dyn Measure,
        observer: &mut dyn Observer,
        environment: &Environment,
    ) -> Record {
        let mut record = Record::new(self.plan.seed);
        let mut schedule = schedule::Schedule::new(self.contenders.all().count(), self.plan.seed);
        let planned = self.planned();
        for round in 0..self.plan.rounds.most {
            let wanted =
                |&cell: &usize| round < self.plan.rounds.least || !self.is_precise(&record, cell);
            let cells = (0..self.cells.len()).filter(wanted).collect();
            for slice in schedule.round(round, cells) {
                record.keep(slice, measure.measure(slice));
                let done = record.slices().len();
                observer.progress(done, done.max(planned));
                if done.is_multiple_of(planned.div_ceil(SAVES)) {
                    observer.save(&Report::new(self, &record, environment));
                }
                if observer.is_stopped() {
                    return record;
                }
            }
        }
        record
    }

    fn footprints(&self, [before, after, idle]: [Vec<Option<Memory>>; 3]) -> Vec<Footprint> {
        let footprint = |(place, spec): (usize, &crate::process::Spec)| Footprint {
            contender: spec.name.clone(),
            before: before.get(place).copied().flatten(),
            after: after.get(place).copied().flatten(),
            idle: idle.get(place).copied().flatten(),
        };
        self.contenders.all().enumerate().take(after.len()).map(footprint).collect()
    }
}

impl Prepared {
    /// Measures, ends the contenders, and removes their files.
    ///
    /// # Errors
    /// If the files cannot be removed. A contender that fails is in the report.
    pub fn run(self, observer: &mut dyn Observer) -> Result<Report> {
        let Prepared { bench, mut measure, scratch } = self;
        let environment = Environment::read();
        let before = measure.memory();
        let record = bench.measure(&mut *measure, observer, &environment);
        let after = measure.memory();
        let idle = bench.idle.map(|time| {
            rest(time, observer);
            measure.memory()
        });
        drop(measure);
        if let Some(scratch) = scratch {
            let left = scratch.path().display().to_string();
            scratch.remove().with_context(|| format!("cannot remove {left}: remove it by hand"))?;
        }
        let mut report = Report::new(&bench, &record, &environment);
        report.memory = bench.footprints([before, after, idle.unwrap_or_default()]);
        Ok(report)
    }
}

/// What a `json!({ … })` has.
pub(crate) fn parameters(object: Json) -> Map<String, Json> {
    if let Json::Object(map) = object { map } else { Map::new() }
}

/// Does nothing for a while, or until the run is stopped.
fn rest(time: Duration, observer: &dyn Observer) {
    const STEP: Duration = Duration::from_millis(50);
    let mut left = time;
    while !left.is_zero() && !observer.is_stopped() {
        thread::sleep(left.min(STEP));
        left = left.saturating_sub(STEP);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::process::Spec;

    const METRICS: [Metric; 3] = [
        Metric { role: Role::Primary, ..CPU },
        Metric { noun: "requests/s", role: Role::Guard(0.97), ..RATE },
        Metric {
            key: "p99_us",
            noun: "p99",
            of: |sample| sample.get("p99_us"),
            role: Role::Guard(1.1),
            ..PLAIN
        },
    ];

    /// A bench of these contenders in one cell, 15 rounds each.
    pub(crate) fn bench(names: &[&str]) -> Bench {
        let found = names.iter().map(|name| Ok(Ok(Spec::of(name, "/bin/true"))));
        Bench {
            plan: Plan { name: "test".into(), rounds: Rounds::fixed(15), seed: 1 },
            terms: String::new(),
            legend: "",
            layout: Layout::Cells,
            contenders: Contenders::gather(found, None).expect("contenders"),
            cells: vec![Cell::new([("clients", 50.into()), ("bytes", 128.into())])],
            metrics: METRICS.into(),
            idle: None,
            cores: None,
            parameters: Map::new(),
        }
    }

    /// A sample whose CPU time an operation is `cpu` µs, and whose rate and latency follow from it.
    pub(crate) fn sample(cpu: f64) -> Sample {
        let numbers = [("operations", 1000.0), ("cpu_ns", cpu * 1e6), ("ns", cpu * 1e6)];
        let mut sample = Sample::from(numbers);
        sample.set("p99_us", cpu * 20.0);
        sample
    }

    /// A record of so many contenders in one cell, the control among them: `cpu` gives the CPU time of each in a round, in µs.
    pub(crate) fn record(
        contenders: usize,
        rounds: usize,
        cpu: impl Fn(usize, usize) -> f64,
    ) -> Record {
        let mut record = Record::new(1);
        for (round, contender) in (0..rounds).flat_map(|r| (0..contenders).map(move |c| (r, c))) {
            record.keep(Slice { round, cell: 0, contender }, Ok(sample(cpu(contender, round))));
        }
        record
    }

    /// Measures by counting; slices of cell 1 differ by contender and round.
    #[derive(Default)]
    struct Counting {
        measured: usize,
        fails_at: usize,
    }

    impl Measure for Counting {
        fn measure(&mut self, slice: Slice) -> Outcome {
            self.measured += 1;
            let noise = (slice.cell * slice.contender * (slice.round * 7 % 11)) as f64 / 10.0;
            if self.measured == self.fails_at {
                Err("refused".into())
            } else {
                Ok(sample(2.0 + noise))
            }
        }
    }

    /// Stops after so many slices, and counts what it hears.
    struct Listener {
        last: usize,
        done: usize,
        saves: usize,
    }

    impl Observer for Listener {
        fn progress(&mut self, done: usize, planned: usize) {
            assert!(done <= planned);
            self.done = done;
        }

        fn save(&mut self, report: &Report) {
            assert_eq!(report.samples.len(), self.done);
            self.saves += 1;
        }

        fn is_stopped(&self) -> bool {
            self.done == self.last
        }
    }

    /// A run of two cells: its report, and how often it was saved.
    fn run(rounds: Rounds, last: usize, fails_at: usize) -> (Report, usize) {
        let mut bench = bench(&["a", "b"]);
        bench.plan.rounds = rounds;
        bench.cells.push(Cell::new([("clients", 1.into())]));
        let measure = Box::new(Counting { measured: 0, fails_at });
        let mut listener = Listener { last, done: 0, saves: 0 };
        let prepared = Prepared { bench, measure, scratch: None };
        (prepared.run(&mut listener).expect("no files"), listener.saves)
    }

    /// Slices of the first contender in a cell.
    fn slices(report: &Report, cell: usize) -> usize {
        report.results[cell].slices
    }

    #[test]
    fn every_contender_is_measured_in_every_cell_as_often_and_saved_on_the_way() {
        let (report, saves) = run(Rounds::fixed(20), 0, 0);
        assert_eq!((report.samples.len(), saves), (3 * 2 * 20, 10));
        assert!(report.rows().all(|row| row.slices == 20));
    }

    #[test]
    fn a_cell_that_is_not_precise_gets_more_rounds_up_to_the_limit() {
        let run = |half_width, most| {
            let precision = Some(Precision { metric: "cpu_us", half_width });
            let (report, _) = run(Rounds { least: 6, most, precision }, 0, 0);
            assert_eq!(slices(&report, 0), 6, "it does not stray");
            slices(&report, 1)
        };
        assert_eq!(run(5.0, 12), 6);
        assert_eq!(run(0.01, 12), 12);
    }

    #[test]
    fn a_failed_slice_is_kept_and_the_rest_goes_on() {
        let (report, _) = run(Rounds::fixed(20), 0, 4);
        assert_eq!((report.samples.len(), report.failures().count()), (120, 1));
    }

    #[test]
    fn a_stopped_run_measures_nothing_more_and_says_so() {
        let (report, _) = run(Rounds::fixed(20), 7, 0);
        assert_eq!(report.samples.len(), 7);
        assert!(report.doubts[0].starts_with("interrupted after 7 of 120 slices"));
    }
}
