//! How many values lie where in a plane.

use crate::axis::Axis;
use crate::canvas::{self, Mark};
use crate::figure::{Figure, Key};
use crate::ink::{HEATS, Ink};
use crate::text;
use std::ops::Range;

/// Counts in cells of a plane, as colours from few to many by powers.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// The title of the map.
    pub title: String,
    /// A sentence below; may be empty.
    pub note: String,
    /// The axis along the bottom.
    pub x: Axis,
    /// The upright axis.
    pub y: Axis,
    /// The cells that hold anything.
    pub cells: Vec<Cell>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The extent of the cell along the bottom.
    pub x: Range<f64>,
    /// The upright extent of the cell.
    pub y: Range<f64>,
    /// How many values it holds.
    pub count: u64,
}

impl HeatMap {
    /// The map, drawn.
    pub fn figure(&self) -> Figure {
        let most = self.cells.iter().map(|cell| cell.count).max().unwrap_or(0);
        let filled = self.cells.iter().filter(|cell| cell.count > 0);
        let marks: Vec<Mark> = filled.map(|cell| cell.mark(most)).collect();
        Figure {
            title: self.title.clone(),
            note: self.note.clone(),
            has_data: !marks.is_empty(),
            svg: canvas::draw((canvas::WIDTH, canvas::HEIGHT), &self.x, &self.y, &marks),
            key: key(most),
            is_wide: false,
        }
    }
}

impl Cell {
    fn mark(&self, most: u64) -> Mark {
        let corners = [(self.x.start, self.y.end), (self.x.end, self.y.start)];
        Mark::Area(Ink::Heat(heat(self.count, most)), corners)
    }
}

/// Counts with their colours: the least, the most, and between them.
fn key(most: u64) -> Vec<Key> {
    let between = [0.25, 0.5, 0.75].map(|share| (most as f64).powf(share) as u64);
    let mut counts: Vec<u64> = [1].into_iter().chain(between).chain([most]).collect();
    counts.dedup();
    let of =
        |count| Key { ink: Ink::Heat(heat(count, most)).name(), name: text::short(count as f64) };
    counts.into_iter().filter(|count| *count > 0).map(of).collect()
}

/// The step of a count on a logarithmic scale: 0 for a single one, the last for the most.
fn heat(count: u64, most: u64) -> usize {
    let share = (count as f64).ln() / (most.max(2) as f64).ln();
    (share * (HEATS - 1) as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_value_is_seen_beside_a_million() {
        assert_eq!((heat(1, 1_000_000), heat(1_000_000, 1_000_000)), (0, HEATS - 1));
        assert_eq!(heat(1000, 1_000_000), (HEATS - 1) / 2);
        assert_eq!(heat(1, 1), 0);
        let names = |most| key(most).into_iter().map(|key| key.name).collect::<Vec<_>>();
        assert_eq!(names(1_000_000), ["1", "31", "1,000", "31.6k", "1M"]);
        assert_eq!((names(1), names(0)), (vec!["1".to_owned()], vec!["1".to_owned()]));
    }

    #[test]
    fn cells_are_drawn_and_empty_ones_are_not() {
        let cell = |at: f64, count| Cell { x: at..at + 1.0, y: 1e3..2e3, count };
        let map = HeatMap {
            title: String::new(),
            note: String::new(),
            x: Axis::linear("", 0.0..3.0, text::number),
            y: Axis::log("", 1e3..1e6, text::nanoseconds),
            cells: vec![cell(0.0, 1), cell(1.0, 0), cell(2.0, 100)],
        };
        let figure = map.figure();
        assert_eq!(figure.svg.matches("fill-h").count(), 2);
        assert!(figure.svg.contains("fill-h0") && figure.svg.contains("fill-h8"));
        assert!(!HeatMap { cells: vec![cell(0.0, 0)], ..map }.figure().has_data);
    }
}
