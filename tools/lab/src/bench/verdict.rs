//! The verdict on a cell: which contender wins, if that can be said.

use serde::Serialize;

use super::Bench;
use super::cell::Cell;
use super::contest::{Contest, is_unsteady};
use super::metric::{Better, Metric, Role};
use super::record::Record;
use crate::stats::{Ratio, rounds_for, shared_miss};

/// The verdict on a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The cell.
    pub cell: Cell,
    /// The kind of verdict.
    pub outcome: Outcome,
    /// The winner, if there is one.
    pub winner: Option<String>,
    /// The verdict as a sentence.
    pub text: String,
}

/// The kinds of verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// One contender is better than every other by more than the deviation of the control, and not worse by a guard.
    Win,
    /// One contender is better than every other by the primary metric, but worse than one of them by a guard.
    Guarded,
    /// The best contender cannot be distinguished from another.
    Tie,
    /// There was only one contender.
    Alone,
    /// The control differs from the contender that it copies.
    ControlDiffers,
    /// The control's interval is too wide to compare the others.
    ControlUnsteady,
    /// A slice failed.
    Failed,
    /// There are too few rounds for an interval.
    FewRounds,
}

impl Outcome {
    /// Whether its contenders could be compared.
    pub fn is_decided(self) -> bool {
        matches!(self, Outcome::Win | Outcome::Guarded | Outcome::Tie)
    }

    /// Whether the figures of the cell must not be compared.
    pub fn is_worthless(self) -> bool {
        matches!(self, Outcome::ControlDiffers | Outcome::ControlUnsteady)
    }
}

impl Verdict {
    /// The verdict on one cell; `None` if the bench has no control or no primary metric.
    pub fn of(bench: &Bench, record: &Record, cell: usize) -> Option<Verdict> {
        let control = bench.contenders.control_index()?;
        let contest = Contest { bench, record, cell, metric: bench.primary()? };
        let judge = Judge { contest, control };
        let (outcome, winner, text) = judge.decide();
        let winner = winner.map(|index| judge.name(index).to_owned());
        Some(Verdict { cell: bench.cells[cell].clone(), outcome, winner, text })
    }
}

/// A sample without the numbers of a guard has no ratio; a ratio without an interval cannot exclude a tie.
const NOTHING: Ratio = Ratio { median: f64::NAN, interval: None };

type Decision = (Outcome, Option<usize>, String);

struct Judge<'a> {
    contest: Contest<'a>,
    control: usize,
}

impl Judge<'_> {
    fn decide(&self) -> Decision {
        self.failure().or_else(|| self.few_rounds()).unwrap_or_else(|| self.compare())
    }

    fn failure(&self) -> Option<Decision> {
        let failed = |contender: usize| {
            let outcomes = || self.contest.record.outcomes(contender, self.contest.cell);
            let reason = outcomes().find_map(|outcome| outcome.as_ref().err())?;
            let failed = outcomes().filter(|outcome| outcome.is_err()).count();
            let (name, slices) = (self.name(contender), outcomes().count());
            Some(format!("no verdict: {name} failed in {failed} of {slices} slices: {reason}"))
        };
        Some((Outcome::Failed, None, (0..=self.control).find_map(failed)?))
    }

    fn few_rounds(&self) -> Option<Decision> {
        let Contest { bench, record, cell, metric } = self.contest;
        let rounds = |contender| record.values(metric, contender, cell).len();
        let rounds = (0..=self.control).map(rounds).min().unwrap_or(0);
        let cells = bench.cells.len();
        let needed = rounds_for(shared_miss(cells));
        let together = if cells == 1 {
            "an interval needs".to_owned()
        } else {
            format!("intervals that hold together in {cells} cells need")
        };
        let text = format!("undecided: {rounds} rounds, {together} {needed}");
        (rounds < needed).then_some((Outcome::FewRounds, None, text))
    }

    /// The winner. All contenders and the control have an interval.
    fn compare(&self) -> Decision {
        let control = self.contest.control().unwrap_or(NOTHING);
        if self.contest.is_worthless() {
            let text =
                format!("worth nothing: the control differs from itself, {control}; run it again");
            return (Outcome::ControlDiffers, None, text);
        }
        let best = self.contest.best().unwrap_or(0);
        let others: Vec<usize> = (0..self.control).filter(|&other| other != best).collect();
        if others.is_empty() {
            let text = format!("nothing to compare with; measured twice, it is {control} × itself");
            return (Outcome::Alone, None, text);
        }
        match others.iter().copied().find(|&other| !self.contest.is_better(best, other)) {
            Some(_) if is_unsteady(control) => {
                let text = format!(
                    "worth nothing: the control is too unsteady, {control}; take more rounds"
                );
                (Outcome::ControlUnsteady, None, text)
            }
            Some(other) => (Outcome::Tie, None, self.tie(best, other, control)),
            None => self.guard(best, &others),
        }
    }

    /// Why no winner is named: the interval holds 1, or what is too small to count.
    fn tie(&self, best: usize, other: usize, control: Ratio) -> String {
        let (metric, least) = (self.contest.metric, 100.0 * self.contest.least());
        let ratio = self.ratio(metric, best, other);
        let small = if ratio.distance() > 0.0 {
            format!("; it may be less than {least:.1} %, which does not count here")
        } else {
            String::new()
        };
        let (best, other, noun) = (self.name(best), self.name(other), &metric.noun);
        format!(
            "undecided between {best} and {other}: {ratio} × its {noun}, the control {control}{small}"
        )
    }

    /// CPU time alone does not win: a contender that only delays work in batches would have less of it.
    fn guard(&self, best: usize, others: &[usize]) -> Decision {
        let noun = &self.contest.metric.noun;
        let text = |other: &usize, guards: &[&Metric]| {
            let guards = guards.iter().map(|guard| {
                format!("{:.2} × its {}", self.ratio(guard, best, *other).median, guard.noun)
            });
            let primary = self.ratio(self.contest.metric, best, *other);
            let first = format!("{primary} × the {noun} of {}", self.name(*other));
            [first].into_iter().chain(guards).collect::<Vec<_>>().join(", ")
        };
        let all: Vec<&Metric> = self.guards().map(|(guard, _)| guard).collect();
        if let Some(other) = others.iter().find(|&&other| self.is_worse(best, other)) {
            let text = format!("no winner: {} takes {}", self.name(best), text(other, &all));
            return (Outcome::Guarded, None, text);
        }
        let first = &all[..all.len().min(1)];
        let over: Vec<String> = others.iter().map(|other| text(other, first)).collect();
        (Outcome::Win, Some(best), format!("{} wins: {}", self.name(best), over.join("; ")))
    }

    fn guards(&self) -> impl Iterator<Item = (&Metric, f64)> {
        self.contest.bench.metrics.iter().filter_map(|metric| match metric.role {
            Role::Guard(limit) => Some((metric, limit)),
            _ => None,
        })
    }

    fn is_worse(&self, best: usize, other: usize) -> bool {
        self.guards().any(|(guard, limit)| {
            let median = self.ratio(guard, best, other).median;
            match guard.better {
                Better::Lower => median > limit,
                Better::Higher => median < limit,
            }
        })
    }

    fn ratio(&self, metric: &Metric, contender: usize, other: usize) -> Ratio {
        Contest { metric, ..self.contest }.ratio(contender, other).unwrap_or(NOTHING)
    }

    fn name(&self, contender: usize) -> &str {
        self.contest.bench.contenders.all().nth(contender).map_or("", |spec| &spec.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::metric::Sample;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, record};
    use super::*;

    const PLACE: Slice = Slice { round: 0, cell: 0, contender: 0 };

    fn of(record: &Record, names: &[&str]) -> Verdict {
        Verdict::of(&bench(names), record, 0).expect("a control and a primary metric")
    }

    /// Fifteen rounds in which the CPU times vary by a few thousandths.
    fn verdict(names: &[&str], cpu: impl Fn(usize) -> f64) -> Verdict {
        let noise = |index: usize, round: usize| 1.0 + ((index * 7 + round * 5) % 11) as f64 / 2e3;
        let strays = |index: usize, round: usize| cpu(index) * noise(index, round);
        of(&record(names.len() + 1, 15, strays), names)
    }

    #[test]
    fn the_cheapest_wins_in_any_position() {
        let first = verdict(&["uring", "threads"], |index| [2.0, 4.0, 2.0][index]);
        assert_eq!((first.outcome, first.winner.as_deref()), (Outcome::Win, Some("uring")));
        assert!(first.text.starts_with("uring wins: 0.5"), "{first:?}");
        assert!(first.text.ends_with("× the CPU of threads, 2.00 × its requests/s"), "{first:?}");
        let second = verdict(&["threads", "uring"], |index| [4.0, 2.0, 4.0][index]);
        assert_eq!(second.winner.as_deref(), Some("uring"));
        let three = verdict(&["a", "b", "c"], |index| [2.0, 3.0, 4.0, 2.0][index]);
        assert!(three.text.contains("CPU of b") && three.text.contains("CPU of c"), "{three:?}");
    }

    #[test]
    fn higher_can_be_better() {
        let rate = Metric { role: Role::Primary, ..super::super::metric::rate() };
        let mut bench = bench(&["a", "b"]);
        bench.metrics = vec![rate];
        let record = record(3, 15, |index, _| [4.0, 2.0, 4.0][index]);
        let verdict = Verdict::of(&bench, &record, 0).expect("a verdict");
        assert_eq!(verdict.winner.as_deref(), Some("b"));
        assert!(
            verdict.text.contains("2.000 [2.000, 2.000] × the operations/s of a"),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_tie_with_the_best_is_no_win() {
        let verdict = verdict(&["a", "b", "c"], |index| [2.0, 2.0, 4.0, 2.0][index]);
        assert_eq!((verdict.outcome, verdict.winner), (Outcome::Tie, None));
    }

    #[test]
    fn a_control_that_differs_makes_the_cell_worthless() {
        let verdict = verdict(&["uring", "threads"], |index| [2.0, 4.0, 2.1][index]);
        assert!(verdict.outcome.is_worthless() && verdict.winner.is_none(), "{verdict:?}");
        assert!(verdict.text.contains("differs from itself, 1.0"), "{verdict:?}");
    }

    #[test]
    fn no_win_is_smaller_than_the_deviation_of_the_control() {
        let close = |other: f64| verdict(&["a", "b"], |index| [2.0, other, 2.03][index]);
        assert_eq!(close(2.02).outcome, Outcome::Tie);
        assert_eq!(close(2.2).winner.as_deref(), Some("a"));
    }

    #[test]
    fn an_unsteady_control_hides_differences_below_its_interval() {
        let unsteady = |other: f64| {
            let cpu = |index: usize, round: usize| match index {
                1 => other,
                2 => [1.5, 2.0, 2.5][round % 3],
                _ => 2.0,
            };
            of(&record(3, 15, cpu), &["a", "b"])
        };
        assert_eq!(unsteady(2.2).outcome, Outcome::ControlUnsteady);
        assert_eq!(unsteady(4.0).winner.as_deref(), Some("a"));
    }

    #[test]
    fn less_cpu_but_fewer_requests_is_no_win() {
        let mut record = record(3, 15, |index, _| [2.0, 4.0, 2.0][index]);
        for round in 0..15 {
            let numbers = [("operations", 1000.0), ("cpu_ns", 2e6), ("ns", 1e7), ("p99_us", 40.0)];
            record.keep(Slice { round, ..PLACE }, Ok(Sample::from(numbers)));
        }
        let verdict = of(&record, &["lazy", "eager"]);
        assert_eq!((verdict.outcome, verdict.winner), (Outcome::Guarded, None));
        assert!(verdict.text.starts_with("no winner: lazy takes 0.500"), "{}", verdict.text);
        assert!(verdict.text.ends_with("of eager, 0.40 × its requests/s, 0.50 × its p99"));
    }

    #[test]
    fn a_failed_slice_is_named_and_prevents_a_win() {
        let mut record = record(3, 15, |index, _| [2.0, 4.0, 2.0][index]);
        record.keep(Slice { round: 3, contender: 1, ..PLACE }, Err("reset by the peer".into()));
        let verdict = of(&record, &["a", "b"]);
        assert_eq!(verdict.outcome, Outcome::Failed);
        assert_eq!(verdict.text, "no verdict: b failed in 1 of 15 slices: reset by the peer");
    }

    #[test]
    fn too_few_rounds_name_no_winner() {
        let verdict = of(&record(3, 5, |index, _| [1.0, 9.0, 1.0][index]), &["a", "b"]);
        assert_eq!(verdict.outcome, Outcome::FewRounds);
        assert!(verdict.text.contains("5 rounds, an interval needs 6"), "{verdict:?}");
    }

    #[test]
    fn a_contender_alone_has_only_its_control() {
        let verdict = verdict(&["a"], |_| 2.0);
        assert_eq!(verdict.outcome, Outcome::Alone);
        let mut bench = bench(&["a"]);
        bench.contenders.control = None;
        assert_eq!(Verdict::of(&bench, &record(1, 6, |_, _| 1.0), 0), None);
    }
}
