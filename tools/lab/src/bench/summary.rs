//! The verdict on a whole run, in one to three sentences.

use annulus_load::stats::Verdict;
use serde::Serialize;

use super::Bench;
use super::cell::Cell;
use super::envelope::{Distances, Envelope};
use super::verdict::CellVerdict;

/// The maximum number of cells that a sentence lists.
const MAX_NAMED_CELLS: usize = 3;

/// The verdict on a whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The sentences; empty if the bench has no control, no primary metric or only one contender.
    pub sentences: Vec<String>,
    /// The number of cells with a verdict.
    pub decided: usize,
    /// The number of verdicts, one per cell. Together they are right in 95 % of runs.
    pub family: usize,
}

impl Summary {
    pub(super) fn new(bench: &Bench, envelopes: &[Envelope], verdicts: &[CellVerdict]) -> Summary {
        let primary = bench.primary().map(|metric| &metric.key);
        let envelope = envelopes.iter().find(|envelope| Some(&envelope.metric) == primary);
        let decided: Vec<usize> =
            (0..verdicts.len()).filter(|&cell| verdicts[cell].verdict.is_decided()).collect();
        let sentences = match envelope {
            Some(envelope) if !verdicts.is_empty() => {
                let standing = standings(bench, envelope, &decided, verdicts.len());
                standing.into_iter().chain(undecided(verdicts)).collect()
            }
            _ => Vec::new(),
        };
        Summary { sentences, decided: decided.len(), family: verdicts.len() }
    }
}

/// Returns sentences about the contender that is best most often, and about the baseline if it is
/// another one.
fn standings(bench: &Bench, envelope: &Envelope, decided: &[usize], all: usize) -> Vec<String> {
    if decided.is_empty() {
        return vec!["No cell has a winner.".to_owned()];
    }
    let count = |distances: &Distances, verdict: Verdict| {
        let is = |&&cell: &&usize| distances.cells[cell].is_some_and(|it| it.verdict == verdict);
        decided.iter().filter(is).count()
    };
    let leads = |it: &Distances| count(it, Verdict::Better) + count(it, Verdict::Same);
    let order = |a: &&Distances, b: &&Distances| {
        let mean = |of: &Distances| of.mean.map_or(f64::MAX, |mean| mean.median);
        leads(b).cmp(&leads(a)).then(mean(a).total_cmp(&mean(b)))
    };
    let leader = envelope.contenders.iter().min_by(order);
    let baseline = envelope.of_contender(&bench.contenders.baseline);
    let second = baseline.filter(|it| leader.is_some_and(|l| l.contender != it.contender));
    let noun = bench.primary().map_or("", |metric| metric.noun.as_str());
    let sentence = |distances: &Distances| {
        let counts = [Verdict::Better, Verdict::Same].map(|verdict| count(distances, verdict));
        standing(distances, counts, (decided.len(), all), noun)
    };
    leader.into_iter().chain(second).map(sentence).collect()
}

/// Returns a sentence about a contender that is `better` in some of the decided cells and the
/// `same` in others.
fn standing(
    distances: &Distances,
    [better, same]: [usize; 2],
    (of, all): (usize, usize),
    noun: &str,
) -> String {
    let name = &distances.contender;
    let count = |n: usize| match of {
        1 => "in the only cell with a verdict".to_owned(),
        _ if of < all => format!("in {n} of {of} cells with a verdict"),
        _ => format!("in {n} of {of} cells"),
    };
    let mut text = match (better, same) {
        (0, 0) => format!("{name} is worse by {noun} {}", count(of)),
        (_, 0) => format!("{name} is better by {noun} {}", count(better)),
        (0, _) => format!("{name} is the same by {noun} {}", count(same)),
        _ => format!("{name} is better or the same by {noun} {}", count(better + same)),
    };
    if let Some(mean) = distances.mean.filter(|_| of > 1) {
        text += &format!("; {:.2} × the best on average", mean.median);
    }
    if let Some(worst) = distances.worst.as_ref().filter(|worst| of > 1 && worst.ratio >= 1.005) {
        text += &format!(", {:.2} × at worst, at {}", worst.ratio, worst.cell);
    }
    text + "."
}

/// Returns sentences about the cells without a verdict.
fn undecided(verdicts: &[CellVerdict]) -> Vec<String> {
    let of = |verdict: Verdict, what: &str| {
        let found = verdicts.iter().filter(|found| found.verdict == verdict);
        let cells: Vec<&Cell> = found.map(|verdict| &verdict.cell).collect();
        let count = if cells.len() == 1 {
            "1 cell is".into()
        } else {
            format!("{} cells are", cells.len())
        };
        (!cells.is_empty()).then(|| format!("{count} {what}: {}.", list(&cells)))
    };
    let both = [
        of(Verdict::Undecided, "undecided"),
        of(Verdict::Void, "void, as contenders could not be compared"),
    ];
    both.into_iter().flatten().collect()
}

/// Lists the first few cells.
fn list(cells: &[&Cell]) -> String {
    let names: Vec<String> =
        cells.iter().take(MAX_NAMED_CELLS).map(|cell| cell.to_string()).collect();
    let more = cells.len().saturating_sub(MAX_NAMED_CELLS);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    names.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, sample};
    use super::*;

    /// Returns the sentences for cells of 1 to `cells` clients. `cpu` is by contender, cell and
    /// round, the control last.
    fn sentences(
        names: &[&str],
        cells: usize,
        cpu: impl Fn(usize, usize, usize) -> f64,
    ) -> Vec<String> {
        let mut bench = bench(names);
        let clients = |cell: usize| Cell::new([("clients", (cell as u64 + 1).into())]);
        bench.cells = (0..cells).map(clients).collect();
        let mut record = Record::new();
        for (round, cell) in (0..15).flat_map(|round| (0..cells).map(move |cell| (round, cell))) {
            for contender in 0..=names.len() {
                let outcome = match cpu(contender, cell, round) {
                    0.0 => Err("reset".to_owned()),
                    cpu => Ok(sample(cpu)),
                };
                record.keep(Slice { round, cell, contender }, outcome);
            }
        }
        let verdicts: Vec<CellVerdict> =
            (0..cells).filter_map(|cell| CellVerdict::of(&bench, &record, cell)).collect();
        Summary::new(&bench, &Envelope::all(&bench, &record), &verdicts).sentences
    }

    #[test]
    fn the_leader_comes_first_then_the_baseline() {
        let cpu = |contender: usize, cell: usize, _: usize| match contender {
            1 if cell == 0 => 4.0,
            1 => 1.0,
            _ => 2.0,
        };
        let found = sentences(&["uring", "threads"], 4, cpu);
        let expected = [
            "threads is better by CPU in 3 of 4 cells; 1.19 × the best on average, 2.00 × at worst, at 1 client.",
            "uring is better by CPU in 1 of 4 cells; 1.68 × the best on average, 2.00 × at worst, at 2 clients.",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn same_verdicts_count_and_a_single_cell_is_not_numbered() {
        let found =
            sentences(
                &["a", "b"],
                4,
                |index, cell, _| {
                    if index == 1 { [2.02, 4.0, 1.99, 8.0][cell] } else { 2.0 }
                },
            );
        assert!(
            found[0].starts_with("a is better or the same by CPU in 4 of 4 cells; 1.00 ×"),
            "{found:?}"
        );
        assert_eq!(found.len(), 1);
        let found = sentences(&["a", "b"], 1, |index, _, _| [2.0, 4.0, 2.0][index]);
        assert_eq!(found, ["a is better by CPU in the only cell with a verdict."]);
    }

    #[test]
    fn cells_without_a_verdict_are_named_with_the_reason() {
        let cpu = |contender: usize, cell: usize, round: usize| match (cell, contender) {
            (2, 0) if round < 5 => 0.0,
            (1, 1) => [1.9, 2.1][round % 2],
            (1, _) => 2.0,
            (_, 1) => 4.0,
            _ => 2.0,
        };
        let found = sentences(&["a", "b"], 3, cpu);
        assert_eq!(found[0], "a is better by CPU in the only cell with a verdict.");
        let more = sentences(&["a", "b"], 4, cpu);
        assert!(more[0].starts_with("a is better by CPU in 2 of 2 cells with a verdict;"));
        assert_eq!(found[1], "1 cell is undecided: 2 clients.");
        assert_eq!(found[2], "1 cell is void, as contenders could not be compared: 3 clients.");
        let all = sentences(&["a", "b"], 5, |index, _, _| [2.0, 2.5, 3.0][index]);
        assert_eq!(all[0], "No cell has a winner.");
        assert!(all[1].ends_with("1 client, 2 clients, 3 clients, and 2 more."), "{all:?}");
    }

    #[test]
    fn a_single_contender_has_no_sentence() {
        assert_eq!(sentences(&["a"], 2, |_, _, _| 2.0), [""; 0]);
    }
}
