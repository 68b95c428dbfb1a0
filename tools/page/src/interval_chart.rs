use crate::axis::{Axis, row_middle};
use crate::canvas::{self, Mark};
use crate::figure::Figure;
use crate::ink::Ink;
use std::ops::Range;

/// The height of a row: its name, and below it the estimate.
const ROW_HEIGHT: u32 = 84;

/// The top of a row's name, relative to the middle of the row, as a share of the row's height.
const NAME_OFFSET: f64 = 0.46;
/// The position of a row's estimate, relative to the middle of the row, as a share of the row's
/// height.
const ESTIMATE_OFFSET: f64 = -0.2;

/// The height of the parts above and below the rows.
const FRAME_HEIGHT: u32 = 150;

/// A chart of estimates with intervals, one row each.
#[derive(Clone, Debug)]
pub struct IntervalChart {
    /// The caption above the picture.
    pub title: String,
    /// A sentence below the chart; may be empty.
    pub note: String,
    /// The horizontal axis, along which estimates are placed.
    pub x: Axis,
    /// Values marked by a vertical line, such as 1 for ratios.
    pub marks: Vec<f64>,
    /// The rows, from the top.
    pub rows: Vec<IntervalRow>,
}

/// One row: a name, and an estimate with its interval.
#[derive(Clone, Debug)]
pub struct IntervalRow {
    /// The name, shown above the estimate.
    pub name: String,
    /// The estimate; `None` leaves the row without a mark.
    pub value: Option<f64>,
    /// The interval of the estimate, if there is one.
    pub interval: Option<Range<f64>>,
    /// The colour: one of [`SERIES`](crate::SERIES).
    pub series: usize,
}

impl IntervalChart {
    /// Draws the chart as SVG, with its title and note.
    pub fn figure(&self) -> Figure {
        let rows = self.rows.iter().enumerate();
        let estimates = rows.flat_map(|(row, estimate)| self.estimate(row, estimate));
        let marks: Vec<Mark> = self.upright().chain(estimates).collect();
        let size = (canvas::WIDTH, FRAME_HEIGHT + ROW_HEIGHT * self.rows.len() as u32);
        Figure {
            title: self.title.clone(),
            note: self.note.clone(),
            has_data: !self.rows.is_empty(),
            svg: canvas::draw(size, (&self.x, &Axis::rows(self.rows.len())), &marks, &[]),
        }
    }

    fn upright(&self) -> impl Iterator<Item = Mark> {
        let height = self.rows.len() as f64;
        self.marks
            .iter()
            .map(move |&mark| Mark::Path(Ink::Axis, 3, vec![(mark, 0.0), (mark, height)]))
    }

    fn estimate(&self, row: usize, estimate: &IntervalRow) -> Vec<Mark> {
        let middle = row_middle(row, self.rows.len());
        let name = Mark::Text(estimate.name.clone(), (self.x.low(), middle + NAME_OFFSET));
        let height = middle + ESTIMATE_OFFSET;
        let ink = Ink::Series(estimate.series);
        let line = estimate.interval.as_ref().map(|interval| {
            let ends = [interval.start, interval.end].map(|end| (end, height));
            Mark::Path(ink, 8, ends.into())
        });
        let dot = estimate.value.map(|value| Mark::Dot(ink, (value, height)));
        line.into_iter().chain(dot).chain([name]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn rows_have_a_dot_and_an_interval_if_there_is_one() {
        let row = |name: &str, interval, series| IntervalRow {
            name: name.into(),
            value: Some(1.05),
            interval,
            series,
        };
        let chart = IntervalChart {
            title: String::new(),
            note: String::new(),
            x: Axis::linear("B ÷ A", 0.9..1.1, text::number),
            marks: vec![1.0],
            rows: vec![row("rate", Some(1.02..1.08), 0), row("p99", None, 1)],
        };
        let svg = chart.figure().svg;
        assert_eq!(svg.matches("fill-s0").count() + svg.matches("fill-s1").count(), 2, "{svg}");
        assert_eq!((svg.matches("stroke-s0").count(), svg.matches("stroke-s1").count()), (1, 0));
        assert!(svg.contains("rate") && svg.contains("p99") && svg.contains("B ÷ A"), "{svg}");
    }
}
