//! The contenders of one cell, compared by one metric.

use annulus_load::stats::{
    DEFAULT_MARGIN, Interval, MISS_PROBABILITY, Ratio, Verdict, shared_miss,
};

use super::Bench;
use super::metric::{Better, Metric};
use super::record::Record;

/// Maximum half width of the control's interval. A wider one means that the machine is too
/// unsteady.
const MAX_CONTROL_HALF_WIDTH: f64 = 0.10;

/// Maximum share of failed slices. Beyond it the remaining slices are not a fair sample, so the
/// contender is not compared.
pub(super) const MAX_FAILED_SHARE: f64 = 0.2;

/// Contenders whose shares of refused requests differ by more than this did different work.
const MAX_REFUSED_DIFFERENCE: f64 = 0.001;

/// Contenders did different work if the larger reply exceeds the smaller one by more than this
/// share plus [`MAX_REPLY_EXTRA_BYTES`], which allows for different headers.
const MAX_REPLY_SIZE_RATIO: f64 = 0.25;
const MAX_REPLY_EXTRA_BYTES: f64 = 512.0;

/// The key in a sample for the number of refused requests. [`RECEIVED_KEY`] is the key for the
/// total bytes of all replies.
pub(crate) const REFUSED_KEY: &str = "refused";
pub(crate) const RECEIVED_KEY: &str = "received_bytes";

/// The ratio of a contender to itself.
const SELF_RATIO: Ratio = Ratio { median: 1.0, interval: Some(Interval { low: 1.0, high: 1.0 }) };

/// Returns true if the control deviates too far from the contender that it copies, or varies too
/// much, for small effects to be found.
pub(super) fn control_failed(control: Ratio) -> bool {
    control_differs(control) || control.half_width() > Some(MAX_CONTROL_HALF_WIDTH)
}

/// Returns true if the control deviates too far from the contender that it copies. Otherwise a
/// control that failed varies too much.
pub(super) fn control_differs(control: Ratio) -> bool {
    control.distance() > DEFAULT_MARGIN
}

#[derive(Clone, Copy)]
pub(super) struct Contest<'a> {
    pub(super) bench: &'a Bench,
    pub(super) record: &'a Record,
    pub(super) cell: usize,
    pub(super) metric: &'a Metric,
}

impl Contest<'_> {
    /// Returns the contender with the best value, or `None` if no contender has a value. Contenders
    /// that failed too often are not eligible.
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

    /// Returns true if too many slices of this contender failed.
    pub(super) fn has_failed(&self, contender: usize) -> bool {
        let [failed, all] = self.record.failed(contender, self.cell);
        failed as f64 > MAX_FAILED_SHARE * all as f64
    }

    /// Returns why nothing can be compared in this cell, whatever its figures.
    pub(super) fn void(&self) -> Option<String> {
        let all = 0..self.bench.contenders.all().count();
        let failed = all.clone().find(|&index| self.has_failed(index)).map(|index| {
            let [failed, all] = self.record.failed(index, self.cell);
            let mut errors =
                self.record.outcomes(index, self.cell).filter_map(|it| it.as_ref().err());
            let why = errors.next().map_or("", String::as_str);
            format!("{} failed in {failed} of {all} slices: {why}", self.name(index))
        });
        failed.or_else(|| self.different_work())
    }

    /// Returns which contenders did different work: one refused more requests, or sent smaller
    /// replies.
    fn different_work(&self) -> Option<String> {
        let each = |key: &str, of: &dyn Fn(f64, f64) -> bool| {
            let share =
                |index| Some((self.record.share(key, "operations", index, self.cell)?, index));
            let shares: Vec<(f64, usize)> =
                (0..self.bench.contenders.specs.len()).filter_map(share).collect();
            let least = shares.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0))?;
            let most = shares.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
            of(least.0, most.0).then_some([most, least])
        };
        let refused = each(REFUSED_KEY, &|least, most| most - least > MAX_REFUSED_DIFFERENCE);
        let refused = refused.map(|[most, least]| {
            let [a, b] = [most, least].map(|(share, index)| (100.0 * share, self.name(index)));
            format!("{} refused {:.1} % of its requests, and {} {:.1} %", a.1, a.0, b.1, b.0)
        });
        let differs = |least: f64, most: f64| {
            most > least * (1.0 + MAX_REPLY_SIZE_RATIO) + MAX_REPLY_EXTRA_BYTES
        };
        let sizes = || {
            let [most, least] = each(RECEIVED_KEY, &differs)?;
            let [a, b] = [most, least].map(|(bytes, index)| (bytes.round(), self.name(index)));
            Some(format!("a reply of {} has {} bytes, and one of {} has {}", a.1, a.0, b.1, b.0))
        };
        Some(refused.or_else(sizes)? + ": they did not do the same work")
    }

    /// Returns the ratio of two contenders, with an interval from which the verdicts on all cells
    /// are right together.
    pub(super) fn ratio(&self, contender: usize, other: usize) -> Option<Ratio> {
        self.ratio_missing(contender, other, self.miss())
    }

    /// Returns the probability with which the intervals of this cell may miss.
    ///
    /// The correction counts the verdicts of the run, one per cell, not all pairs of contenders. A
    /// subject wins only if it differs from every rival, so a wrong win of a contender requires one
    /// particular interval to miss: the one against the rival that is equally good. The correction
    /// does not count that the best contender of each side is chosen by the same rounds: if several
    /// are equally good, that makes a wrong win or a wrong loss likelier.
    ///
    /// If further rounds depend on the verdict so far, the correction also counts how often it is
    /// looked at.
    pub(super) fn miss(&self) -> f64 {
        let rounds = self.record.rounds_of(self.cell);
        shared_miss(self.bench.cells.len()) * self.bench.plan.rounds.error_share(rounds)
    }

    /// Returns the ratio of the control to the contender that it copies, with a 95 % interval of
    /// its own; `None` without a control.
    pub(super) fn control(&self) -> Option<Ratio> {
        self.ratio_missing(self.bench.contenders.control_index()?, 0, MISS_PROBABILITY)
    }

    fn ratio_missing(&self, contender: usize, other: usize, miss: f64) -> Option<Ratio> {
        let ratios = self.record.ratios(self.metric, contender, other, self.cell);
        Ratio::of(&ratios.into_values().collect::<Vec<_>>(), miss)
    }

    /// Returns the ratio of two contenders, inverted if higher is better, so that lower is always
    /// better.
    pub(super) fn cost(&self, contender: usize, other: usize) -> Option<Ratio> {
        if contender == other {
            return Some(SELF_RATIO);
        }
        let ratio = self.ratio(contender, other)?;
        Some(if self.metric.better == Better::Higher { ratio.inverse() } else { ratio })
    }

    /// Returns the difference that the whole interval of two contenders must exceed: the margin, or
    /// the deviation of the control if that is larger. If the control failed, only much larger
    /// differences count: the result is then twice the distance from 1 of the far end of the
    /// control's interval.
    pub(super) fn min_difference(&self) -> f64 {
        let deviation = self.control().map_or(0.0, |control| match control_failed(control) {
            true => 2.0 * control.reach(),
            false => (control.median - 1.0).abs(),
        });
        deviation.max(DEFAULT_MARGIN)
    }

    pub(super) fn verdict(&self, contender: usize, other: usize) -> Verdict {
        if self.void().is_some() {
            return Verdict::Void;
        }
        let cost = self.cost(contender, other);
        let found =
            cost.map_or(Verdict::Undecided, |cost| Verdict::of(cost, self.min_difference()));
        let is_void = || self.control().is_some_and(control_failed);
        if !found.is_different() && is_void() { Verdict::Void } else { found }
    }

    /// Returns the cheapest of these contenders, without those that failed too often, or `None` if
    /// all of them failed too often.
    pub(super) fn best_of(&self, contenders: &[usize]) -> Option<usize> {
        let first = contenders.iter().copied().find(|&index| !self.has_failed(index))?;
        let costs = contenders
            .iter()
            .filter(|&&index| !self.has_failed(index))
            .filter_map(|&index| Some((index, self.cost(index, first)?.median)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
    }

    pub(super) fn name(&self, contender: usize) -> &str {
        self.bench.contenders.all().nth(contender).map_or("", |spec| &spec.name)
    }
}
