use super::{MetricRatio, Side};
use crate::recording::{Percentiles, Recording};

/// If each side has fewer runs, no joint intervals exist for all six metrics.
const ENOUGH_RUNS: usize = 5;

/// Returns each reason once, with the sides to which it applies.
pub(super) fn all(
    runs: [&[Recording]; 2],
    [a, b]: [&Side; 2],
    ratios: &[MetricRatio],
) -> Vec<String> {
    let of = |side: &Side, runs: &[Recording]| [of_side(side, runs), of_runs(runs)].concat();
    let mut found: Vec<(String, &str)> = Vec::new();
    found.extend(of(a, runs[0]).into_iter().map(|reason| (reason, "A")));
    for reason in of(b, runs[1]) {
        match found.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sides)) => *sides = "A and B",
            None => found.push((reason, "B")),
        }
    }
    let fewest = a.responses.min(b.responses);
    let samples = ratios.iter().filter_map(|ratio| too_few_samples(ratio, fewest));
    found.into_iter().map(|(reason, sides)| format!("{sides}: {reason}")).chain(samples).collect()
}

fn of_side(side: &Side, runs: &[Recording]) -> Vec<String> {
    let Side { runs: count, seconds, pieces, failed, responses, .. } = side;
    let few = match (count, pieces) {
        (1, 0) => Some(format!(
            "one run of {seconds:.1} s is too short for an interval: measure for at least 20 s, or \
             several times"
        )),
        (1, _) => Some(format!(
            "the intervals of one run come from {pieces} blocks of {:.1} s and do not include the \
             variation from run to run: compare several runs",
            seconds / *pieces as f64
        )),
        (2..ENOUGH_RUNS, _) => {
            Some(format!("{count} runs are too few for joint intervals: compare at least five"))
        }
        _ => None,
    };
    let interrupted = runs.iter().filter(|run| run.interrupted).count();
    let interrupted =
        (interrupted > 0).then(|| format!("{interrupted} of {count} runs ended early"));
    let ended = failed + responses;
    let failures = (*failed > 0)
        .then(|| format!("{failed} of {ended} requests failed, and are not included in latencies"));
    few.into_iter().chain(interrupted).chain(failures).collect()
}

/// Warns if a side has too few latencies for a percentile.
fn too_few_samples(ratio: &MetricRatio, fewest: u64) -> Option<String> {
    let least = Percentiles::samples_for(ratio.metric.share()?);
    (fewest < least).then(|| {
        format!(
            "{} needs {least} latencies, but one side has only {fewest}: measure for longer",
            ratio.metric
        )
    })
}

/// Returns the warnings recorded in the runs. A warning of several runs is returned once, with the
/// number of runs.
fn of_runs(runs: &[Recording]) -> Vec<String> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    for warning in runs.iter().flat_map(|run| &run.warnings) {
        match found.iter_mut().find(|(known, _)| known == warning) {
            Some((_, count)) => *count += 1,
            None => found.push((warning, 1)),
        }
    }
    let of = |(warning, count): (&str, usize)| match runs.len() {
        1 => warning.to_owned(),
        all => format!("{warning} ({count} of {all} runs)"),
    };
    found.into_iter().map(of).collect()
}
