//! How far a machine moves by itself while a run is measured.

use super::Run;
use crate::bench::{Cell, Metric};
use annulus_load::stats::median;

/// The largest deviation in a cell of either run: of the control from the contender that it copies; and, unless values are
/// taken relative to a reference, of the second half of a contender's rounds from the first.
pub(super) fn of(runs: [Run<'_>; 2], cell: &Cell, metric: &Metric, is_relative: bool) -> f64 {
    let deviation = |run: &Run<'_>| {
        let Some(cell) = run.bench.cells.iter().position(|known| known == cell) else { return 0.0 };
        let control = control(run, cell, metric);
        if is_relative { control } else { control.max(drift(run, cell, metric)) }
    };
    runs.iter().map(deviation).fold(0.0, f64::max)
}

/// The farther end of the control's 95 % interval, or how far its median is off if it has none; 0 without a control.
fn control(run: &Run<'_>, cell: usize, metric: &Metric) -> f64 {
    let Some(control) = run.bench.contenders.control_index() else { return 0.0 };
    let ratio = run.record.ratio(metric, control, 0, cell);
    ratio.map_or(0.0, |ratio| match ratio.interval {
        Some(_) => ratio.reach(),
        None => (ratio.median - 1.0).abs(),
    })
}

/// The median over the contenders of how far their halves differ: a slow phase affects all of them.
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
