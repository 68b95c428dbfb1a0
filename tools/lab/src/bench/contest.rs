//! The contenders of one cell, compared by one metric.

use std::collections::BTreeMap;

use super::Bench;
use super::metric::{Better, Metric};
use super::record::Record;
use crate::stats::{MISS, Ratio, shared_miss};

/// How far from 1 the whole interval of the control may lie; beyond that, the cell is worthless. Smaller differences between
/// contenders are none: two starts of one program differ by some percent too.
pub(super) const MARGIN: f64 = 0.02;

/// Half the width that the control's interval may have; beyond that, a cell without a winner is worthless.
const CONTROL_HALF_WIDTH: f64 = 0.10;

/// Whether the control differs so much from the contender that it copies that the cell is worthless.
pub(super) fn control_failed(control: Ratio) -> bool {
    control.distance() > MARGIN || is_unsteady(control)
}

/// Whether the control's interval is too wide.
pub(super) fn is_unsteady(control: Ratio) -> bool {
    control.half_width() > Some(CONTROL_HALF_WIDTH)
}

/// A cell and a metric.
#[derive(Clone, Copy)]
pub(super) struct Contest<'a> {
    pub(super) bench: &'a Bench,
    pub(super) record: &'a Record,
    pub(super) cell: usize,
    pub(super) metric: &'a Metric,
}

impl Contest<'_> {
    /// The best value; none if none has one. A contender with failures is not eligible.
    pub(super) fn best(&self) -> Option<usize> {
        let value = |index: usize| self.record.value(self.metric, index, self.cell);
        let cost = |index: usize| match (value(index)?, self.metric.better) {
            (value, Better::Higher) => Some(-value),
            (value, Better::Lower) => Some(value),
        };
        let contenders = 0..self.bench.contenders.specs.len();
        let costs = contenders
            .filter(|&index| !self.has_failed(index))
            .filter_map(|index| Some((index, cost(index)?)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
    }

    /// Whether a slice of this contender failed.
    pub(super) fn has_failed(&self, contender: usize) -> bool {
        self.record.outcomes(contender, self.cell).any(Result::is_err)
    }

    /// The ratio of two contenders, with an interval that holds together with those of all other cells.
    ///
    /// The family is the verdicts of the run, one a cell, and not all pairs: a winner must differ from each of the others, so
    /// that a wrong one needs that the interval to the very contender that is as good has missed.
    pub(super) fn ratio(&self, contender: usize, other: usize) -> Option<Ratio> {
        self.ratio_missing(contender, other, shared_miss(self.bench.cells.len()))
    }

    /// The ratio of the control to the contender that it copies, with its own 95 % interval; none without a control.
    pub(super) fn control(&self) -> Option<Ratio> {
        self.ratio_missing(self.bench.contenders.control_index()?, 0, MISS)
    }

    fn ratio_missing(&self, contender: usize, other: usize, miss: f64) -> Option<Ratio> {
        let ratios = self.record.ratios(self.metric, contender, other, self.cell);
        Ratio::of(&ratios.into_values().collect::<Vec<_>>(), miss)
    }

    /// The ratio of two contenders, inverted if higher is better, so that lower is better.
    pub(super) fn cost(&self, contender: usize, other: usize) -> Option<Ratio> {
        let ratio = self.ratio(contender, other)?;
        Some(if self.metric.better == Better::Higher { ratio.inverse() } else { ratio })
    }

    /// Whether a contender is better than another by more than what may be chance, and by more than the control deviates.
    pub(super) fn is_better(&self, contender: usize, other: usize) -> bool {
        self.cost(contender, other).is_some_and(|cost| cost.is_below_one(self.least()))
    }

    /// The difference that the whole interval of two contenders must exceed.
    pub(super) fn least(&self) -> f64 {
        self.control().map_or(MARGIN, least_difference)
    }

    /// Whether a cell cannot be judged by this metric, since the control is not equal to the contender that it copies.
    pub(super) fn is_worthless(&self) -> bool {
        self.control().is_some_and(|control| control.distance() > MARGIN)
    }

    /// The costs of a contender as multiples of another's, by round.
    pub(super) fn costs(&self, contender: usize, other: usize) -> BTreeMap<usize, f64> {
        let (a, b) = match self.metric.better {
            Better::Lower => (contender, other),
            Better::Higher => (other, contender),
        };
        self.record.ratios(self.metric, a, b, self.cell)
    }
}

/// The difference that the whole interval of two contenders must exceed: the margin, or how much the control deviates if
/// that is more. If the control is unsteady, that is the farther end of its interval.
fn least_difference(control: Ratio) -> f64 {
    let deviation =
        if is_unsteady(control) { control.reach() } else { (control.median - 1.0).abs() };
    deviation.max(MARGIN)
}
