//! Differences between the settings of two runs, and reasons not to rely on their comparison.

use super::{Change, Options, Run, names};
use crate::bench::are_far;
use annulus_load::stats::{Verdict, median};

/// If all contenders moved in the same direction by more than this, the machine is the likely
/// cause.
const MIN_COMMON_MOVE: f64 = 0.03;

/// Returns the differences in what two runs contain and in how they were set up.
pub(super) fn differences([old, new]: [Run<'_>; 2]) -> Vec<String> {
    let lacks = |side: &str, what: &str, missing: Vec<String>| {
        (!missing.is_empty())
            .then(|| format!("only the {side} run has {what} {}", missing.join(", ")))
    };
    let only = |a: Vec<String>, b: &[String]| -> Vec<String> {
        a.into_iter().filter(|name| !b.contains(name)).collect()
    };
    let [old_names, new_names] = [old, new].map(|run| names(run.bench));
    let cells = |run: Run<'_>| run.bench.cells.iter().map(ToString::to_string).collect();
    let [old_cells, new_cells]: [Vec<String>; 2] = [old, new].map(cells);
    let [old_terms, new_terms] = [old, new].map(|run| run.bench.terms.trim().to_owned());
    let commands = new.bench.contenders.specs.iter().filter_map(|spec| {
        let known = old.bench.contenders.specs.iter().find(|known| known.name == spec.name)?;
        let is_same = known.arguments == spec.arguments;
        (!is_same).then(|| format!("{} was started with other arguments", spec.name))
    });
    [
        lacks("old", "the contenders", only(old_names.clone(), &new_names)),
        lacks("new", "the contenders", only(new_names, &old_names)),
        lacks("old", "the cells", only(old_cells.clone(), &new_cells)),
        lacks("new", "the cells", only(new_cells, &old_cells)),
        (old_terms != new_terms)
            .then(|| format!("measured differently: {old_terms} | {new_terms}")),
    ]
    .into_iter()
    .flatten()
    .chain(commands)
    .collect()
}

/// Returns the reasons not to rely on a comparison.
pub(super) fn all(runs: [Run<'_>; 2], changes: &[Change], options: &Options) -> Vec<String> {
    let common = if options.reference.is_some() { None } else { common(changes) };
    let noise = noise(changes, options.margin);
    [
        machine(runs),
        distance(runs),
        debug_build(runs),
        control(runs),
        noise,
        common,
        rounds(changes),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn machine(runs: [Run<'_>; 2]) -> Option<String> {
    let [old, new] = runs.map(|run| run.environment);
    let others = [
        ("processor", old.cpu != new.cpu),
        ("architecture", old.architecture != new.architecture),
        ("cores", old.cores != new.cores),
        ("kernel", old.kernel != new.kernel),
        ("mitigations", old.mitigations != new.mitigations),
    ];
    let found: Vec<&str> = others.iter().filter(|other| other.1).map(|other| other.0).collect();
    (!found.is_empty()).then(|| {
        format!(
            "the runs are from different machines ({}), which may explain differences: run both on the same one",
            found.join(", ")
        )
    })
}

fn distance(runs: [Run<'_>; 2]) -> Option<String> {
    let [old, new] = runs.map(|run| run.record.nearest());
    let (old, new) = old.zip(new)?;
    are_far(old.max(new), old.min(new)).then(|| {
        format!(
            "a cache line took {old:.0} ns from the servers' core to the load's and back in the old run, and {new:.0} ns in \
             the new one, which may explain differences: run both again"
        )
    })
}

fn debug_build([old, new]: [Run<'_>; 2]) -> Option<String> {
    let runs = match [old, new].map(|run| run.environment.debug_build) {
        [false, false] => return None,
        [true, false] => "the old run is",
        [false, true] => "the new run is",
        [true, true] => "both runs are",
    };
    Some(format!(
        "{runs} of a debug build of annulus, which takes several times the CPU time of a release build"
    ))
}

fn control(runs: [Run<'_>; 2]) -> Option<String> {
    let has_none = |run: &Run<'_>| run.bench.contenders.control.is_none();
    runs.iter().any(has_none).then(|| {
        "a run has no control, so the noise of the machine is only partly known".to_owned()
    })
}

fn noise(changes: &[Change], margin: f64) -> Option<String> {
    let hidden = changes.iter().filter(|change| change.noise > margin);
    let most = hidden.clone().map(|change| change.noise).fold(0.0, f64::max);
    let count = hidden.count();
    (count > 0).then(|| {
        format!(
            "the machine moved by up to {:.0} % on its own, which hides smaller differences in {count} figures: use a \
             quieter machine, or --reference with a contender that did not change",
            100.0 * most
        )
    })
}

/// Warns if all contenders moved alike by the first metric.
fn common(changes: &[Change]) -> Option<String> {
    let first = &changes.first()?.metric;
    let moved: Vec<f64> = changes
        .iter()
        .filter(|change| change.metric == *first)
        .map(|change| change.ratio.median.ln())
        .collect();
    let contenders = changes.iter().map(|change| &change.contender);
    let is_one = contenders.clone().all(|name| Some(name) == contenders.clone().next());
    let is_alike = moved.iter().all(|log| *log > MIN_COMMON_MOVE)
        || moved.iter().all(|log| *log < -MIN_COMMON_MOVE);
    let by = median(&moved)?.exp();
    (!is_one && is_alike).then(|| {
        format!(
            "all contenders moved alike, to {by:.2} × their old values: the cause may be the machine, not the programs; run the \
             old ones again, or use --reference with one that did not change"
        )
    })
}

fn rounds(changes: &[Change]) -> Option<String> {
    let without = changes.iter().filter(|change| change.ratio.interval.is_none()).count();
    debug_assert!(
        changes
            .iter()
            .all(|change| change.ratio.interval.is_some() || change.verdict == Verdict::Undecided)
    );
    (without > 0).then(|| {
        format!(
            "{without} of {} figures have too few rounds for jointly valid intervals: measure more rounds",
            changes.len()
        )
    })
}
