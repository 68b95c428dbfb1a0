//! Lines over one axis: values over time, or by percentile.

use crate::axis::Axis;
use crate::canvas::{self, Mark};
use crate::figure::{Figure, Key};
use crate::ink::Ink;
use std::ops::Range;

/// The width of a line, in units of the drawing.
const THICK: u32 = 4;

/// The width of an interval.
const INTERVAL: u32 = 6;

/// Lines in one plane.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// The title of the chart.
    pub title: String,
    /// A sentence below; may be empty.
    pub note: String,
    /// The axis along the bottom.
    pub x: Axis,
    /// The upright axis.
    pub y: Axis,
    /// The lines, drawn in this order.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name in the key; lines with an empty name have none there.
    pub name: String,
    /// The colour: one of [`SERIES`](crate::SERIES).
    pub series: usize,
    /// The points of the line. Where one is not a number, the line is interrupted.
    pub points: Vec<(f64, f64)>,
    /// Intervals of the values, each at its place on the axis along the bottom. If there are any, points are marked.
    pub intervals: Vec<(f64, Range<f64>)>,
}

impl Line {
    /// A line through points.
    pub fn new(
        name: impl Into<String>,
        series: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Line {
        let points = points.into_iter().collect();
        Line { name: name.into(), series, points, intervals: Vec::new() }
    }

    /// The line, with these intervals.
    pub fn with_intervals(self, intervals: Vec<(f64, Range<f64>)>) -> Line {
        Line { intervals, ..self }
    }

    /// A line of values that each hold for a range.
    pub fn steps(
        name: impl Into<String>,
        series: usize,
        values: impl IntoIterator<Item = (Range<f64>, f64)>,
    ) -> Line {
        let ends = values
            .into_iter()
            .flat_map(|(Range { start, end }, value)| [(start, value), (end, value)]);
        Line::new(name, series, ends)
    }

    /// The parts without a gap.
    fn parts(&self) -> impl Iterator<Item = &[(f64, f64)]> {
        let parts = self.points.split(|(x, y)| !x.is_finite() || !y.is_finite());
        parts.filter(|part| !part.is_empty())
    }

    fn key(&self) -> Key {
        Key { ink: Ink::Series(self.series).name(), name: self.name.clone() }
    }

    fn marks(&self) -> Vec<Mark> {
        let ink = Ink::Series(self.series);
        let mark = |part: &[(f64, f64)]| match part {
            [point] => Mark::Dot(ink, *point),
            points => Mark::Path(ink, THICK, points.to_vec()),
        };
        self.parts().map(mark).chain(self.uncertain()).collect()
    }

    /// The intervals as upright lines, and the points as dots on them.
    fn uncertain(&self) -> Vec<Mark> {
        let ink = Ink::Series(self.series);
        let interval = |(x, Range { start, end }): &(f64, Range<f64>)| {
            Mark::Path(ink, INTERVAL, vec![(*x, *start), (*x, *end)])
        };
        let points = if self.intervals.is_empty() { &[][..] } else { &self.points };
        let seen = points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let dots = seen.map(|point| Mark::Dot(ink, *point));
        self.intervals.iter().map(interval).chain(dots).collect()
    }
}

impl LineChart {
    /// The chart, drawn.
    pub fn figure(&self) -> Figure {
        let marks: Vec<Mark> = self.lines.iter().flat_map(Line::marks).collect();
        let named = self.lines.iter().filter(|line| !line.name.is_empty());
        Figure {
            title: self.title.clone(),
            note: self.note.clone(),
            has_data: !marks.is_empty(),
            svg: canvas::draw((canvas::WIDTH, canvas::HEIGHT), &self.x, &self.y, &marks),
            key: named.map(Line::key).collect(),
            is_wide: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn chart(lines: Vec<Line>) -> Figure {
        let x = Axis::linear("time", 0.0..10.0, text::number);
        let y = Axis::log("latency", 1e3..1e6, text::nanoseconds);
        LineChart { title: "Latency".into(), note: String::new(), x, y, lines }.figure()
    }

    #[test]
    fn lines_are_drawn_in_their_colours_with_a_key() {
        let lines = vec![
            Line::new("p50", 0, [(0.0, 2e3), (10.0, 3e3)]),
            Line::steps("p99 <of all>", 2, [(0.0..5.0, 2e5), (5.0..10.0, 3e5)]),
        ];
        let figure = chart(lines);
        assert!(figure.has_data);
        assert!(figure.svg.contains("stroke-s0") && figure.svg.contains("stroke-s2"));
        assert!(figure.svg.contains("1 ms") && figure.svg.contains("latency"), "{}", figure.svg);
        assert!(figure.svg.starts_with("<svg viewBox=\"0 0 960 600\""), "{}", figure.svg);
        assert!(!figure.svg.contains("#0000"), "a colour without a class: {}", figure.svg);
        assert_eq!(figure.key[1], Key { ink: "s2".into(), name: "p99 <of all>".into() });
    }

    #[test]
    fn gaps_interrupt_a_line_and_a_single_point_is_a_dot() {
        let figure =
            chart(vec![Line::new("", 1, [(0.0, 2e3), (1.0, f64::NAN), (2.0, 2e3), (3.0, 4e3)])]);
        assert_eq!(figure.svg.matches("fill-s1").count(), 1);
        assert_eq!(figure.svg.matches("stroke-s1").count(), 1);
        assert!(figure.key.is_empty());
    }

    #[test]
    fn intervals_are_upright_and_their_points_are_marked() {
        let line = Line::new("", 7, [(0.0, 2e3), (10.0, 4e3)]);
        let figure = chart(vec![line.with_intervals(vec![(0.0, 1e3..3e3), (10.0, 3e3..5e3)])]);
        assert_eq!(figure.svg.matches("fill-s7").count(), 2, "{}", figure.svg);
        assert_eq!(figure.svg.matches("stroke-s7").count(), 3, "{}", figure.svg);
    }

    #[test]
    fn a_chart_without_data_says_so() {
        assert!(!chart(vec![Line::new("p50", 0, [])]).has_data);
        assert!(!chart(Vec::new()).has_data);
    }
}
