//! A comparison as a page.

use super::charts::{percentile_chart, percentiles};
use super::details;
use super::summary::time;
use crate::compare::{Comparison, Metric, MetricRatio, Side};
use crate::recording::{Latencies, Percentiles, Recording};
use crate::stats::Verdict;
use annulus_page::{
    Axis, Block, IntervalChart, IntervalRow, Line, Notice, Page, Section, Table, Tile, text,
};

/// A comparison with the runs that it is of.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    /// The comparison.
    pub comparison: &'a Comparison,
    /// The runs of A.
    pub a: &'a [Recording],
    /// The runs of B.
    pub b: &'a [Recording],
}

/// The page of a comparison. It loads nothing and runs no script.
pub fn comparison_html(compared: Compared<'_>) -> String {
    compared.page().html()
}

impl Compared<'_> {
    fn page(self) -> Page {
        let Compared { comparison, .. } = self;
        let section = Section::new;
        let notice = |text: &String| Notice { text: text.clone(), advice: String::new() };
        let mut sections = vec![section(
            "Ratios",
            vec![
                Block::Figure(intervals(comparison)),
                Block::Figure(self.latencies()),
                Block::Table(ratios(comparison)),
            ],
        )];
        if !comparison.plans.is_empty() {
            sections
                .push(section("What was planned otherwise", vec![Block::Table(plans(comparison))]));
        }
        sections.push(section("Runs", vec![Block::Table(self.runs())]));
        for (name, runs) in [("A", self.a), ("B", self.b)] {
            let first = runs.first().map(details::run).unwrap_or_default();
            sections.push(section(&format!("The first run of {name}"), first));
        }
        Page {
            title: title(comparison),
            subtitle: comparison.sentence(),
            tiles: comparison.ratios.iter().filter_map(tile).collect(),
            notices: comparison.doubts.iter().map(notice).collect(),
            links: Vec::new(),
            sections,
        }
    }

    /// Every run with its figures.
    fn runs(self) -> Table {
        let a = self.a.iter().enumerate().map(|(number, run)| ("A", number, run));
        let b = self.b.iter().enumerate().map(|(number, run)| ("B", number, run));
        let row = |(name, number, run): (&str, usize, &Recording)| {
            let summary = run.summary();
            let Percentiles { p50, p99, p99_9, .. } = summary.latency_us;
            let times = [p50, p99, p99_9].map(|micros| micros.map_or("–".into(), time));
            let rate = text::number(summary.requests_per_second.round()) + "/s";
            let failed = text::number(summary.failed as f64);
            let first = [format!("{name} {}", number + 1), rate];
            first.into_iter().chain(times).chain([failed]).collect()
        };
        let head = ["", "rate", "p50", "p99", "p99.9", "failed"];
        Table { head: head.map(String::from).into(), rows: a.chain(b).map(row).collect() }
    }

    /// All response times of both sides by percentile.
    fn latencies(self) -> annulus_page::Figure {
        let line = |name: &str, series, runs: &[Recording]| {
            let mut all = Latencies::default();
            runs.iter()
                .flat_map(|run| &run.intervals)
                .for_each(|interval| all.add(&interval.response));
            Line::new(name, series, percentiles(&all))
        };
        let lines = vec![
            line(&side("A", &self.comparison.a), 0, self.a),
            line(&side("B", &self.comparison.b), 1, self.b),
        ];
        percentile_chart("Response time by percentile", "All runs of a side together.", lines)
    }
}

/// The name of a side, with its label if there is one.
fn side(name: &str, side: &Side) -> String {
    side.label.as_ref().map_or(name.to_owned(), |label| format!("{name}: {label}"))
}

fn title(comparison: &Comparison) -> String {
    let [a, b] = [side("A", &comparison.a), side("B", &comparison.b)];
    format!("{a} and {b}: {}", comparison.verdict)
}

fn tile(ratio: &MetricRatio) -> Option<Tile> {
    Some(Tile {
        label: format!("{}, B ÷ A", ratio.metric),
        value: text::ratio(ratio.ratio?.median),
        note: ratio.verdict.to_string(),
    })
}

/// The colour of a verdict: better, worse, or neither.
fn series(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Better => 2,
        Verdict::Worse => 1,
        _ => 5,
    }
}

fn intervals(comparison: &Comparison) -> annulus_page::Figure {
    let row = |ratio: &MetricRatio| {
        let found = ratio.ratio?;
        let interval = found.interval.map(|interval| interval.low..interval.high);
        let (name, series) = (ratio.metric.name().to_owned(), series(ratio.verdict));
        Some(IntervalRow { name, value: found.median, interval, series })
    };
    let rows: Vec<IntervalRow> = comparison.ratios.iter().filter_map(row).collect();
    let ends = rows.iter().flat_map(|row| {
        let interval = row.interval.clone().unwrap_or(row.value..row.value);
        [interval.start, interval.end, row.value]
    });
    // A very wide interval must not hide the others.
    let ends = ends.map(|end| end.clamp(0.1, 10.0));
    let range = ends.fold(0.95..1.05, |range: std::ops::Range<f64>, end| {
        range.start.min(end)..range.end.max(end)
    });
    IntervalChart {
        title: "Ratios with their intervals".into(),
        note: "All intervals hold together in 95 % of comparisons. Green is better, orange is worse, grey is no \
               difference that is supported."
            .into(),
        x: Axis::linear("B ÷ A", range, text::number),
        marks: vec![1.0],
        rows,
    }
    .figure()
}

fn ratios(comparison: &Comparison) -> Table {
    let row = |ratio: &MetricRatio| {
        let value = |side: Option<f64>| side.map_or("–".into(), |value| ratio.metric.text(value));
        vec![
            ratio.metric.to_string(),
            value(ratio.a),
            value(ratio.b),
            ratio.ratio.map_or("–".into(), |ratio| ratio.to_string()),
            ratio.verdict.to_string(),
        ]
    };
    let head = ["", "A", "B", "B ÷ A", "verdict"];
    Table { head: head.map(String::from).into(), rows: comparison.ratios.iter().map(row).collect() }
}

fn plans(comparison: &Comparison) -> Table {
    let row = |plan: &crate::compare::PlanDifference| {
        vec![plan.what.to_owned(), plan.a.join(", "), plan.b.join(", ")]
    };
    Table {
        head: ["", "A", "B"].map(String::from).into(),
        rows: comparison.plans.iter().map(row).collect(),
    }
}

impl Metric {
    /// Its value as text, as it is shown: answers a second, or a time.
    pub fn text(self, value: f64) -> String {
        match self {
            Metric::Rate => text::number(value) + "/s",
            _ => text::nanoseconds(value),
        }
    }
}
