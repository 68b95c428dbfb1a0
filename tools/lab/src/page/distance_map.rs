//! How far each contender is from the best one in each cell: the envelopes of a report, for tables and tiles.

use crate::bench::{self, Envelope, Metric, Report, Standing};

/// Up to here a distance is marked as good as the best.
pub(super) const NEAR: f64 = 1.02;

/// The heat map of one metric, as numbers: each contender in each cell, 1 for the best of a cell, 2 for twice as bad.
pub(super) struct DistanceMap<'a> {
    pub(super) metric: &'a Metric,
    pub(super) contenders: Vec<&'a bench::Distances>,
}

/// The distances of one contender over all cells that are not worthless.
pub(super) struct Overall<'a> {
    pub(super) contender: &'a str,
    /// The geometric mean.
    pub(super) mean: f64,
    /// The largest, and its cell.
    pub(super) worst: &'a bench::Worst,
    /// In how many cells it is the best, or cannot be distinguished from it.
    pub(super) best_or_tied: usize,
    /// How many cells there are.
    pub(super) cells: usize,
}

impl<'a> DistanceMap<'a> {
    /// By every metric that is compared, the one that decides the winner first.
    pub(super) fn all(report: &'a Report) -> Vec<DistanceMap<'a>> {
        let of = |envelope: &'a Envelope| {
            let mut metrics = report.settings.metrics.iter();
            let metric = metrics.find(|metric| metric.key == envelope.metric)?;
            let is_measured = envelope.best.iter().any(Option::is_some);
            let contenders = envelope.contenders.iter().collect();
            is_measured.then_some(DistanceMap { metric, contenders })
        };
        report.envelopes.iter().filter_map(of).collect()
    }

    /// The distances of a contender over all cells; none if one of them lacks a value, or no cell is worth anything.
    pub(super) fn overall(of: &'a bench::Distances) -> Option<Overall<'a>> {
        let known = of.cells.iter().flatten().map(|distance| distance.standing);
        let known: Vec<Standing> = known.filter(|it| *it != Standing::Worthless).collect();
        Some(Overall {
            contender: &of.contender,
            mean: of.mean?.median,
            worst: of.worst.as_ref()?,
            best_or_tied: known.iter().filter(|standing| standing.is_best_or_tied()).count(),
            cells: known.len(),
        })
    }

    /// The contender with the least mean distance.
    pub(super) fn closest(&self) -> Option<Overall<'a>> {
        let all = self.contenders.iter().filter_map(|of| DistanceMap::overall(of));
        all.min_by(|a, b| a.mean.total_cmp(&b.mean))
    }
}
