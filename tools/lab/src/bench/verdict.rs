//! The verdict on a cell: the subject of the run against its best rival.

use annulus_load::stats::{Ratio, Verdict, rounds_for};
use serde::Serialize;

use super::Bench;
use super::cell::Cell;
use super::contest::{Contest, control_differs, control_failed};
use super::metric::{Better, Metric, Role, SYSTEM_CALLS_KEY};
use super::record::Record;
use super::sides::Sides;

/// The verdict on a cell. Text, pages and pictures all count these verdicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellVerdict {
    /// The cell.
    pub cell: Cell,
    /// The best contender of the subject's side in this cell, such as one of annulus's drivers.
    pub contender: String,
    /// The best rival in this cell; `null` if there is only one contender.
    pub rival: Option<String>,
    /// The contender's cost as a multiple of the rival's, or the control's as a multiple of the
    /// contender's if there is no rival. `null` if there is no such ratio.
    pub cost: Option<Ratio>,
    /// The verdict on the contender, compared with the rival.
    pub verdict: Verdict,
    /// The better of contender and rival; `null` if neither is better.
    pub winner: Option<String>,
    /// The verdict as a sentence that starts with the verdict's name, such as `same`.
    pub text: String,
}

impl CellVerdict {
    /// Returns the verdict on one cell, or `None` if the bench has no control or no primary metric.
    pub fn of(bench: &Bench, record: &Record, cell: usize) -> Option<CellVerdict> {
        CellVerdict::between(&Sides::of(bench), bench, record, cell)
    }

    /// Returns the verdict on the best of some contenders against one rival in a cell, by the rule
    /// that decides all verdicts. Returns `None` if one of them is not measured, or the bench has
    /// no control or no primary metric.
    pub fn named(
        bench: &Bench,
        record: &Record,
        cell: usize,
        contenders: &[&str],
        rival: &str,
    ) -> Option<CellVerdict> {
        let sides = Sides::named(bench, contenders, rival)?;
        CellVerdict::between(&sides, bench, record, cell)
    }

    /// Returns true if more rounds may decide the verdict on a cell. They do not help if there is
    /// no rival, or if the interval is clear and the verdict depends on something else, such as a
    /// guard.
    pub(super) fn needs_rounds(bench: &Bench, record: &Record, cell: usize) -> bool {
        let sides = Sides::of(bench);
        let (Some(control), Some(metric)) = (bench.contenders.control_index(), bench.primary())
        else {
            return false;
        };
        let contest = Contest { bench, record, cell, metric };
        let [ours, rival] = [&sides.ours, &sides.rivals].map(|side| contest.best_of(side));
        let (Some(ours), Some(rival)) = (ours, rival) else { return false };
        if contest.void().is_some() {
            return false;
        }
        let judge = Judge { contest, control, sides: &sides };
        if judge.few_rounds().is_some() {
            return true;
        }
        match contest.verdict(ours, rival) {
            Verdict::Better => judge.unbeaten(ours).is_some(),
            verdict => !verdict.is_decided(),
        }
    }

    /// Returns the verdict on one cell for these sides.
    pub(super) fn between(
        sides: &Sides,
        bench: &Bench,
        record: &Record,
        cell: usize,
    ) -> Option<CellVerdict> {
        let control = bench.contenders.control_index()?;
        let contest = Contest { bench, record, cell, metric: bench.primary()? };
        let judge = Judge { contest, control, sides };
        let ours = contest.best_of(&sides.ours).unwrap_or(sides.ours[0]);
        let rival = contest.best_of(&sides.rivals).or(sides.rivals.first().copied());
        let (verdict, text) = judge.decide(ours, rival);
        let name = |index: usize| contest.name(index).to_owned();
        let winner = match verdict {
            Verdict::Better => Some(ours),
            Verdict::Worse => rival,
            _ => None,
        };
        Some(CellVerdict {
            cell: bench.cells[cell].clone(),
            contender: name(ours),
            rival: rival.map(name),
            cost: rival.map_or(contest.control(), |rival| contest.cost(ours, rival)),
            verdict,
            winner: winner.map(name),
            text,
        })
    }
}

/// Replaces a ratio that is unknown because samples lack a number of the metric. NaN satisfies
/// every guard, and a ratio without an interval decides nothing.
const NO_RATIO: Ratio = Ratio { median: f64::NAN, interval: None };

type Decision = (Verdict, String);

struct Judge<'a> {
    contest: Contest<'a>,
    control: usize,
    sides: &'a Sides,
}

impl Judge<'_> {
    /// Decides between the best contender of the subject's side and the best rival.
    fn decide(&self, ours: usize, rival: Option<usize>) -> Decision {
        if let Some(why) = self.contest.void() {
            return (Verdict::Void, format!("void: {why}"));
        }
        self.few_rounds().unwrap_or_else(|| self.compare(ours, rival))
    }

    fn few_rounds(&self) -> Option<Decision> {
        let Contest { bench, record, cell, metric } = self.contest;
        let rounds = |contender| record.values(metric, contender, cell).len();
        let rounds = (0..=self.control).map(rounds).min().unwrap_or(0);
        let cells = bench.cells.len();
        let needed = rounds_for(self.contest.miss());
        let together = if cells == 1 {
            "an interval needs".to_owned()
        } else {
            format!("jointly valid intervals in {cells} cells need")
        };
        let text = format!("undecided: {rounds} rounds, {together} {needed}");
        (rounds < needed).then_some((Verdict::Undecided, text))
    }

    /// Compares a contender with its best rival, or with its control if there is no rival. All
    /// contenders and the control have enough rounds for an interval.
    fn compare(&self, ours: usize, rival: Option<usize>) -> Decision {
        let control = self.contest.control().unwrap_or(NO_RATIO);
        let Some(rival) = rival else {
            let verdict = match Verdict::of(control, self.contest.min_difference()) {
                _ if control_failed(control) => return (Verdict::Void, void_control(control)),
                Verdict::Same => Verdict::Same,
                _ => Verdict::Undecided,
            };
            let name = self.contest.name(ours);
            return (
                verdict,
                format!("{verdict}: {name}, measured twice, takes {} itself", control.times()),
            );
        };
        let (verdict, unbeaten) = match self.contest.verdict(ours, rival) {
            Verdict::Better => match self.unbeaten(ours) {
                None => (Verdict::Better, None),
                unbeaten => (Verdict::Undecided, unbeaten),
            },
            found => (found, None),
        };
        let (better, worse) = match verdict {
            Verdict::Worse => (rival, ours),
            _ => (ours, rival),
        };
        match verdict {
            Verdict::Void => (verdict, void_control(control)),
            // Less CPU time alone does not win: a contender can save CPU time by delaying work
            // until it can handle a batch. A loss of annulus to another program counts even if that
            // program violates a guard.
            Verdict::Better | Verdict::Worse
                if self.fails_guard(better, worse)
                    && (verdict == Verdict::Better || !self.sides.is_own) =>
            {
                let guards: Vec<&Metric> = self.guards().map(|(guard, _)| guard).collect();
                (Verdict::Undecided, format!("undecided: {}", self.text([ours, rival], &guards)))
            }
            Verdict::Better | Verdict::Worse => {
                let guards: Vec<&Metric> = self.guards().map(|(guard, _)| guard).take(1).collect();
                (verdict, format!("{verdict}: {}", self.text([ours, rival], &guards)))
            }
            _ => {
                let copy = format!("the control takes {} itself", control.times());
                let calls = match verdict {
                    Verdict::Undecided => self.system_calls([ours, rival]),
                    _ => String::new(),
                };
                let text = self.text([ours, rival], &[]);
                let but = unbeaten.map_or_else(String::new, |other| self.but_only(ours, other));
                (verdict, format!("{verdict}: {text}{but}; {copy}{calls}"))
            }
        }
    }

    /// Returns the first rival that this contender does not beat, which need not be the one with
    /// the best median.
    fn unbeaten(&self, ours: usize) -> Option<usize> {
        let is_beaten = |rival: usize| self.contest.verdict(ours, rival) == Verdict::Better;
        self.sides.rivals.iter().copied().find(|&rival| !is_beaten(rival))
    }

    /// Explains why a contender that beats its best rival does not win: it does not beat this one.
    fn but_only(&self, ours: usize, unbeaten: usize) -> String {
        let times = self.ratio(self.contest.metric, ours, unbeaten).times();
        format!(", but only {times} that of {}", self.contest.name(unbeaten))
    }

    /// Returns the ratios of two contenders by the primary metric and by these guards, as text.
    fn text(&self, [ours, rival]: [usize; 2], guards: &[&Metric]) -> String {
        let primary = self.ratio(self.contest.metric, ours, rival).times();
        let noun = &self.contest.metric.noun;
        let [ours_name, rival_name] = [ours, rival].map(|index| self.contest.name(index));
        let first = format!("{ours_name} takes {primary} the {noun} of {rival_name}");
        let guards = guards.iter().map(|guard| {
            format!("{:.2} × its {}", self.ratio(guard, ours, rival).median, guard.noun)
        });
        [first].into_iter().chain(guards).collect::<Vec<_>>().join(", ")
    }

    /// Returns the system calls per request of two contenders as text, or nothing if they were not
    /// counted. Unlike CPU time, they do not depend on clocks and caches, but a server that waits
    /// for its core makes fewer.
    fn system_calls(&self, contenders: [usize; 2]) -> String {
        let Contest { bench, record, cell, .. } = self.contest;
        let calls = bench.metrics.iter().find(|metric| metric.key == SYSTEM_CALLS_KEY);
        let of = |contender| record.value(calls?, contender, cell);
        match contenders.map(of) {
            [Some(ours), Some(rival)] => {
                format!("; {ours:.2} and {rival:.2} system calls per request")
            }
            _ => String::new(),
        }
    }

    fn guards(&self) -> impl Iterator<Item = (&Metric, f64)> {
        self.contest.bench.metrics.iter().filter_map(|metric| match metric.role {
            Role::Guard(limit) => Some((metric, limit)),
            _ => None,
        })
    }

    /// Returns true if the better contender by the primary metric violates a guard.
    fn fails_guard(&self, better: usize, worse: usize) -> bool {
        self.guards().any(|(guard, limit)| {
            let median = self.ratio(guard, better, worse).median;
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

fn void_control(control: Ratio) -> String {
    let why = match control_differs(control) {
        true => "differs from the contender that it copies,",
        false => "varies too much to compare with:",
    };
    let times = control.times();
    format!("void: the control {why} {times}; run it again on a quieter machine")
}

#[cfg(test)]
mod tests {
    use super::super::Rounds;
    use super::super::contest::{RECEIVED_KEY, REFUSED_KEY};
    use super::super::metric::Sample;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, record, sample};
    use super::*;

    const FIRST_SLICE: Slice = Slice { round: 0, cell: 0, contender: 0 };

    fn of(record: &Record, names: &[&str]) -> CellVerdict {
        CellVerdict::of(&bench(names), record, 0).expect("the cell has no verdict")
    }

    /// Returns the verdict on fifteen rounds in which the CPU times vary by a few thousandths.
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
            first.text.starts_with("better: uring takes 0.50 × [0.50, 0.50] the CPU of threads")
        );
        assert!(first.text.ends_with("the CPU of threads, 2.00 × its requests/s"), "{first:?}");
        let second = verdict(&["threads", "uring"], |index| [4.0, 2.0, 4.0][index]);
        assert_eq!(second.winner.as_deref(), Some("uring"));
        let three = verdict(&["a", "b", "c"], |index| [2.0, 4.0, 3.0, 2.0][index]);
        assert_eq!((three.rival.as_deref(), three.verdict), (Some("c"), Verdict::Better));
    }

    /// The rival with the best median is beaten clearly, and another one varies too much.
    #[test]
    fn rival_that_is_not_beaten_is_named() {
        let cpu = |index: usize, round: usize| match index {
            1 => 2.2,
            2 => [1.9, 2.4, 2.5][round % 3],
            _ => 2.0,
        };
        let found = of(&record(4, 15, cpu), &["a", "b", "c"]);
        assert_eq!((found.verdict, found.rival.as_deref()), (Verdict::Undecided, Some("b")));
        let text = "undecided: a takes 0.91 × [0.91, 0.91] the CPU of b, but only 0.83 × ";
        assert!(found.text.starts_with(text), "{found:?}");
        assert!(found.text.contains("] that of c; the control takes 1.00 ×"), "{found:?}");
    }

    #[test]
    fn higher_can_be_better() {
        let rate = Metric { role: Role::Primary, ..super::super::metric::rate() };
        let mut bench = bench(&["a", "b"]);
        bench.metrics = vec![rate];
        let record = record(3, 15, |index, _| [4.0, 2.0, 4.0][index]);
        let verdict = CellVerdict::of(&bench, &record, 0).expect("the cell has no verdict");
        assert_eq!(verdict.winner.as_deref(), Some("b"));
        let part = "worse: a takes 0.50 × [0.50, 0.50] the operations/s of b";
        assert_eq!(verdict.verdict, Verdict::Worse);
        assert!(verdict.text.contains(part), "{verdict:?}");
    }

    #[test]
    fn equals_are_the_same_and_no_winner() {
        let equal = verdict(&["a", "b"], |_| 2.0);
        assert_eq!((equal.verdict, equal.winner), (Verdict::Same, None));
        assert!(equal.text.starts_with("same: "), "{}", equal.text);
        let three = verdict(&["a", "b", "c"], |index| [2.0, 2.0, 4.0, 2.0][index]);
        assert_eq!((three.verdict, three.rival.as_deref()), (Verdict::Same, Some("b")));
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
        let void = unsteady(2.2);
        assert_eq!(void.verdict, Verdict::Void);
        let text = "void: the control varies too much to compare with: 1.00 × [0.75, 1.25]; run";
        assert!(void.text.starts_with(text), "{void:?}");
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
        assert_eq!(verdict.text, "void: b failed in 4 of 15 slices: reset by the peer");
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
        let text =
            "void: a refused 10.0 % of its requests, and b 0.0 %: they did not do the same work";
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

    /// The first of three looks has a quarter of the error probability.
    #[test]
    fn an_early_look_needs_more_rounds_for_an_interval() {
        let mut bench = bench(&["a", "b"]);
        bench.plan.rounds = Rounds::until_decided(8, 32);
        let verdict = |rounds| {
            let record = record(3, rounds, |index, _| [1.0, 9.0, 1.0][index]);
            CellVerdict::of(&bench, &record, 0).expect("the cell has no verdict")
        };
        let few = verdict(7);
        assert!(few.text.contains("7 rounds, an interval needs 8"), "{few:?}");
        assert_eq!([few.verdict, verdict(8).verdict], [Verdict::Undecided, Verdict::Better]);
    }

    #[test]
    fn an_undecided_verdict_says_how_many_system_calls_were_counted() {
        let cpu = |index: usize, round: usize| if index == 1 { [1.9, 2.2][round % 2] } else { 2.0 };
        let (mut bench, mut record) = (bench(&["a", "b"]), record(3, 15, cpu));
        bench.metrics.push(Metric::hidden(SYSTEM_CALLS_KEY));
        let text = |record: &Record| {
            let found = CellVerdict::of(&bench, record, 0).expect("the cell has no verdict");
            assert_eq!(found.verdict, Verdict::Undecided);
            found.text
        };
        assert!(text(&record).ends_with(" itself"), "{}", text(&record));
        for (contender, calls) in [(0, 0.125), (1, 2.0)] {
            let mut first = sample(cpu(contender, 0));
            first.set(SYSTEM_CALLS_KEY, calls);
            record.keep(Slice { contender, ..FIRST_SLICE }, Ok(first));
        }
        assert!(text(&record).ends_with(" itself; 0.12 and 2.00 system calls per request"));
    }

    #[test]
    fn more_rounds_are_needed_while_the_interval_is_unclear_and_only_then() {
        let needs = |names: &[&str], cpu: &dyn Fn(usize, usize) -> f64| {
            let record = record(names.len() + 1, 15, cpu);
            CellVerdict::needs_rounds(&bench(names), &record, 0)
        };
        let wide =
            |index: usize, round: usize| if index == 1 { [1.9, 2.2][round % 2] } else { 2.0 };
        assert!(needs(&["a", "b"], &wide));
        // The control deviates.
        assert!(needs(&["a", "b"], &|index, _| [2.0, 2.0, 2.1][index]));
        // Contender 1 is clearly worse, and contender 2 may be as good as contender 0.
        assert!(needs(&["a", "c", "b"], &|index, round| match index {
            1 => 9.0,
            2 => [1.0, 9.0][round % 2],
            _ => 2.0,
        }));
        assert!(!needs(&["a", "b"], &|_, _| 2.0));
        assert!(!needs(&["a", "b"], &|index, _| [2.0, 4.0, 2.0][index]));
        assert!(!needs(&["a"], &|_, round| [1.9, 2.2][round % 2]));
    }

    /// A verdict needs enough samples of every contender, and a failed slice has none.
    #[test]
    fn more_rounds_are_needed_while_any_contender_lacks_samples() {
        let mut bench = bench(&["a", "b"]);
        bench.plan.rounds = Rounds::until_decided(8, 32);
        let mut record = record(3, 8, |index, _| [1.0, 9.0, 1.0][index]);
        assert!(!CellVerdict::needs_rounds(&bench, &record, 0));
        record.keep(Slice { contender: 2, ..FIRST_SLICE }, Err("reset by the peer".into()));
        assert!(CellVerdict::needs_rounds(&bench, &record, 0));
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
