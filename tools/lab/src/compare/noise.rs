//! The noise of a machine while a run is measured.

use super::Run;
use crate::bench::{Cell, Metric};
use annulus_load::stats::median;

/// Returns the largest deviation in a cell of either run: of the control from the contender that it
/// copies and, unless values are relative to a reference, of the second half of the rounds from the
/// first.
pub(super) fn of(runs: [Run<'_>; 2], cell: &Cell, metric: &Metric, is_relative: bool) -> f64 {
    let deviation = |run: &Run<'_>| {
        let Some(cell) = run.bench.cells.iter().position(|known| known == cell) else { return 0.0 };
        let control = control(run, cell, metric);
        if is_relative { control } else { control.max(drift(run, cell, metric)) }
    };
    runs.iter().map(deviation).fold(0.0, f64::max)
}

/// Returns the distance from 1 of the far end of the control's 95 % interval, or of its median if
/// it has no interval; 0 without a control.
fn control(run: &Run<'_>, cell: usize, metric: &Metric) -> f64 {
    let Some(control) = run.bench.contenders.control_index() else { return 0.0 };
    let ratio = run.record.ratio(metric, control, 0, cell);
    ratio.map_or(0.0, |ratio| match ratio.interval {
        Some(_) => ratio.reach(),
        None => (ratio.median - 1.0).abs(),
    })
}

/// Returns the relative difference between the halves of the rounds, as the median over all
/// contenders. A slow phase affects all contenders.
fn drift(run: &Run<'_>, cell: usize, metric: &Metric) -> f64 {
    let halves = |contender: usize| {
        let values = run.record.values(metric, contender, cell);
        let (first, second) = values.split_at(values.len() / 2);
        let ratio = median(second)? / median(first)?;
        (ratio.is_finite() && ratio > 0.0).then(|| ratio.max(1.0 / ratio) - 1.0)
    };
    let found: Vec<f64> = (0..run.bench.contenders.all().count()).filter_map(halves).collect();
    median(&found).unwrap_or(0.0)
}
