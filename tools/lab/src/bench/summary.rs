//! The verdict on a whole run, in a sentence or three.

use serde::Serialize;

use super::Bench;
use super::cell::Cell;
use super::envelope::{Distances, Envelope, Standing};
use super::verdict::{Outcome, Verdict};

/// The most cells that a sentence names.
const NAMED: usize = 3;

/// The verdict on a whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The sentences; none if the bench has no control, no primary metric or one contender.
    pub sentences: Vec<String>,
    /// Cells in which contenders could be compared.
    pub decided: usize,
    /// How many verdicts there are, one a cell: together they are right in 95 % of runs.
    pub family: usize,
}

impl Summary {
    pub(super) fn new(bench: &Bench, envelopes: &[Envelope], verdicts: &[Verdict]) -> Summary {
        let primary = bench.primary().map(|metric| &metric.key);
        let envelope = envelopes.iter().find(|envelope| Some(&envelope.metric) == primary);
        let decided: Vec<usize> =
            (0..verdicts.len()).filter(|&cell| verdicts[cell].outcome.is_decided()).collect();
        let sentences = match envelope {
            Some(envelope) if !verdicts.is_empty() => {
                let standing = standings(bench, envelope, &decided);
                standing.into_iter().chain(undecided(verdicts)).collect()
            }
            _ => Vec::new(),
        };
        Summary { sentences, decided: decided.len(), family: verdicts.len() }
    }
}

/// The contender that is best most often, and the baseline if it is another one.
fn standings(bench: &Bench, envelope: &Envelope, decided: &[usize]) -> Vec<String> {
    if decided.is_empty() {
        return vec!["No cell has a verdict.".to_owned()];
    }
    let count = |distances: &Distances, is: fn(Standing) -> bool| {
        let standing =
            |&&cell: &&usize| distances.cells[cell].is_some_and(|distance| is(distance.standing));
        decided.iter().filter(standing).count()
    };
    let rank = |distances: &&Distances| {
        let mean = distances.mean.map_or(f64::MAX, |mean| mean.median);
        (std::cmp::Reverse(count(distances, Standing::is_best_or_tied)), mean)
    };
    let order = |a: &&Distances, b: &&Distances| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    };
    let leader = envelope.contenders.iter().min_by(order);
    let baseline = envelope.of_contender(&bench.contenders.baseline);
    let second = baseline.filter(|it| leader.is_some_and(|l| l.contender != it.contender));
    let noun = bench.primary().map_or("", |metric| metric.noun.as_str());
    let sentence = |distances: &Distances| {
        let best = count(distances, |standing| standing == Standing::Best);
        let tied = count(distances, |standing| standing == Standing::Tied);
        standing(distances, [best, tied, decided.len()], noun)
    };
    leader.into_iter().chain(second).map(sentence).collect()
}

fn standing(distances: &Distances, [best, tied, of]: [usize; 3], noun: &str) -> String {
    let name = &distances.contender;
    let count = |n: usize| match of {
        1 => "in the only cell with a verdict".to_owned(),
        _ => format!("in {n} of {of} cells"),
    };
    let mut text = match (best, tied) {
        (0, 0) => format!("{name} is behind the best by {noun} {}", count(of)),
        (_, 0) => format!("{name} is best by {noun} {}", count(best)),
        (0, _) => format!("{name} is tied with the best by {noun} {}", count(tied)),
        _ => format!("{name} is best or tied by {noun} {}", count(best + tied)),
    };
    if let Some(mean) = distances.mean.filter(|_| of > 1) {
        text += &format!("; {:.2} × the best in the mean", mean.median);
    }
    if let Some(worst) = distances.worst.as_ref().filter(|worst| worst.ratio >= 1.005) {
        text += &format!(", {:.2} × at worst, at {}", worst.ratio, worst.cell);
    }
    text + "."
}

/// The cells without a verdict, by reason.
fn undecided(verdicts: &[Verdict]) -> Vec<String> {
    let of = |outcomes: &[Outcome], why: &str| {
        let found = verdicts.iter().filter(|verdict| outcomes.contains(&verdict.outcome));
        let cells: Vec<&Cell> = found.map(|verdict| &verdict.cell).collect();
        (!cells.is_empty()).then(|| format!("{}: {}.", count(cells.len(), why), list(&cells)))
    };
    let reasons = [
        of(&[Outcome::ControlDiffers], "worthless, since the control differs from itself"),
        of(&[Outcome::ControlUnsteady], "worthless, since the control is too unsteady"),
        of(&[Outcome::Failed], "without a verdict, since slices failed"),
        of(&[Outcome::FewRounds], "without a verdict, for lack of rounds"),
    ];
    reasons.into_iter().flatten().collect()
}

fn count(cells: usize, why: &str) -> String {
    if cells == 1 { format!("1 cell is {why}") } else { format!("{cells} cells are {why}") }
}

/// The first few cells.
fn list(cells: &[&Cell]) -> String {
    let names: Vec<String> = cells.iter().take(NAMED).map(|cell| cell.to_string()).collect();
    let more = cells.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    names.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, sample};
    use super::*;

    /// The sentences on cells of one to so many clients; `cpu` is by contender, cell and round, the control like the first.
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
        let verdicts: Vec<Verdict> =
            (0..cells).filter_map(|cell| Verdict::of(&bench, &record, cell)).collect();
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
            "threads is best by CPU in 3 of 4 cells; 1.19 × the best in the mean, 2.00 × at worst, at 1 client.",
            "uring is best by CPU in 1 of 4 cells; 1.68 × the best in the mean, 2.00 × at worst, at 2 clients.",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn ties_count_and_one_cell_is_no_number() {
        let found =
            sentences(
                &["a", "b"],
                4,
                |index, cell, _| {
                    if index == 1 { [2.02, 4.0, 1.99, 8.0][cell] } else { 2.0 }
                },
            );
        assert!(
            found[0].starts_with("a is best or tied by CPU in 4 of 4 cells; 1.00 ×"),
            "{found:?}"
        );
        assert_eq!(found.len(), 1);
        let found = sentences(&["a", "b"], 1, |index, _, _| [2.0, 4.0, 2.0][index]);
        assert_eq!(found, ["a is best by CPU in the only cell with a verdict."]);
    }

    #[test]
    fn cells_without_a_verdict_are_named_with_the_reason() {
        let cpu = |contender: usize, cell: usize, round: usize| match (cell, contender) {
            (1, 2) => 3.0,
            (2, 0) if round == 7 => 0.0,
            (_, 1) => 4.0,
            _ => 2.0,
        };
        let found = sentences(&["a", "b"], 3, cpu);
        assert!(
            found[0].starts_with("a is best by CPU in the only cell with a verdict"),
            "{found:?}"
        );
        let why = "1 cell is worthless, since the control differs from itself: 2 clients.";
        assert_eq!(found[1], why);
        let why = "1 cell is without a verdict, since slices failed: 3 clients.";
        assert_eq!(found[2], why);
        let all = sentences(&["a", "b"], 5, |index, _, _| [2.0, 4.0, 3.0][index]);
        assert_eq!(all[0], "No cell has a verdict.");
        assert!(all[1].ends_with("1 client, 2 clients, 3 clients, and 2 more."), "{all:?}");
    }

    #[test]
    fn a_single_contender_has_no_sentence() {
        assert_eq!(sentences(&["a"], 2, |_, _, _| 2.0), [""; 0]);
    }
}
