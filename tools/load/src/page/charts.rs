//! The charts of a recording.

use crate::recording::{ENOUGH_BEYOND, Interval, Latencies, Recording};
use annulus_page::{Axis, Cell, Figure, HeatMap, Line, LineChart, text};
use std::ops::Range;

/// Points of a line by percentile for each factor of ten.
const POINTS: usize = 20;

/// The percentiles up to p99.999, as factors of ten beyond 0.
const DECADES: usize = 5;

/// The most rows of a heat map.
const ROWS: f64 = 44.0;

/// Response and service time by percentile.
pub(super) fn by_percentile(recording: &Recording) -> Figure {
    let total = recording.total();
    let mut lines = vec![Line::new("response time", 0, percentiles(&total.response))];
    if !total.service.is_empty() {
        lines.push(Line::new("service time", 1, percentiles(&total.service)));
    }
    let title = "Latency by percentile";
    let note = "Response time is from when a request was due to the end of its reply, service time from when it was written.";
    percentile_chart(title, note, lines)
}

/// A chart of lines by percentile.
pub(super) fn percentile_chart(title: &str, note: &str, lines: Vec<Line>) -> Figure {
    let ticks = (0..=DECADES as i32).map(|power| 10f64.powi(power)).collect();
    let x = Axis::log("percentile", 1.0..10f64.powi(DECADES as i32), text::percentile);
    let y = latency_axis(lines.iter().flat_map(|line| &line.points).map(|point| point.1));
    LineChart { title: title.into(), note: note.into(), x: x.with_ticks(ticks), y, lines }.figure()
}

/// The latency in ns at 1 ÷ (1 − share), as far as enough samples lie beyond it.
pub(super) fn percentiles(latencies: &Latencies) -> Vec<(f64, f64)> {
    let count = match latencies.is_empty() {
        true => 0.0,
        false => (latencies.len() as f64 / ENOUGH_BEYOND).max(1.0),
    };
    let places = (0..=POINTS * DECADES).map(|step| 10f64.powf(step as f64 / POINTS as f64));
    let at = |place: f64| (place, latencies.quantile(1.0 - 1.0 / place) as f64);
    places.take_while(|place| *place <= count).map(at).collect()
}

/// Percentiles of response times over time.
pub(super) fn over_time(recording: &Recording, columns: &[Interval]) -> Figure {
    let shares = [("p50", 0, 0.5), ("p90", 2, 0.9), ("p99", 1, 0.99), ("max", 3, 1.0)];
    let lines = shares.map(|(name, series, share)| {
        let at = |column: &Interval| {
            let value = column.response.quantile(share) as f64;
            (time(column), if column.response.is_empty() { f64::NAN } else { value })
        };
        Line::steps(name, series, columns.iter().map(at))
    });
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let y = latency_axis(values);
    chart("Response time over time", recording, columns, y, lines.into())
}

/// How many response times lie where.
pub(super) fn heat_map(recording: &Recording, columns: &[Interval]) -> Figure {
    let total = recording.total().response;
    let y = latency_axis([total.min(), total.max()].map(|nanos| nanos as f64));
    let grid = LatencyGrid::new(&total);
    let cells = columns.iter().flat_map(|column| grid.cells(column)).collect();
    HeatMap {
        title: "Heat map of response times".into(),
        note: "How many response times lie in each cell.".into(),
        x: time_axis(recording),
        y,
        cells,
    }
    .figure()
}

/// Requests sent, answered and late over time.
pub(super) fn rates(recording: &Recording, columns: &[Interval]) -> Figure {
    type Count = fn(&Interval) -> u64;
    let counts: [(&str, usize, Count); 3] = [
        ("sent", 5, |column| column.sent),
        ("answered", 0, |column| column.answered),
        ("sent late", 1, |column| column.late),
    ];
    let mut lines: Vec<Line> =
        counts.map(|(name, series, of)| rate_line(name, series, columns, of)).into();
    if let Some(rate) = recording.run.rate {
        lines.insert(0, Line::new("planned", 2, [(0.0, rate), (recording.seconds, rate)]));
    }
    let y = rate_axis("requests a second", &lines);
    chart("Rate over time", recording, columns, y, lines)
}

/// Failures over time, and replies that are not as usual.
pub(super) fn failures(recording: &Recording, columns: &[Interval]) -> Figure {
    let mut lines = vec![rate_line("failed", 3, columns, |column| column.failed)];
    let total = recording.total();
    if total.datagrams.is_some() {
        let lost = |column: &Interval| column.datagrams.map_or(0, |counts| counts.lost);
        lines.push(rate_line("lost", 0, columns, lost));
    }
    let unusual = total.outcomes.keys().filter(|outcome| outcome.as_str() != "2xx").take(4);
    for (series, outcome) in [1, 2, 4, 5].into_iter().zip(unusual) {
        let of = |column: &Interval| column.outcomes.get(outcome).copied().unwrap_or(0);
        lines.push(rate_line(outcome, series, columns, of));
    }
    let y = rate_axis("requests a second", &lines);
    chart("Failures over time", recording, columns, y, lines)
}

fn rate_line(
    name: &str,
    series: usize,
    columns: &[Interval],
    of: impl Fn(&Interval) -> u64,
) -> Line {
    let rate = |column: &Interval| (time(column), of(column) as f64 / column.length);
    Line::steps(name, series, columns.iter().map(rate))
}

fn rate_axis(title: &str, lines: &[Line]) -> Axis {
    let most = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(1.0, f64::max);
    Axis::linear(title, 0.0..most, text::short)
}

fn chart(
    title: &str,
    recording: &Recording,
    columns: &[Interval],
    y: Axis,
    lines: Vec<Line>,
) -> Figure {
    let longest = columns.iter().map(|column| column.length).fold(0.0, f64::max);
    let is_summed = columns.len() < recording.intervals.len();
    let note = if is_summed {
        format!("Each step is {} s.", text::number(longest))
    } else {
        String::new()
    };
    LineChart { title: title.into(), note, x: time_axis(recording), y, lines }.figure()
}

fn time(column: &Interval) -> Range<f64> {
    column.start..column.end()
}

fn time_axis(recording: &Recording) -> Axis {
    let last = recording.intervals.last().map_or(0.0, Interval::end);
    let end = recording.seconds.max(last);
    let end = if end > 0.0 { end } else { 1.0 };
    Axis::linear("time in s", 0.0..end, text::number).exact(0.0..end)
}

/// An axis for latencies in ns, those that are positive numbers.
fn latency_axis(values: impl IntoIterator<Item = f64>) -> Axis {
    let sensible = values.into_iter().filter(|value| *value > 0.0);
    let range = sensible.fold(f64::INFINITY..0.0, |range: Range<f64>, value| {
        range.start.min(value)..range.end.max(value)
    });
    Axis::log("latency", range, text::nanoseconds)
}

/// Rows of equal ratio over all latencies.
struct LatencyGrid {
    low: f64,
    /// The logarithm of the ratio of a row's ends.
    step: f64,
}

impl LatencyGrid {
    fn new(all: &Latencies) -> LatencyGrid {
        let low = (all.min() as f64).max(1.0);
        let decades = (all.max() as f64).max(low).log10() - low.log10();
        // Rows that are narrower than the buckets of a histogram would leave gaps.
        LatencyGrid { low, step: (decades / ROWS).max(0.01) }
    }

    fn cells(&self, column: &Interval) -> Vec<Cell> {
        let mut counts: Vec<(usize, u64)> = Vec::new();
        for &(value, count) in column.response.buckets() {
            let row = self.row(value as f64);
            match counts.last_mut().filter(|(last, _)| *last == row) {
                Some((_, sum)) => *sum += count,
                None => counts.push((row, count)),
            }
        }
        let edge = |row: usize| self.low * 10f64.powf(row as f64 * self.step);
        let cell = |(row, count)| Cell { x: time(column), y: edge(row)..edge(row + 1), count };
        counts.into_iter().map(cell).collect()
    }

    fn row(&self, value: f64) -> usize {
        ((value.max(self.low) / self.low).log10() / self.step) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::RunInfo;

    fn recording(seconds: u32) -> Recording {
        let interval = |n: u32| Interval {
            sent: 1000,
            answered: 1000,
            response: Latencies::from_iter((1..=1000).map(|k| u64::from(n + 1) * k * 100)),
            ..Interval::new(f64::from(n), 1.0)
        };
        let intervals = (0..seconds).map(interval).collect();
        Recording { seconds: f64::from(seconds), intervals, ..Recording::new(RunInfo::default()) }
    }

    #[test]
    fn every_latency_is_in_a_cell() {
        let recording = recording(3);
        let grid = LatencyGrid::new(&recording.total().response);
        for column in &recording.intervals {
            let cells = grid.cells(column);
            assert_eq!(cells.iter().map(|cell| cell.count).sum::<u64>(), 1000);
            assert!(cells.windows(2).all(|pair| pair[0].y.end <= pair[1].y.start), "{cells:?}");
        }
    }

    #[test]
    fn a_line_by_percentile_ends_with_its_samples() {
        let line = percentiles(&Latencies::from_iter((1..=1000).map(|n| n * 1000)));
        assert_eq!((line[0].0, line.len()), (1.0, 2 * POINTS + 1));
        assert!(line.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        assert!(percentiles(&Latencies::default()).is_empty());
    }

    #[test]
    fn runs_of_any_length_have_all_charts() {
        for (seconds, has_data) in [(0, false), (1, true), (1000, true)] {
            let recording = recording(seconds);
            let columns = super::super::columns::of(&recording);
            let figures = [
                by_percentile(&recording),
                over_time(&recording, &columns),
                heat_map(&recording, &columns),
                rates(&recording, &columns),
                failures(&recording, &columns),
            ];
            for figure in figures {
                assert_eq!(figure.has_data, has_data, "{} of {seconds} s", figure.title);
            }
        }
    }
}
