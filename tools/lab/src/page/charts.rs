//! Charts of every metric over the cells.

use std::ops::Range;

use annulus_page::{Axis, Block, Figure, IntervalChart, IntervalRow, Line, LineChart, text};

use super::families::{Families, Family};
use super::values::{Estimate, Values};
use crate::bench::{Column, Metric, Report};

/// Above charts.
const NOTE: &str = "Medians of the rounds; the line through each is its 95 % interval.";

/// What a metric is about: a heading of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Throughput,
    Latency,
    Cpu,
    Other,
}

impl Subject {
    pub(super) const ALL: [Subject; 4] =
        [Subject::Throughput, Subject::Latency, Subject::Cpu, Subject::Other];

    pub(super) fn heading(self) -> &'static str {
        match self {
            Subject::Throughput => "Throughput",
            Subject::Latency => "Latency",
            Subject::Cpu => "CPU time",
            Subject::Other => "Other figures",
        }
    }

    fn of(metric: &Metric) -> Subject {
        match &*metric.key {
            "rate" | "mb_per_second" => Subject::Throughput,
            key if key.contains("cpu") => Subject::Cpu,
            key if key.ends_with("_us") => Subject::Latency,
            _ => Subject::Other,
        }
    }
}

/// What the values of a metric are called; empty if they are not shown.
pub(super) fn label(metric: &Metric) -> &str {
    let is_shown = metric.columns.contains(&Column::Value) || metric.noun.is_empty();
    if is_shown && !metric.title.is_empty() { &metric.title } else { &metric.noun }
}

/// Charts of all metrics about a subject that have a title and a value.
pub(super) fn of(report: &Report, values: &Values<'_>, subject: Subject) -> Vec<Block> {
    let families = Families::of(&report.settings.cells);
    let metrics = report.settings.metrics.iter();
    let metrics =
        metrics.filter(|metric| Subject::of(metric) == subject && !label(metric).is_empty());
    let charts = metrics.flat_map(|metric| Chart { report, values, metric }.all(&families));
    let mut charts = charts.filter(|figure| figure.has_data).map(Block::Figure).peekable();
    let note = charts.peek().map(|_| Block::Text(NOTE.into()));
    note.into_iter().chain(charts).collect()
}

struct Chart<'a> {
    report: &'a Report,
    values: &'a Values<'a>,
    metric: &'a Metric,
}

impl Chart<'_> {
    fn all(&self, families: &Families) -> Vec<Figure> {
        let lines = families.families.iter().map(|family| self.lines(family));
        let alone = families.alone.iter().map(|&cell| self.rows(cell));
        lines.chain(alone).collect()
    }

    /// A line for each contender, over the cells of a family.
    fn lines(&self, family: &Family) -> Figure {
        let names = self.names();
        let line = |(series, name): (usize, &&str)| {
            // Beside one another, so that intervals are seen.
            let aside = (series as f64 - (names.len() - 1) as f64 / 2.0) * 0.4 / names.len() as f64;
            let estimates: Vec<(f64, Option<Estimate>)> = (0..family.cells.len())
                .map(|place| (place as f64 + aside, self.estimate(name, family.cells[place])))
                .collect();
            let value = |estimate: Option<Estimate>| estimate.map_or(f64::NAN, |of| of.value);
            let points = estimates.iter().map(|&(x, estimate)| (x, value(estimate)));
            let intervals = estimates.iter().filter_map(|(x, of)| Some((*x, range(of.as_ref()?)?)));
            Line::new(*name, series, points).with_intervals(intervals.collect())
        };
        let lines: Vec<Line> = names.iter().enumerate().map(line).collect();
        let points = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
        let ends = lines.iter().flat_map(|line| &line.intervals);
        let ends = ends.flat_map(|(_, ends)| [ends.start, ends.end]);
        LineChart {
            title: self.title(&family.title),
            note: String::new(),
            x: Axis::places(family.parameter.as_str(), &family.numbers),
            y: self.axis(points.chain(ends)),
            lines,
        }
        .figure()
    }

    /// A row for each contender in one cell.
    fn rows(&self, cell: usize) -> Figure {
        let row = |(series, name): (usize, &&str)| {
            let estimate = self.estimate(name, cell)?;
            let interval = range(&estimate);
            Some(IntervalRow { name: name.to_string(), value: estimate.value, interval, series })
        };
        let rows: Vec<IntervalRow> = self.names().iter().enumerate().filter_map(row).collect();
        let values = rows.iter().flat_map(|row| {
            let interval = row.interval.clone().unwrap_or(row.value..row.value);
            [row.value, interval.start, interval.end]
        });
        IntervalChart {
            title: self.title(&self.report.settings.cells[cell].to_string()),
            note: String::new(),
            x: self.axis(values),
            marks: Vec::new(),
            rows,
        }
        .figure()
    }

    fn names(&self) -> Vec<&str> {
        self.report.settings.contenders.specs.iter().map(|spec| spec.name.as_str()).collect()
    }

    /// Times in ns, and others as they are.
    fn estimate(&self, contender: &str, cell: usize) -> Option<Estimate> {
        let Estimate { value, interval } = self.values.estimate(self.metric, contender, cell)?;
        let scale = if self.is_time() { 1e3 } else { 1.0 };
        let interval = interval.map(|crate::stats::Interval { low, high }| {
            crate::stats::Interval { low: low * scale, high: high * scale }
        });
        Some(Estimate { value: value * scale, interval })
    }

    fn is_time(&self) -> bool {
        self.metric.key.ends_with("_us")
    }

    fn title(&self, what: &str) -> String {
        let label = label(self.metric);
        if what.is_empty() { label.to_owned() } else { format!("{label}, {what}") }
    }

    /// Latencies by ratios, the rest from 0.
    fn axis(&self, values: impl Iterator<Item = f64>) -> Axis {
        let known = values.filter(|value| value.is_finite() && *value > 0.0);
        let Range { start, end } = known.fold(f64::INFINITY..0.0, |range: Range<f64>, value| {
            range.start.min(value)..range.end.max(value)
        });
        let title = label(self.metric).trim_end_matches(" µs");
        match (Subject::of(self.metric), self.is_time()) {
            (Subject::Latency, _) => Axis::log(title, start..end, text::nanoseconds),
            (_, true) => Axis::linear(title, 0.0..end, text::nanoseconds),
            (_, false) => Axis::linear(title, 0.0..end, text::short),
        }
    }
}

fn range(estimate: &Estimate) -> Option<Range<f64>> {
    estimate.interval.map(|interval| interval.low..interval.high)
}
