//! The verdicts on all cells of a run, as counts and in words.

use annulus_load::stats::Verdict;
use serde::{Deserialize, Serialize};

use super::Bench;
use super::metric::{Better, Metric};
use super::record::Record;
use super::sides::Sides;
use super::verdict::CellVerdict;

/// The maximum number of cells that a sentence lists.
const MAX_NAMED_CELLS: usize = 2;
const MAX_NAMED_RIVALS: usize = 3;

/// The name for more rivals than a sentence lists.
const ALL_RIVALS: &str = "its best rival";

/// The verdicts on a whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// One sentence if annulus competes with other programs, or if there are many rivals;
    /// otherwise one for each rival. Empty if the bench has no control, no primary metric or only
    /// one contender.
    pub sentences: Vec<String>,
    /// The number of cells with each verdict. In 95 % of runs, all verdicts are right.
    pub counts: Counts,
}

/// The number of cells with each verdict.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The subject is better.
    pub better: usize,
    /// The subject and its rival are the same within the margin.
    pub same: usize,
    /// The subject is worse.
    pub worse: usize,
    /// The interval is too wide to tell.
    pub undecided: usize,
    /// Nothing can be compared.
    pub void: usize,
}

impl Counts {
    /// Counts these verdicts.
    pub fn of(verdicts: &[CellVerdict]) -> Counts {
        let count = |verdict| verdicts.iter().filter(|found| found.verdict == verdict).count();
        Counts {
            better: count(Verdict::Better),
            same: count(Verdict::Same),
            worse: count(Verdict::Worse),
            undecided: count(Verdict::Undecided),
            void: count(Verdict::Void),
        }
    }
}

impl Summary {
    pub(super) fn new(bench: &Bench, record: &Record, verdicts: &[CellVerdict]) -> Summary {
        let sides = Sides::of(bench);
        let sentence = |pair: Sides| {
            let cells = 0..bench.cells.len();
            let found: Vec<CellVerdict> =
                cells.filter_map(|cell| CellVerdict::between(&pair, bench, record, cell)).collect();
            sentence(&pair.name, &found, bench.primary()?)
        };
        Summary {
            sentences: sides.pairs().into_iter().filter_map(sentence).collect(),
            counts: Counts::of(verdicts),
        }
    }
}

/// Returns the verdicts on all cells as one sentence, or `None` without rivals.
fn sentence(subject: &str, verdicts: &[CellVerdict], metric: &Metric) -> Option<String> {
    verdicts.iter().find_map(|found| found.rival.as_ref())?;
    let of = |verdict: Verdict| -> Vec<&CellVerdict> {
        verdicts.iter().filter(|found| found.verdict == verdict).collect()
    };
    let mut parts = Vec::new();
    for verdict in [Verdict::Better, Verdict::Worse, Verdict::Same] {
        let found = of(verdict);
        if found.is_empty() {
            continue;
        }
        let noun = &metric.noun;
        let takes = if metric.better == Better::Lower { "takes" } else { "reaches" };
        let difference = match verdict {
            Verdict::Same => format!("{takes} the same {noun} as"),
            _ => format!("{takes} {} {noun} than", difference(&found, metric)),
        };
        let places = places(&found, verdicts.len());
        parts.push(format!("{difference} {}{places}", rivals(&found)));
    }
    let [undecided, void] = [Verdict::Undecided, Verdict::Void].map(of);
    if parts.is_empty() && !undecided.is_empty() {
        let places = match (undecided.len(), verdicts.len()) {
            (_, 1) => String::new(),
            (count, all) if count == all => format!(" in any of {all} cells"),
            (count, all) => format!(" in {count} of {all} cells"),
        };
        let ratios = ratios(&undecided);
        parts
            .push(format!("shows no clear difference from {}{places}{ratios}", rivals(&undecided)));
    } else if !undecided.is_empty() {
        parts.push(format!("{} undecided{}", cells_are(undecided.len()), ratios(&undecided)));
    }
    if parts.is_empty() {
        let places = places(&void, verdicts.len());
        parts.push(format!("could not be compared with {}{places}", rivals(&void)));
    } else if !void.is_empty() {
        parts.push(format!("{} void{}", cells_are(void.len()), ratios(&void)));
    }
    Some(format!("{subject} {}.", parts.join("; ")))
}

/// Returns how far the contenders are apart, such as `8 to 12 % less`.
fn difference(found: &[&CellVerdict], metric: &Metric) -> String {
    let value = |cost: f64| if metric.better == Better::Lower { cost } else { 1.0 / cost };
    let shares = found.iter().filter_map(|it| Some(value(it.cost?.median) - 1.0));
    let shares: Vec<f64> = shares.map(|share| 100.0 * share).collect();
    let word = if shares.iter().sum::<f64>() < 0.0 { "less" } else { "more" };
    let [low, high] = range(shares.iter().map(|share| share.abs()));
    let [low, high] = [low, high].map(|share| format!("{share:.0}"));
    if low == high { format!("{low} % {word}") } else { format!("{low} to {high} % {word}") }
}

/// Returns the range of the ratios of these cells, in brackets; empty without ratios.
fn ratios(found: &[&CellVerdict]) -> String {
    let costs: Vec<f64> = found
        .iter()
        .filter_map(|it| Some(it.cost?.median))
        .filter(|cost| cost.is_finite())
        .collect();
    let [low, high] = range(costs.iter().copied()).map(|cost| format!("{cost:.2}"));
    match costs.is_empty() {
        true => String::new(),
        false if low == high => format!(" ({low} ×)"),
        false => format!(" ({low} to {high} ×)"),
    }
}

fn range(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, 0.0], |[low, high], value| [low.min(value), high.max(value)])
}

/// Lists the rivals of these cells, or names them together if there are many.
fn rivals(found: &[&CellVerdict]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in found.iter().filter_map(|it| it.rival.as_deref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [] => ALL_RIVALS.to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] if names.len() <= MAX_NAMED_RIVALS => {
            format!("{} or {last}", first.join(", "))
        }
        _ => ALL_RIVALS.to_owned(),
    }
}

/// Returns in how many cells something holds, with the names of a few; empty for a single cell.
fn places(found: &[&CellVerdict], all: usize) -> String {
    let names: Vec<String> = found.iter().map(|it| it.cell.to_string()).collect();
    match found.len() {
        _ if all == 1 => String::new(),
        count if count == all => format!(" in all {all} cells"),
        count if count <= MAX_NAMED_CELLS => {
            format!(" in {count} of {all} cells ({})", names.join(", "))
        }
        count => format!(" in {count} of {all} cells"),
    }
}

fn cells_are(count: usize) -> String {
    if count == 1 { "1 cell is".to_owned() } else { format!("{count} cells are") }
}

#[cfg(test)]
mod tests {
    use super::super::cell::Cell;
    use super::super::metric::Sample;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, sample};
    use super::*;

    /// Returns the summary for cells of 1 to `cells` connections. `cpu` is called with contender,
    /// cell and round; the control is the last contender, and 0 is a failed slice.
    fn summary(names: &[&str], cells: usize, cpu: impl Fn(usize, usize, usize) -> f64) -> Summary {
        let mut bench = bench(names);
        let connections = |cell: usize| Cell::new([("connections", (cell as u64 + 1).into())]);
        bench.cells = (0..cells).map(connections).collect();
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
        Summary::new(&bench, &record, &verdicts)
    }

    #[test]
    fn the_best_driver_meets_the_best_rival_of_each_cell() {
        let cpu = |contender: usize, cell: usize, _: usize| {
            [[2.0, 4.0, 8.0], [4.0, 2.0, 8.0], [4.0, 4.0, 8.0], [5.0, 5.0, 4.0], [2.0, 4.0, 8.0]]
                [contender][cell]
        };
        let found = summary(&["uring", "epoll", "tokio", "monoio"], 3, cpu);
        let counts = Counts { better: 2, worse: 1, ..Counts::default() };
        assert_eq!(found.counts, counts);
        let sentence = "annulus takes 50 % less CPU than tokio in 2 of 3 cells (1 connection, 2 connections); \
                        takes 100 % more CPU than monoio in 1 of 3 cells (3 connections).";
        assert_eq!(found.sentences, [sentence]);
    }

    /// The rival takes less CPU, but answers fewer requests per second, so it does not win. If the
    /// other contender is annulus, its loss counts anyway.
    #[test]
    fn own_losses_count_even_if_the_rival_is_slow() {
        let counts = |names: &[&str]| {
            let mut bench = bench(names);
            bench.cells.truncate(1);
            let mut record = Record::new();
            for (round, contender) in (0..15).flat_map(|round| [0, 1, 2].map(|c| (round, c))) {
                let ns = if contender == 1 { 1e7 } else { 2e6 };
                let cpu = if contender == 1 { 1e6 } else { 2e6 };
                let numbers =
                    [("operations", 1000.0), ("cpu_ns", cpu), ("ns", ns), ("p99_us", 40.0)];
                record.keep(Slice { round, cell: 0, contender }, Ok(Sample::from(numbers)));
            }
            let verdict = CellVerdict::of(&bench, &record, 0).expect("the cell has no verdict");
            Counts::of(&[verdict])
        };
        assert_eq!(counts(&["a", "b"]), Counts { undecided: 1, ..Counts::default() });
        assert_eq!(counts(&["uring", "tokio"]), Counts { worse: 1, ..Counts::default() });
    }

    #[test]
    fn a_win_needs_every_rival_beaten() {
        let cpu = |contender: usize, _: usize, round: usize| match contender {
            // The cost of contender 1 varies so much that it may be as cheap as contender 0.
            1 => [1.0, 9.0][round % 2],
            2 => 4.0,
            _ => 2.0,
        };
        let found = summary(&["uring", "tokio", "monoio"], 1, cpu);
        assert_eq!((found.counts.better, found.counts.undecided), (0, 1), "{found:?}");
    }

    #[test]
    fn servers_have_a_sentence_for_each_rival() {
        let found = summary(&["a", "b", "c"], 1, |index, _, _| [2.0, 4.0, 2.02, 2.0][index]);
        let sentences = ["a takes 50 % less CPU than b.", "a takes the same CPU as c."];
        assert_eq!(found.sentences, sentences);
    }

    /// A user's server may have the name of one of our drivers.
    #[test]
    fn the_subject_of_a_users_comparison_is_its_baseline() {
        let mut bench = bench(&["mine", "epoll"]);
        bench.contenders.named_by_user = true;
        let sides = Sides::of(&bench);
        assert_eq!((sides.name.as_str(), sides.is_own), ("mine", false));
        let again: Bench = serde_json::from_value(serde_json::to_value(&bench).unwrap()).unwrap();
        assert_eq!(Sides::of(&again).name, "mine", "the definition is stored without its author");
    }

    #[test]
    fn undecided_and_void_cells_are_counted_and_show_their_ratios() {
        let cpu = |contender: usize, cell: usize, round: usize| match (cell, contender) {
            (2, 0) if round < 5 => 0.0,
            (1, 1) => [1.9, 2.1][round % 2],
            (1, _) => 2.0,
            (_, 1) => 4.0,
            _ => 2.0,
        };
        let found = summary(&["a", "b"], 3, cpu);
        let counts = Counts { better: 1, undecided: 1, void: 1, ..Counts::default() };
        assert_eq!(found.counts, counts);
        let sentence = "a takes 50 % less CPU than b in 1 of 3 cells (1 connection); 1 cell is undecided \
                        (1.05 ×); 1 cell is void (0.50 ×).";
        assert_eq!(found.sentences, [sentence]);
        let open = summary(
            &["a", "b"],
            2,
            |index, _, round| {
                if index == 1 { [1.9, 2.1][round % 2] } else { 2.0 }
            },
        );
        assert_eq!(
            open.sentences,
            ["a shows no clear difference from b in any of 2 cells (1.05 ×)."]
        );
    }

    #[test]
    fn a_single_contender_has_no_sentence() {
        assert_eq!(summary(&["a"], 2, |_, _, _| 2.0).sentences, [""; 0]);
    }
}
