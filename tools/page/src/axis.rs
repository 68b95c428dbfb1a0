//! Axes: a range, its scale and its labelled values.

use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};
use std::ops::Range;

/// One axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    title: String,
    low: f64,
    high: f64,
    label: fn(f64) -> String,
    /// Whether equal distances are equal ratios.
    is_logarithmic: bool,
    /// The labelled values, or `None` if they are derived from the range.
    ticks: Option<Vec<f64>>,
}

/// Maximum number of labels on a linear axis.
const MAX_TICKS: usize = 7;

impl Axis {
    /// Creates a linear axis. The range is widened to round values, and `label` formats a value. A
    /// range that is empty or not finite is replaced by one that can be drawn.
    pub fn linear(title: impl Into<String>, range: Range<f64>, label: fn(f64) -> String) -> Axis {
        let Range { start, end } = finite(range, 0.0..1.0);
        let end = if end > start { end } else { start + start.abs().max(1.0) };
        let step = step(end - start);
        let (low, high) = ((start / step).floor() * step, (end / step).ceil() * step);
        Axis { title: title.into(), low, high, label, is_logarithmic: false, ticks: None }
    }

    /// Creates a logarithmic axis. The range is widened to 1, 2 or 5 times a power of ten, and
    /// `label` formats a value. A range that is not positive and finite is replaced by one that can
    /// be drawn.
    pub fn logarithmic(
        title: impl Into<String>,
        range: Range<f64>,
        label: fn(f64) -> String,
    ) -> Axis {
        let Range { start, end } = finite(range, 1.0..10.0);
        let start = if start > 0.0 { start } else { 1.0 };
        let low = 1.0 / round_up(1.0 / start);
        let high = round_up(end.max(low * 1.001));
        Axis { title: title.into(), low, high, label, is_logarithmic: true, ticks: None }
    }

    /// Creates a vertical axis of rows from the top, each with a line at its middle
    /// ([`row_middle`]).
    pub(crate) fn rows(count: usize) -> Axis {
        Axis {
            title: String::new(),
            low: 0.0,
            high: count.max(1) as f64,
            label: |_| String::new(),
            is_logarithmic: false,
            ticks: Some((0..count).map(|row| row_middle(row, count)).collect()),
        }
    }

    /// Returns the title of the axis.
    pub fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn low(&self) -> f64 {
        self.low
    }

    /// Returns the position of a value between the ends, from 0 to 1. Values beyond the ends are
    /// clamped.
    fn share(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Returns the labelled values and their labels.
    pub(crate) fn labels(&self) -> Vec<(f64, String)> {
        let ticks = self.ticks.clone().unwrap_or_else(|| self.chosen_ticks());
        // Rounding errors must not drop the last label.
        let slack = (self.high - self.low) * 1e-9;
        let inside = |tick: &f64| (self.low - slack..=self.high + slack).contains(tick);
        ticks.into_iter().filter(inside).map(|tick| (tick, (self.label)(tick))).collect()
    }

    pub(crate) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    fn chosen_ticks(&self) -> Vec<f64> {
        if self.is_logarithmic { self.logarithmic_ticks() } else { self.linear_ticks() }
    }

    /// Returns 1, 2 and 5 times the powers of ten, or only the powers if these would be too many.
    fn logarithmic_ticks(&self) -> Vec<f64> {
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let digits = if powers.clone().count() > 4 { &[1.0][..] } else { &[1.0, 2.0, 5.0] };
        powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power))).collect()
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let step = step(self.high - self.low);
        let first = (self.low / step).ceil();
        (0..=MAX_TICKS + 1).map(|n| (first + n as f64) * step).collect()
    }
}

/// The drawing library's view of an axis.
impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        first + (self.share(*value) * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // There are no lines between labelled values.
        match hint.weight() {
            KeyPointWeight::Bold => self.labels().into_iter().map(|(tick, _)| tick).collect(),
            KeyPointWeight::Any => Vec::new(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let label = self.labels().into_iter().find(|(tick, _)| tick == value);
        label.map_or(String::new(), |(_, label)| label)
    }
}

/// Returns the position of the middle of a row on [`Axis::rows`].
pub(crate) fn row_middle(row: usize, rows: usize) -> f64 {
    (rows - row) as f64 - 0.5
}

/// Returns the range, or `otherwise` if one of its ends is not finite.
fn finite(range: Range<f64>, otherwise: Range<f64>) -> Range<f64> {
    if range.start.is_finite() && range.end.is_finite() { range } else { otherwise }
}

/// Returns the distance between labels on a linear axis of this length: 1, 2 or 5 times a power of
/// ten.
fn step(length: f64) -> f64 {
    round_up(length / (MAX_TICKS - 1) as f64)
}

/// Rounds a positive value up to 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    digits.into_iter().find(|round| *round >= value * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: f64) -> String {
        format!("{value}")
    }

    fn labels(axis: &Axis) -> Vec<String> {
        axis.labels().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn linear_axes_begin_and_end_at_round_values() {
        let axis = Axis::linear("", 0.0..84_000.0, plain);
        assert_eq!(axis.low..axis.high, 0.0..100_000.0);
        assert_eq!(labels(&axis), ["0", "20000", "40000", "60000", "80000", "100000"]);
        assert_eq!(Axis::linear("", 0.97..1.06, plain).low, 0.96);
    }

    #[test]
    fn logarithmic_axes_label_powers_of_ten() {
        let axis = Axis::logarithmic("", 30.0..4_000.0, plain);
        assert_eq!((axis.low.round(), axis.high), (20.0, 5000.0));
        assert_eq!(labels(&axis), ["20", "50", "100", "200", "500", "1000", "2000", "5000"]);
        let places = [20.0, 316.2, 5000.0].map(|value| axis.map(&value, (0, 100)));
        assert_eq!(places, [0, 50, 100]);
        let wide = Axis::logarithmic("", 1.0..1e6, plain);
        assert_eq!(labels(&wide), ["1", "10", "100", "1000", "10000", "100000", "1000000"]);
        for range in [0.0..0.0, -1.0..5.0, f64::NAN..1.0, 3.0..3.0] {
            let axis = Axis::logarithmic("", range.clone(), plain);
            assert!(axis.low > 0.0 && axis.low < axis.high, "{range:?}: {axis:?}");
        }
    }

    #[test]
    fn empty_and_infinite_ranges_become_drawable() {
        let ranges = [5.0..5.0, 0.0..0.0, f64::NAN..1.0, 0.0..f64::INFINITY, -1.0..0.0];
        for range in ranges {
            let axis = Axis::linear("", range.clone(), plain);
            assert!(axis.low < axis.high, "{range:?}: {axis:?}");
            let places = [f64::NAN, axis.low, axis.high].map(|value| axis.map(&value, (5, 9)));
            assert_eq!(places, [5, 5, 9]);
        }
    }
}
