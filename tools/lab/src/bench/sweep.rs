//! Latency against rate: measures every contender at shares of its own peak, and finds the rate up
//! to which the contender keeps a limit.
//!
//! The cells of a sweep are pairs of a load and a share of the peak. A cell without a share is the
//! closed loop that measures the peaks of its load. All rounds of these cells come first. The
//! offered rates follow from their medians, and stay the same in every round, even if the run is
//! resumed.

use std::collections::BTreeMap;

use annulus_load::stats::median;
use annulus_load::{Conditions, LatencyLimit};
use anyhow::{Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use super::Bench;
use super::cell::Cell;
use super::contest::MAX_FAILED_SHARE;
use super::metric::{Format, Metric, Role, cpu, rate};
use super::record::{Outcome, Record};
use super::requests::{client_cpu, mean, p50, p99, p99_9, requests};

/// The shares of the peak at which latency is measured, in percent.
pub(crate) const PERCENTS: [u64; 12] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120];

/// The parameter of a cell with the share of the peak, in percent. The cells without it measure the
/// peaks.
pub(crate) const PERCENT_PARAMETER: &str = "% of peak";

/// The name of a number in a sample: the requests per second that were due.
pub(crate) const OFFERED_KEY: &str = "offered";

/// The latencies to which a limit may refer, and their names in a sample.
const LATENCIES: [(&str, &str); 4] =
    [("mean", "mean_us"), ("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p99_9_us")];

/// The rates of an open loop by contender and cell, or why a rate is unknown.
pub type OfferedRates = BTreeMap<(usize, usize), Result<f64, String>>;

/// A sweep over rates.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Sweep {
    /// The latency limit. The sweep finds the rate up to which each contender keeps it.
    pub limit: Option<SweepLimit>,
}

/// The limit of a sweep, such as `p99<5ms`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct SweepLimit {
    text: String,
    limit: LatencyLimit,
}

impl SweepLimit {
    /// Parses a limit.
    ///
    /// # Errors
    /// If the text is not one condition on a latency that a sweep measures.
    pub fn parse(text: &str) -> Result<SweepLimit> {
        let known = || LATENCIES.map(|(name, _)| name).join(", ");
        let unknown =
            |name: &str| anyhow!("'{text}': a sweep does not measure {name}: use {}", known());
        let limits = text.parse::<Conditions>()?.latency_limits().map_err(|name| unknown(&name))?;
        ensure!(
            limits.len() == 1,
            "'{text}': a sweep has one limit: write only one, as in p99<5ms"
        );
        let limit = limits.into_iter().next().expect("there is no limit");
        ensure!(LATENCIES.iter().any(|(name, _)| *name == limit.figure), unknown(&limit.figure));
        Ok(SweepLimit { text: text.to_owned(), limit })
    }

    /// Returns the name of the latency, such as `p99`.
    pub fn figure(&self) -> &str {
        &self.limit.figure
    }

    /// Returns the name of the latency in a sample.
    fn key(&self) -> &'static str {
        let found = LATENCIES.iter().find(|(name, _)| *name == self.limit.figure);
        found.map_or("", |(_, key)| key)
    }

    /// Returns the limit in µs.
    pub fn micros(&self) -> f64 {
        self.limit.limit.as_secs_f64() * 1e6
    }

    /// Returns the limit in words, such as `p99 below 5 ms`.
    pub fn words(&self) -> String {
        let bound = if self.limit.is_inclusive { "at most" } else { "below" };
        format!("{} {bound} {}", self.figure(), time(self.micros()))
    }

    fn is_kept_by(&self, micros: f64) -> bool {
        self.limit.is_kept_by(micros * 1e3)
    }
}

impl TryFrom<String> for SweepLimit {
    type Error = String;

    fn try_from(text: String) -> Result<SweepLimit, String> {
        SweepLimit::parse(&text).map_err(|error| error.to_string())
    }
}

impl From<SweepLimit> for String {
    fn from(limit: SweepLimit) -> String {
        limit.text
    }
}

/// Returns the metrics of a sweep. None of them is compared, because at the same share of their
/// peaks, contenders have different rates.
pub(crate) fn metrics() -> Vec<Metric> {
    let rate = Metric { title: "answered/s".into(), ..rate() };
    let offered = Metric { format: Format::Whole, ..Metric::hidden(OFFERED_KEY) };
    let cpu = Metric { format: Format::Significant, ..cpu() };
    let all = [
        offered,
        Metric { noun: requests().noun, ..rate },
        cpu,
        mean(),
        p50(),
        p99(),
        p99_9(),
        client_cpu(),
    ];
    all.into_iter()
        .map(|metric| Metric { role: Role::Plain, columns: shown(&metric), ..metric })
        .collect()
}

/// Returns the columns of a metric without its ratio.
fn shown(metric: &Metric) -> Vec<super::Column> {
    metric.columns.iter().copied().filter(|column| *column == super::Column::Value).collect()
}

impl Bench {
    /// Returns the cells in the order in which they must be measured: all rounds of a group come
    /// before the next group.
    pub(super) fn stages(&self) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.cells.len()).collect();
        if self.sweep.is_none() {
            return vec![all];
        }
        let (peaks, shares) = all.into_iter().partition(|&cell| is_peak(&self.cells[cell]));
        vec![peaks, shares]
    }

    /// Returns the offered rates that follow from the measured peaks. The control has the rates of
    /// the contender that it copies.
    pub(super) fn offered_rates(&self, record: &Record) -> OfferedRates {
        let mut rates = OfferedRates::new();
        let control = self.contenders.control_index();
        for (cell, of) in self.cells.iter().enumerate() {
            let Some(percent) = percent(of) else { continue };
            for contender in 0..self.contenders.all().count() {
                let host = if Some(contender) == control { 0 } else { contender };
                let peak = self.peak(record, host, of);
                rates.insert((contender, cell), peak.map(|peak| peak * percent as f64 / 100.0));
            }
        }
        rates
    }

    /// Returns the peak of a contender under the load of a cell.
    fn peak(&self, record: &Record, contender: usize, cell: &Cell) -> Result<f64, String> {
        let at = cell.without(PERCENT_PARAMETER);
        let Some(cell) = self.cells.iter().position(|cell| *cell == at) else {
            return Err(format!("its peak is unknown: {at} was not measured"));
        };
        if let Some(peak) = record.value(&rate(), contender, cell) {
            return Ok(peak);
        }
        let why = record.outcomes(contender, cell).find_map(|outcome| outcome.as_ref().err());
        let why = why.map_or("it was not measured", String::as_str);
        Err(format!("its peak is unknown: {why}"))
    }
}

/// Returns the share of the peak in a cell, or `None` if the cell measures the peak.
fn percent(cell: &Cell) -> Option<u64> {
    cell.number(PERCENT_PARAMETER)
}

/// Returns true if a cell of a sweep measures the peak.
pub(super) fn is_peak(cell: &Cell) -> bool {
    percent(cell).is_none()
}

/// The curves of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct SweepReport {
    /// The limit, if there is one.
    pub limit: Option<SweepLimit>,
    /// The curve of each contender under each load, the control last.
    pub curves: Vec<Curve>,
}

/// Latency against rate: one contender under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The contender.
    pub contender: String,
    /// Whether this is the control, which has the rates of the first contender.
    pub is_control: bool,
    /// The load.
    pub load: Cell,
    /// Requests per second in the closed loop; the median of the rounds.
    pub peak: Option<f64>,
    /// Why the peak is unknown.
    pub peak_error: Option<String>,
    /// The measured rates, in ascending order.
    pub points: Vec<CurvePoint>,
    /// How far the limit is kept; `None` without a limit or without points.
    pub kept: Option<Kept>,
}

/// One rate of a curve. The figures are medians of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct CurvePoint {
    /// The share of the peak, in percent.
    pub percent: u64,
    /// Requests per second that were due.
    pub offered: f64,
    /// Requests per second that were answered.
    pub answered: Option<f64>,
    /// Latencies in µs.
    pub mean_us: Option<f64>,
    #[allow(missing_docs)]
    pub p50_us: Option<f64>,
    #[allow(missing_docs)]
    pub p99_us: Option<f64>,
    #[allow(missing_docs)]
    pub p99_9_us: Option<f64>,
    /// The server's CPU time per request, in µs.
    pub cpu_us: Option<f64>,
    /// Slices that failed.
    pub failed: usize,
    /// Whether so many failed that the limit counts as broken.
    pub has_failed: bool,
    /// Why the first failed slice failed.
    pub error: Option<String>,
    /// Whether the limit is kept.
    pub keeps_limit: Option<bool>,
}

/// How far a limit is kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kept {
    /// Requests per second up to which the limit is kept: 0 if the lowest rate breaks it, and the
    /// highest measured rate if none breaks it. Between the last rate that keeps it and the first
    /// that breaks it, the logarithm of the latency is interpolated where possible.
    pub up_to: f64,
    /// `up_to` as a share of the peak: 1 is the peak.
    pub share_of_peak: f64,
    /// The first measured rate that breaks the limit.
    pub broken_at: Option<f64>,
    /// Whether too many slices failed at `broken_at`.
    pub failed: bool,
}

impl SweepReport {
    /// Returns the curves, or `None` if the bench is not a sweep.
    pub(super) fn of(bench: &Bench, record: &Record) -> Option<SweepReport> {
        let limit = bench.sweep.as_ref()?.limit.clone();
        let loads = bench.cells.iter().filter(|cell| is_peak(cell));
        let contenders = 0..bench.contenders.all().count();
        let curve = |(load, contender)| Curve::of(bench, record, limit.as_ref(), load, contender);
        let pairs =
            loads.flat_map(|load| contenders.clone().map(move |contender| (load, contender)));
        Some(SweepReport { curves: pairs.map(curve).collect(), limit: limit.clone() })
    }

    /// Returns the loads in order.
    pub fn loads(&self) -> Vec<&Cell> {
        let mut loads: Vec<&Cell> = self.curves.iter().map(|curve| &curve.load).collect();
        loads.dedup();
        loads
    }

    /// Returns a sentence for each load about the curves of all contenders.
    pub fn sentences(&self) -> Vec<String> {
        let loads = self.loads();
        let sentence = |load: &&Cell| {
            let curves =
                self.curves.iter().filter(|curve| curve.load == **load && !curve.is_control);
            let parts: Vec<String> =
                curves.enumerate().map(|(index, curve)| self.clause(curve, index == 0)).collect();
            let place = if loads.len() > 1 { format!("{load}: ") } else { String::new() };
            format!("{place}{}.", parts.join("; "))
        };
        loads.iter().map(sentence).collect()
    }

    /// Returns a clause about one curve. Clauses after the first one refer to the limit as "it".
    fn clause(&self, curve: &Curve, is_first: bool) -> String {
        let name = &curve.contender;
        if let Some(why) = &curve.peak_error {
            return format!("{name} has no curve, because {why}");
        }
        let (Some(peak), Some(last)) = (curve.peak, curve.points.last()) else {
            return format!("{name} is not measured yet");
        };
        let Some((limit, kept)) = self.limit.as_ref().zip(curve.kept.as_ref()) else {
            let at = |percent: u64| {
                let point = curve.points.iter().find(|point| point.percent == percent)?;
                Some(format!("{} at {percent} %", time(point.p99_us?)))
            };
            let all: Vec<String> = [50, 100].into_iter().filter_map(at).collect();
            let latency = if all.is_empty() { "unknown".to_owned() } else { all.join(" and ") };
            return format!(
                "{name} peaks at {}, and its p99 is {latency} of that",
                per_second(peak)
            );
        };
        let words = limit.words();
        let share = format!("{:.0} % of its peak", kept.share_of_peak * 100.0);
        let keeps =
            if is_first { format!("{name} keeps {words}") } else { format!("{name} keeps it") };
        match kept.broken_at {
            None => format!(
                "{keeps} up to {}, the highest rate measured ({share})",
                per_second(last.offered)
            ),
            Some(rate) if kept.up_to == 0.0 => {
                let why = if kept.failed { ", where slices failed" } else { "" };
                let lowest = rate / peak * 100.0;
                format!(
                    "{name} does not keep {words} even at {}, {lowest:.0} % of its peak{why}",
                    per_second(rate)
                )
            }
            Some(rate) if kept.failed => {
                format!(
                    "{keeps} up to {}, {share}; at {} slices failed",
                    per_second(kept.up_to),
                    per_second(rate)
                )
            }
            Some(_) => format!("{keeps} up to {}, {share}", per_second(kept.up_to)),
        }
    }
}

impl Curve {
    fn of(
        bench: &Bench,
        record: &Record,
        limit: Option<&SweepLimit>,
        load: &Cell,
        contender: usize,
    ) -> Curve {
        let control = bench.contenders.control_index();
        let is_control = Some(contender) == control;
        let begun = record.outcomes(contender, place(bench, load)).next().is_some();
        let peak = bench.peak(record, contender, load);
        let is_of_load = |cell: &usize| {
            percent(&bench.cells[*cell]).is_some()
                && bench.cells[*cell].without(PERCENT_PARAMETER) == *load
        };
        let cells = (0..bench.cells.len()).filter(is_of_load);
        let mut points: Vec<CurvePoint> = cells
            .filter_map(|cell| CurvePoint::of(bench, record, limit, contender, cell))
            .collect();
        points.sort_by_key(|point| point.percent);
        let name = bench.contenders.all().nth(contender).map(|spec| spec.name.clone());
        Curve {
            contender: name.unwrap_or_default(),
            is_control,
            load: load.clone(),
            peak: peak.as_ref().ok().copied(),
            peak_error: peak.err().filter(|_| begun),
            kept: limit.and_then(|limit| Kept::of(limit, &points)),
            points,
        }
    }
}

fn place(bench: &Bench, load: &Cell) -> usize {
    bench.cells.iter().position(|cell| cell == load).unwrap_or(usize::MAX)
}

impl CurvePoint {
    /// Returns a point, or `None` if it has no slice yet or its rate is unknown.
    fn of(
        bench: &Bench,
        record: &Record,
        limit: Option<&SweepLimit>,
        contender: usize,
        cell: usize,
    ) -> Option<CurvePoint> {
        let outcomes: Vec<&Outcome> = record.outcomes(contender, cell).collect();
        let samples: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
        let number = |key: &str| {
            let values: Vec<f64> = samples.iter().filter_map(|sample| sample.get(key)).collect();
            median(&values)
        };
        let planned = || bench.offered_rates(record).remove(&(contender, cell))?.ok();
        let offered = (!outcomes.is_empty()).then(|| number(OFFERED_KEY).or_else(planned))??;
        let failed = outcomes.len() - samples.len();
        // If many slices fail, the rest of them is not a fair sample.
        let has_failed = failed as f64 > MAX_FAILED_SHARE * outcomes.len() as f64;
        let keeps = |limit: &SweepLimit| {
            !has_failed && number(limit.key()).is_some_and(|micros| limit.is_kept_by(micros))
        };
        Some(CurvePoint {
            percent: percent(&bench.cells[cell])?,
            offered,
            answered: record.value(&rate(), contender, cell),
            mean_us: number("mean_us"),
            p50_us: number("p50_us"),
            p99_us: number("p99_us"),
            p99_9_us: number("p99_9_us"),
            cpu_us: record.value(&cpu(), contender, cell),
            failed,
            has_failed,
            error: outcomes.iter().find_map(|outcome| outcome.as_ref().err().cloned()),
            keeps_limit: limit.map(keeps),
        })
    }

    /// Returns a latency in µs by its name in a sample.
    fn latency(&self, key: &str) -> Option<f64> {
        match key {
            "mean_us" => self.mean_us,
            "p50_us" => self.p50_us,
            "p99_us" => self.p99_us,
            _ => self.p99_9_us,
        }
    }
}

impl Kept {
    /// Returns how far the points keep a limit, or `None` without points.
    fn of(limit: &SweepLimit, points: &[CurvePoint]) -> Option<Kept> {
        let peak = points.first().map(|first| first.offered * 100.0 / first.percent as f64)?;
        let broken = points.iter().position(|point| point.keeps_limit != Some(true));
        let last = broken.map_or(points.last(), |at| at.checked_sub(1).map(|at| &points[at]));
        let next = broken.map(|at| &points[at]);
        let lowest = last.map_or(0.0, |last| last.offered);
        let up_to = last.zip(next).and_then(|(last, next)| crossing(limit, last, next));
        let up_to = up_to.unwrap_or(lowest);
        Some(Kept {
            up_to,
            share_of_peak: up_to / peak,
            broken_at: next.map(|point| point.offered),
            failed: next.is_some_and(|point| point.has_failed),
        })
    }
}

/// Returns the rate at which the latency crosses the limit between two points. Returns `None` if a
/// latency is unknown, if the latency does not grow, or if too many slices failed.
fn crossing(limit: &SweepLimit, last: &CurvePoint, next: &CurvePoint) -> Option<f64> {
    let (low, high) = (last.latency(limit.key())?, next.latency(limit.key())?);
    let known = !next.has_failed && low > 0.0 && high > low;
    let share = (limit.micros() / low).ln() / (high / low).ln();
    known.then(|| last.offered + share.clamp(0.0, 1.0) * (next.offered - last.offered))
}

/// Formats a time in µs in a suitable unit.
fn time(micros: f64) -> String {
    annulus_page::text::nanoseconds(micros * 1e3)
}

fn per_second(rate: f64) -> String {
    format!("{}/s", annulus_page::text::number(rate))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{StopAfter, bench};
    use super::super::{Measure, Prepared, Report, Rounds, Sample, Slice};
    use super::*;
    use crate::environment::Environment;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Slices in order, with the rate that each was measured at.
    type MeasuredSlices = Rc<RefCell<Vec<(Slice, Option<f64>)>>>;

    /// Servers with known peaks, whose latency is 1 ms up to 95 % of the peak, and 100 ms beyond.
    #[derive(Default)]
    struct Servers {
        rates: OfferedRates,
        measured: MeasuredSlices,
        fails: Option<usize>,
    }

    const PEAKS: [f64; 3] = [1000.0, 500.0, 990.0];

    impl Measure for Servers {
        fn measure(&mut self, slice: Slice) -> Outcome {
            if self.fails == Some(slice.contender) {
                return Err("refused".into());
            }
            let rate = self.rates.get(&(slice.contender, slice.cell)).cloned().transpose()?;
            self.measured.borrow_mut().push((slice, rate));
            // The median of the rounds is the peak.
            let peak = PEAKS[slice.contender] * [1.0, 0.5, 1.5][slice.round % 3];
            let answered = rate.unwrap_or(peak);
            let slow = rate.is_some_and(|rate| rate > 0.95 * PEAKS[slice.contender]);
            let micros = if slow { 1e5 } else { 1e3 };
            let mut sample =
                Sample::from([("operations", answered), ("ns", 1e9), ("p99_us", micros)]);
            rate.into_iter().for_each(|rate| sample.set(OFFERED_KEY, rate));
            Ok(sample)
        }

        fn set_rates(&mut self, rates: OfferedRates) {
            self.rates = rates;
        }
    }

    fn sweep(limit: Option<&str>) -> Bench {
        let mut bench = bench(&["a", "b"]);
        let load = bench.cells[0].clone();
        let shares = PERCENTS.map(|percent| load.with(PERCENT_PARAMETER, percent.into()));
        bench.cells.extend(shares);
        bench.metrics = metrics();
        bench.plan.rounds = Rounds::fixed(3);
        let limit = limit.map(|text| SweepLimit::parse(text).expect("the limit is invalid"));
        bench.sweep = Some(Sweep { limit });
        bench
    }

    fn run(bench: &Bench, servers: Servers, record: Record, stop_after: usize) -> Report {
        let prepared = Prepared { bench: bench.clone(), measure: Box::new(servers), scratch: None };
        let here = Environment::read();
        prepared.resume(record, &here, &mut StopAfter::slices(stop_after)).expect("the run failed")
    }

    #[test]
    fn peaks_come_first_and_each_server_is_offered_shares_of_its_own() {
        let servers = Servers::default();
        let measured = servers.measured.clone();
        let report = run(&sweep(None), servers, Record::new(), usize::MAX);
        let measured = measured.borrow();
        assert_eq!(measured.len(), 3 * 13 * 3);
        let (peaks, shares) = measured.split_at(9);
        assert!(peaks.iter().all(|(slice, rate)| slice.cell == 0 && rate.is_none()));
        for (slice, rate) in shares {
            // The control has the rates of the first server.
            let peak = PEAKS[slice.contender % 2];
            assert_eq!(*rate, Some(peak * PERCENTS[slice.cell - 1] as f64 / 100.0), "{slice:?}");
        }
        assert!(report.verdicts.is_empty(), "{:?}", report.verdicts);
        let said = "a peaks at 1,000/s, and its p99 is 1 ms at 50 % and 100 ms at 100 % of that; b peaks at \
                    500/s, and its p99 is 1 ms at 50 % and 100 ms at 100 % of that.";
        assert_eq!(report.answer(), [said]);
    }

    #[test]
    fn resumed_sweep_offers_the_same_rates() {
        let bench = sweep(None);
        let report = run(&bench, Servers::default(), Record::new(), 30);
        let mut record = Record::new();
        for row in &report.samples {
            let cell =
                bench.cells.iter().position(|cell| *cell == row.cell).expect("the cell is unknown");
            let contender = bench
                .contenders
                .all()
                .position(|spec| spec.name == row.contender)
                .expect("the contender is unknown");
            let sample = row.sample.clone().expect("the slice failed");
            record.keep(Slice { round: row.round, cell, contender }, Ok(sample));
        }
        let servers = Servers::default();
        let measured = servers.measured.clone();
        run(&bench, servers, record, usize::MAX);
        assert_eq!(measured.borrow().len(), 3 * 13 * 3 - 30);
        for (slice, rate) in &*measured.borrow() {
            let peak = PEAKS[slice.contender % 2];
            assert_eq!(*rate, Some(peak * PERCENTS[slice.cell - 1] as f64 / 100.0), "{slice:?}");
        }
    }

    #[test]
    fn limit_is_kept_up_to_where_the_latency_crosses_it() {
        for (limit, said) in [
            (
                "p99<10ms",
                "a keeps p99 below 10 ms up to 950/s, 95 % of its peak; b keeps it up to 475/s, 95 % of its peak.",
            ),
            (
                "p99<=1s",
                "a keeps p99 at most 1 s up to 1,200/s, the highest rate measured (120 % of its peak); b keeps it \
                 up to 600/s, the highest rate measured (120 % of its peak).",
            ),
            (
                "p99<1ms",
                "a does not keep p99 below 1 ms even at 100/s, 10 % of its peak; b does not keep p99 below 1 ms \
                 even at 50/s, 10 % of its peak.",
            ),
        ] {
            let report = run(&sweep(Some(limit)), Servers::default(), Record::new(), usize::MAX);
            assert_eq!(report.answer(), [said]);
        }
    }

    #[test]
    fn server_without_a_peak_has_no_curve() {
        let servers = Servers { fails: Some(1), ..Servers::default() };
        let report = run(&sweep(Some("p99<10ms")), servers, Record::new(), usize::MAX);
        let said = "a keeps p99 below 10 ms up to 950/s, 95 % of its peak; b has no curve, because its peak is \
                    unknown: refused.";
        assert_eq!(report.answer(), [said]);
        let curve = &report.sweep.expect("the report has no sweep").curves[1];
        assert!(curve.points.is_empty() && curve.kept.is_none(), "{curve:?}");
    }

    #[test]
    fn many_failed_slices_break_the_limit() {
        let bench = sweep(Some("p99<10ms"));
        let mut record = Record::new();
        for round in 0..5 {
            for cell in 0..13 {
                let sample = Sample::from([("operations", 1e3), ("ns", 1e9), ("p99_us", 1.0)]);
                let fails = (cell == 5 && round < 2) || (cell == 3 && round < 1);
                let outcome = if fails { Err("reset".to_owned()) } else { Ok(sample) };
                record.keep(Slice { round, cell, contender: 0 }, outcome);
            }
        }
        let report = SweepReport::of(&bench, &record).expect("the report has no sweep");
        assert_eq!(
            report.sentences(),
            [
                "a keeps p99 below 10 ms up to 400/s, 40 % of its peak; at 500/s slices failed; b is not measured yet."
            ]
        );
    }

    #[test]
    fn limit_is_one_condition_on_a_measured_latency() {
        for (text, part) in [
            ("p99", "there is no < or >"),
            ("p99<5", "a time needs a unit"),
            ("p95<5ms", "a sweep does not measure p95: use mean, p50, p99, p99.9"),
            ("rate>5", "a sweep does not measure rate"),
            ("p99<5ms,p50<1ms", "write only one"),
        ] {
            let error = SweepLimit::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let limit = SweepLimit::parse("p99.9<=5ms").expect("the limit is invalid");
        assert_eq!((limit.words().as_str(), limit.micros()), ("p99.9 at most 5 ms", 5000.0));
        let json = serde_json::to_string(&limit).expect("serialization failed");
        assert_eq!(json, "\"p99.9<=5ms\"");
        assert_eq!(
            serde_json::from_str::<SweepLimit>(&json).expect("the limit cannot be parsed"),
            limit
        );
    }
}
