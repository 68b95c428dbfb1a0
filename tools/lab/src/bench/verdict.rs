//! The verdict on a cell: which contender wins, if any can be declared the winner.

use annulus_load::stats::{Ratio, Verdict, rounds_for, shared_miss};
use serde::Serialize;

use super::Bench;
use super::cell::Cell;
use super::contest::{Contest, control_failed};
use super::metric::{Better, Metric, Role};
use super::record::Record;

/// The verdict on a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellVerdict {
    /// The cell.
    pub cell: Cell,
    /// The verdict on the best contender, compared with all others; without others, on the control.
    pub verdict: Verdict,
    /// The contender that is better than every other.
    pub winner: Option<String>,
    /// The verdict as a sentence.
    pub text: String,
}

impl CellVerdict {
    /// Returns the verdict on one cell, or `None` if the bench has no control or no primary metric.
    pub fn of(bench: &Bench, record: &Record, cell: usize) -> Option<CellVerdict> {
        let control = bench.contenders.control_index()?;
        let contest = Contest { bench, record, cell, metric: bench.primary()? };
        let compared = Judge { contest, control };
        let (verdict, text) = compared.decide();
        let best = contest.best().filter(|_| verdict == Verdict::Better);
        let winner = best.map(|index| contest.name(index).to_owned());
        Some(CellVerdict { cell: bench.cells[cell].clone(), verdict, winner, text })
    }
}

/// Used if a sample lacks the numbers of a guard. A ratio without an interval decides nothing.
const NO_RATIO: Ratio = Ratio { median: f64::NAN, interval: None };

type Decision = (Verdict, String);

struct Judge<'a> {
    contest: Contest<'a>,
    control: usize,
}

impl Judge<'_> {
    fn decide(&self) -> Decision {
        if let Some(why) = self.contest.void() {
            return (Verdict::Void, format!("no verdict: {why}"));
        }
        self.few_rounds().unwrap_or_else(|| self.compare())
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
            format!("jointly valid intervals in {cells} cells need")
        };
        let text = format!("undecided: {rounds} rounds, {together} {needed}");
        (rounds < needed).then_some((Verdict::Undecided, text))
    }

    /// Decides the winner. All contenders and the control have an interval.
    fn compare(&self) -> Decision {
        let control = self.contest.control().unwrap_or(NO_RATIO);
        let best = self.contest.best().unwrap_or(0);
        let others: Vec<usize> = (0..self.control).filter(|&other| other != best).collect();
        let alone = || match Verdict::of(control, self.contest.min_difference()) {
            _ if control_failed(control) => Verdict::Void,
            Verdict::Same => Verdict::Same,
            _ => Verdict::Undecided,
        };
        let verdict = if others.is_empty() { alone() } else { self.contest.verdict_of_best(best) };
        let copy = format!("the control takes {} itself", control.times());
        let all = |of: &[usize]| {
            let texts = of.iter().map(|&other| self.text(best, other, &[]));
            format!("{} takes {}", self.contest.name(best), texts.collect::<Vec<_>>().join("; "))
        };
        match verdict {
            Verdict::Better => self.guard(best, &others),
            Verdict::Void => {
                let text = "no verdict: the control differs from the contender that it copies, {}; run it \
                            again on a quieter machine";
                (verdict, text.replace("{}", &control.times()))
            }
            _ if others.is_empty() => {
                let name = self.contest.name(best);
                (
                    verdict,
                    format!("{verdict}: {name}, measured twice, takes {} itself", control.times()),
                )
            }
            Verdict::Same => (verdict, format!("the same: {}; {copy}", all(&others))),
            _ => {
                let is_open = |other: &usize| !self.contest.verdict(best, *other).is_different();
                let open: Vec<usize> = others.into_iter().filter(is_open).collect();
                (Verdict::Undecided, format!("undecided: {}; {copy}", all(&open)))
            }
        }
    }

    /// Checks the guards, since CPU time alone does not win: a contender that only delays work in
    /// batches uses less of it.
    fn guard(&self, best: usize, others: &[usize]) -> Decision {
        let name = self.contest.name(best);
        let all: Vec<&Metric> = self.guards().map(|(guard, _)| guard).collect();
        if let Some(other) = others.iter().find(|&&other| self.is_worse(best, other)) {
            let text = format!("undecided: {name} takes {}", self.text(best, *other, &all));
            return (Verdict::Undecided, text);
        }
        let first = &all[..all.len().min(1)];
        let over: Vec<String> = others.iter().map(|&other| self.text(best, other, first)).collect();
        (Verdict::Better, format!("{name} is better: it takes {}", over.join("; ")))
    }

    /// Returns the ratios of two contenders by the primary metric and by these guards, as text.
    fn text(&self, best: usize, other: usize, guards: &[&Metric]) -> String {
        let primary = self.ratio(self.contest.metric, best, other).times();
        let noun = &self.contest.metric.noun;
        let first = format!("{primary} the {noun} of {}", self.contest.name(other));
        let guards = guards.iter().map(|guard| {
            format!("{:.2} × its {}", self.ratio(guard, best, other).median, guard.noun)
        });
        [first].into_iter().chain(guards).collect::<Vec<_>>().join(", ")
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
        Contest { metric, ..self.contest }.ratio(contender, other).unwrap_or(NO_RATIO)
    }
}

#[cfg(test)]
mod tests {
    use super::super::contest::{RECEIVED_KEY, REFUSED_KEY};
    use super::super::metric::Sample;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, record, sample};
    use super::*;

    const FIRST_SLICE: Slice = Slice { round: 0, cell: 0, contender: 0 };

    fn of(record: &Record, names: &[&str]) -> CellVerdict {
        CellVerdict::of(&bench(names), record, 0).expect("a control and a primary metric")
    }

    /// Fifteen rounds in which the CPU times vary by a few thousandths.
    fn verdict(names: &[&str], cpu: impl Fn(usize) -> f64) -> CellVerdict {
        let noise = |index: usize, round: usize| 1.0 + ((index * 7 + round * 5) % 11) as f64 / 2e3;
        let strays = |index: usize, round: usize| cpu(index) * noise(index, round);
        of(&record(names.len() + 1, 15, strays), names)
    }

    #[test]
    fn the_cheapest_wins_in_any_position() {
        let first = verdict(&["uring", "threads"], |index| [2.0, 4.0, 2.0][index]);
        assert_eq!((first.verdict, first.winner.as_deref()), (Verdict::Better, Some("uring")));
        assert!(
            first
                .text
                .starts_with("uring is better: it takes 0.50 × [0.50, 0.50] the CPU of threads")
        );
        assert!(first.text.ends_with("the CPU of threads, 2.00 × its requests/s"), "{first:?}");
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
        let verdict = CellVerdict::of(&bench, &record, 0).expect("a verdict");
        assert_eq!(verdict.winner.as_deref(), Some("b"));
        let part = "2.00 × [2.00, 2.00] the operations/s of a";
        assert!(verdict.text.contains(part), "{verdict:?}");
    }

    #[test]
    fn equals_are_the_same_and_no_winner() {
        let equal = verdict(&["a", "b"], |_| 2.0);
        assert_eq!((equal.verdict, equal.winner), (Verdict::Same, None));
        assert!(equal.text.starts_with("the same: "), "{}", equal.text);
        let three = verdict(&["a", "b", "c"], |index| [2.0, 2.0, 4.0, 2.0][index]);
        assert_eq!((three.verdict, three.winner), (Verdict::Same, None));
    }

    #[test]
    fn a_deviating_control_voids_all_but_large_differences() {
        let with = |other: f64| verdict(&["a", "b"], |index| [2.0, other, 2.1][index]);
        let near = with(2.1);
        assert_eq!((near.verdict, near.winner), (Verdict::Void, None));
        assert!(
            near.text.contains("differs from the contender that it copies, 1.05 ×"),
            "{}",
            near.text
        );
        assert_eq!(with(44.0).winner.as_deref(), Some("a"));
    }

    #[test]
    fn no_win_is_smaller_than_the_deviation_of_the_control() {
        let close = |other: f64| verdict(&["a", "b"], |index| [2.0, other, 2.05][index]);
        assert_eq!(close(2.06).winner, None);
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
        assert_eq!(unsteady(2.2).verdict, Verdict::Void);
        assert_eq!(unsteady(4.0).winner.as_deref(), Some("a"));
    }

    #[test]
    fn less_cpu_but_fewer_requests_is_no_win() {
        let mut record = record(3, 15, |index, _| [2.0, 4.0, 2.0][index]);
        for round in 0..15 {
            let numbers = [("operations", 1000.0), ("cpu_ns", 2e6), ("ns", 1e7), ("p99_us", 40.0)];
            record.keep(Slice { round, ..FIRST_SLICE }, Ok(Sample::from(numbers)));
        }
        let verdict = of(&record, &["lazy", "eager"]);
        assert_eq!((verdict.verdict, verdict.winner), (Verdict::Undecided, None));
        assert!(verdict.text.starts_with("undecided: lazy takes 0.50"), "{}", verdict.text);
        assert!(verdict.text.ends_with("of eager, 0.40 × its requests/s, 0.50 × its p99"));
    }

    #[test]
    fn few_failed_slices_are_ignored_and_many_void_the_cell() {
        let mut record = record(3, 15, |index, _| [2.0, 4.0, 2.0][index]);
        let mut fail = |rounds: std::ops::Range<usize>| {
            for round in rounds {
                record.keep(
                    Slice { round, contender: 1, ..FIRST_SLICE },
                    Err("reset by the peer".into()),
                );
            }
            of(&record, &["a", "b"])
        };
        assert_eq!(fail(0..3).winner.as_deref(), Some("a"));
        let verdict = fail(3..4);
        assert_eq!((verdict.verdict, verdict.winner), (Verdict::Void, None));
        assert_eq!(verdict.text, "no verdict: b failed in 4 of 15 slices: reset by the peer");
    }

    /// A server that answers with errors, or with smaller replies, does less work.
    #[test]
    fn contenders_that_do_not_do_the_same_work_are_not_compared() {
        let with = |key: &str, values: [f64; 3]| {
            let mut record = Record::new();
            for (round, contender) in (0..15).flat_map(|round| [0, 1, 2].map(|c| (round, c))) {
                let mut sample = sample([2.0, 4.0, 2.0][contender]);
                sample.set(key, values[contender]);
                record.keep(Slice { round, contender, ..FIRST_SLICE }, Ok(sample));
            }
            of(&record, &["a", "b"])
        };
        let refused = with(REFUSED_KEY, [100.0, 0.0, 100.0]);
        assert_eq!((refused.verdict, refused.winner), (Verdict::Void, None));
        let text = "no verdict: a refused 10.0 % of its requests, and b 0.0 %: they did not do the same work";
        assert_eq!(refused.text, text);
        assert_eq!(with(REFUSED_KEY, [100.0; 3]).winner.as_deref(), Some("a"));
        let short = with(RECEIVED_KEY, [200e3, 4300e3, 200e3]);
        assert_eq!(short.verdict, Verdict::Void);
        assert!(
            short.text.contains("a reply of b has 4300 bytes, and one of a has 200"),
            "{}",
            short.text
        );
        assert_eq!(with(RECEIVED_KEY, [200e3, 500e3, 200e3]).winner.as_deref(), Some("a"));
    }

    #[test]
    fn too_few_rounds_name_no_winner() {
        let verdict = of(&record(3, 5, |index, _| [1.0, 9.0, 1.0][index]), &["a", "b"]);
        assert_eq!(verdict.verdict, Verdict::Undecided);
        assert!(verdict.text.contains("5 rounds, an interval needs 6"), "{verdict:?}");
    }

    #[test]
    fn a_contender_alone_is_the_same_as_its_copy() {
        let verdict = verdict(&["a"], |_| 2.0);
        assert_eq!((verdict.verdict, verdict.winner), (Verdict::Same, None));
        let mut bench = bench(&["a"]);
        bench.contenders.control = None;
        assert_eq!(CellVerdict::of(&bench, &record(1, 6, |_, _| 1.0), 0), None);
    }
}
