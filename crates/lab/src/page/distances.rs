//! How far each contender is from the best one in each cell.

use crate::bench::{Metric, Report};

/// Up to here a contender counts as good as the best.
pub(super) const NEAR: f64 = 1.02;

/// Distances by one metric: 1 for the best of a cell, 2 for twice as bad.
pub(super) struct Distances<'a> {
    pub(super) metric: &'a Metric,
    pub(super) contenders: Vec<&'a str>,
    /// By cell and contender; none if a contender has no value there.
    pub(super) cells: Vec<Vec<Option<f64>>>,
}

/// The distances of one contender, in all cells in which it has a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Overall {
    /// The geometric mean.
    pub(super) mean: f64,
    /// The largest, and its cell.
    pub(super) worst: (f64, usize),
    /// In how many cells it is as good as the best.
    pub(super) near: usize,
    /// In how many cells it has a value.
    pub(super) cells: usize,
}

impl<'a> Distances<'a> {
    /// By this metric.
    pub(super) fn new(report: &'a Report, metric: &'a Metric) -> Distances<'a> {
        let contenders: Vec<&str> =
            report.settings.contenders.specs.iter().map(|spec| spec.name.as_str()).collect();
        let known = report.envelopes.iter().find(|envelope| envelope.metric == metric.key);
        let cells = (0..report.settings.cells.len()).map(|cell| {
            let distance = |name: &&str| {
                let of = known?.contenders.iter().find(|of| of.contender == **name)?;
                Some(of.cells.get(cell)?.as_ref()?.ratio.median)
            };
            contenders.iter().map(distance).collect()
        });
        Distances { metric, cells: cells.collect(), contenders }
    }

    /// By every metric that is compared, the one that decides the winner first.
    pub(super) fn all(report: &'a Report) -> Vec<Distances<'a>> {
        let compared = report.settings.metrics.iter().filter(|metric| metric.is_compared());
        let mut all: Vec<Distances<'_>> =
            compared.map(|metric| Distances::new(report, metric)).collect();
        all.retain(|of| of.cells.iter().flatten().any(Option::is_some));
        all.sort_by_key(|of| of.metric.role != crate::bench::Role::Primary);
        all
    }

    /// The distances of a contender; none if it has no value anywhere.
    pub(super) fn overall(&self, contender: usize) -> Option<Overall> {
        let cells = self.cells.iter().enumerate();
        let known: Vec<(f64, usize)> =
            cells.filter_map(|(cell, of)| Some(((*of.get(contender)?)?, cell))).collect();
        let worst = known.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let logarithms: f64 = known.iter().map(|(distance, _)| distance.ln()).sum();
        Some(Overall {
            mean: (logarithms / known.len() as f64).exp(),
            worst,
            near: known.iter().filter(|(distance, _)| *distance <= NEAR).count(),
            cells: known.len(),
        })
    }

    /// The contender with the least mean distance, of those that have a value in the most cells.
    pub(super) fn closest(&self) -> Option<(usize, Overall)> {
        let all =
            (0..self.contenders.len()).filter_map(|index| Some((index, self.overall(index)?)));
        let order = |(_, of): &(usize, Overall)| (usize::MAX - of.cells, of.mean);
        all.min_by(|a, b| {
            let (a, b) = (order(a), order(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    }
}
