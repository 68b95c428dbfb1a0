//! The envelope: the best contender of each cell, and the distance of each contender from it.

use annulus_load::stats::{Interval, MISS_PROBABILITY, Ratio, Verdict, interval};
use serde::Serialize;

use super::Bench;
use super::cell::Cell;
use super::contest::Contest;
use super::metric::Metric;
use super::record::Record;

/// The best contender of each cell by one metric, and each contender's distance from it.
///
/// The distance is a ratio of costs: 1 is the best and 2 is twice as bad, whichever direction of
/// the metric is better. It is the median of the rounds' ratios, and at least 1. The control is not
/// included.
#[derive(Clone, Debug, Serialize)]
pub struct Envelope {
    /// The key of the metric.
    pub metric: String,
    /// The best contender of each cell, in cell order; `null` if nothing was measured there.
    pub best: Vec<Option<BestContender>>,
    /// The distances of each contender, in contender order.
    pub contenders: Vec<Distances>,
}

/// The best contender of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BestContender {
    /// The contender.
    pub contender: String,
    /// The value of the metric.
    pub value: f64,
    /// The verdict on the contender, compared with all others.
    pub verdict: Verdict,
}

/// The distances of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Distances {
    /// The contender.
    pub contender: String,
    /// The distance in each cell, in cell order; `null` if the contender was not measured there.
    pub cells: Vec<Option<Distance>>,
    /// The cell in which the contender is farthest from the best, among those with a verdict on it.
    pub worst: Option<WorstCell>,
    /// The geometric mean of the distances in all cells with a verdict on the contender. Its 95 %
    /// interval is over the rounds that measured all these cells. `null` without such cells.
    pub mean: Option<Ratio>,
}

/// The distance of a contender from the best of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// The ratio, with the interval that the verdict is based on, which is valid jointly for all
    /// cells.
    pub ratio: Ratio,
    /// The verdict on the contender, compared with the best; the best is compared with all others.
    pub verdict: Verdict,
}

/// The cell in which a contender is farthest from the best.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstCell {
    /// The cell.
    pub cell: Cell,
    /// The distance.
    pub ratio: f64,
}

/// The contenders that are annulus. The first one that takes part represents it.
pub const OWN_CONTENDERS: [&str; 9] =
    ["uring", "ring", "tasks", "epoll", "guest", "guest-tasks", "uring-1", "lookup", "task"];

/// The subject of a run, compared with its best rival in a cell by the primary metric.
///
/// If annulus takes part, it is the subject, and its rivals are all contenders that are not
/// annulus. Otherwise the baseline is the subject, and all others are rivals.
#[derive(Clone, Debug, Serialize)]
pub struct RivalComparison {
    /// The subject of the run.
    pub contender: String,
    /// The cell.
    pub cell: Cell,
    /// The best rival.
    pub rival: String,
    /// The contender's cost as a multiple of the rival's, with an interval that is valid jointly
    /// for all cells.
    pub cost: Ratio,
    /// The verdict on the contender.
    pub verdict: Verdict,
}

impl RivalComparison {
    /// Returns the comparison for each cell in which both were measured; empty without a primary
    /// metric.
    pub fn all(bench: &Bench, record: &Record) -> Vec<RivalComparison> {
        let (names, Some(metric)) = (&bench.contenders.specs, bench.primary()) else {
            return Vec::new();
        };
        let place = |name: &&str| names.iter().position(|spec| spec.name == **name);
        let subject =
            OWN_CONTENDERS.iter().find_map(place).unwrap_or(bench.contenders.baseline_index());
        let is_ours = |index: usize| {
            let name = names[index].name.as_str();
            OWN_CONTENDERS.contains(&name) || name.starts_with("uring+")
        };
        let others = (0..names.len()).filter(|&other| other != subject);
        let (ours, mut rivals): (Vec<usize>, Vec<usize>) = others.partition(|&it| is_ours(it));
        if rivals.is_empty() {
            rivals = ours;
        }
        let of = |cell: usize| {
            let contest = Contest { bench, record, cell, metric };
            let costs = rivals.iter().filter_map(|&it| Some((it, contest.cost(it, subject)?)));
            let (rival, _) = costs.min_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
            Some(RivalComparison {
                contender: names[subject].name.clone(),
                cell: bench.cells[cell].clone(),
                rival: names[rival].name.clone(),
                cost: contest.cost(subject, rival)?,
                verdict: contest.verdict(subject, rival),
            })
        };
        (0..bench.cells.len()).filter_map(of).collect()
    }
}

impl Envelope {
    /// Returns the envelope of each compared metric, the primary one first; empty if there are
    /// fewer than two contenders.
    pub fn all(bench: &Bench, record: &Record) -> Vec<Envelope> {
        if bench.contenders.specs.len() < 2 {
            return Vec::new();
        }
        let primary = bench.primary().map(|metric| &metric.key);
        let mut compared: Vec<&Metric> =
            bench.metrics.iter().filter(|metric| metric.is_compared()).collect();
        compared.sort_by_key(|metric| Some(&metric.key) != primary);
        compared.into_iter().map(|metric| Envelope::of(bench, record, metric)).collect()
    }

    /// Returns the envelope of one metric.
    pub fn of(bench: &Bench, record: &Record, metric: &Metric) -> Envelope {
        let contest = |cell| Contest { bench, record, cell, metric };
        let contests: Vec<Contest<'_>> = (0..bench.cells.len()).map(contest).collect();
        let best: Vec<Option<usize>> = contests.iter().map(Contest::best).collect();
        let named = |(contest, best): (&Contest<'_>, &Option<usize>)| {
            let index = (*best)?;
            let contender = bench.contenders.specs[index].name.clone();
            let (value, verdict) =
                (record.value(metric, index, contest.cell)?, contest.verdict_of_best(index));
            Some(BestContender { contender, value, verdict })
        };
        let contenders = 0..bench.contenders.specs.len();
        Envelope {
            metric: metric.key.clone(),
            best: contests.iter().zip(&best).map(named).collect(),
            contenders: contenders.map(|index| Distances::of(&contests, &best, index)).collect(),
        }
    }

    /// Returns the distances of a contender.
    pub fn of_contender(&self, name: &str) -> Option<&Distances> {
        self.contenders.iter().find(|distances| distances.contender == name)
    }
}

impl Distances {
    fn of(contests: &[Contest<'_>], best: &[Option<usize>], contender: usize) -> Distances {
        let bench = contests[0].bench;
        let of = |(contest, best): (&Contest<'_>, &Option<usize>)| {
            Distance::of(contest, contender, (*best)?)
        };
        let cells: Vec<Option<Distance>> = contests.iter().zip(best).map(of).collect();
        let counts = |&cell: &usize| cells[cell].is_some_and(|found| found.verdict.is_decided());
        let places: Vec<usize> = (0..cells.len()).filter(counts).collect();
        let places = || places.iter().copied();
        let worst = places().filter_map(|cell| Some((cell, cells[cell]?.ratio.median)));
        let worst = worst.reduce(|a, b| if b.1 > a.1 { b } else { a });
        let logs: Option<Vec<f64>> =
            places().map(|cell| cells[cell].map(|distance| distance.ratio.median.ln())).collect();
        let mean = logs.filter(|logs| !logs.is_empty()).map(|logs| {
            let median = mean_of_logs(&logs);
            let compared = places().filter_map(|cell| Some((&contests[cell], best[cell]?)));
            let rounds = means_by_round(&compared.collect::<Vec<_>>(), contender);
            let around = |found: Interval| Interval {
                low: found.low.min(median),
                high: found.high.max(median),
            };
            Ratio { median, interval: interval(&rounds, MISS_PROBABILITY).map(around) }
        });
        Distances {
            contender: bench.contenders.specs[contender].name.clone(),
            worst: worst.map(|(cell, ratio)| WorstCell { cell: bench.cells[cell].clone(), ratio }),
            mean,
            cells,
        }
    }
}

impl Distance {
    fn of(contest: &Contest<'_>, contender: usize, best: usize) -> Option<Distance> {
        let ratio = contest.cost(contender, best)?;
        let verdict = if contender == best {
            contest.verdict_of_best(best)
        } else {
            contest.verdict(contender, best)
        };
        Some(Distance { ratio: Ratio { median: ratio.median.max(1.0), ..ratio }, verdict })
    }
}

fn mean_of_logs(logs: &[f64]) -> f64 {
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// Returns the geometric mean over the cells, for each round that measured all of them.
fn means_by_round(cells: &[(&Contest<'_>, usize)], contender: usize) -> Vec<f64> {
    let costs: Vec<_> =
        cells.iter().map(|(contest, best)| contest.costs(contender, *best)).collect();
    let Some((first, rest)) = costs.split_first() else { return Vec::new() };
    let mean = |(round, cost): (&usize, &f64)| {
        let others = rest.iter().map(|costs| costs.get(round).map(|cost| cost.ln()));
        let logs: Option<Vec<f64>> = [Some(cost.ln())].into_iter().chain(others).collect();
        logs.map(|logs| mean_of_logs(&logs))
    };
    first.iter().filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Slice;
    use super::super::tests::{bench, sample};
    use super::*;

    /// Two cells with this CPU time by contender and cell, without noise. The control equals the
    /// first contender.
    fn run(names: &[&str], cpu: &[[f64; 2]]) -> (Bench, Record) {
        let mut bench = bench(names);
        bench.cells.push(Cell::new([("clients", 1.into()), ("bytes", 128.into())]));
        let mut record = Record::new();
        for (round, cell) in (0..15).flat_map(|round| [(round, 0), (round, 1)]) {
            for contender in 0..=names.len() {
                let cpu = cpu[contender % names.len()][cell];
                record.keep(Slice { round, cell, contender }, Ok(sample(cpu)));
            }
        }
        (bench, record)
    }

    fn verdicts(distances: &Distances) -> Vec<Option<Verdict>> {
        distances.cells.iter().map(|cell| cell.map(|distance| distance.verdict)).collect()
    }

    #[test]
    fn distances_are_ratios_to_the_best_of_each_cell() {
        let (bench, record) = run(&["a", "b", "c"], &[[2.0, 4.0], [4.0, 2.0], [2.02, 8.0]]);
        let all = Envelope::all(&bench, &record);
        let keys: Vec<&str> = all.iter().map(|envelope| envelope.metric.as_str()).collect();
        assert_eq!(keys, ["cpu_us", "rate", "p99_us"]);
        let best: Vec<&str> =
            all[0].best.iter().flatten().map(|best| best.contender.as_str()).collect();
        assert_eq!(best, ["a", "b"]);
        let a = all[0].of_contender("a").expect("a contender");
        assert_eq!(verdicts(a), [Some(Verdict::Same), Some(Verdict::Worse)]);
        let worst = WorstCell { cell: bench.cells[1].clone(), ratio: 2.0 };
        assert_eq!(a.worst.as_ref(), Some(&worst));
        let mean = a.mean.expect("both cells");
        assert!((mean.median - 2.0_f64.sqrt()).abs() < 1e-9 && mean.interval.is_some());
        let c = all[0].of_contender("c").expect("a contender");
        assert_eq!(verdicts(c), [Some(Verdict::Same), Some(Verdict::Worse)]);
        assert!((c.mean.expect("both cells").median - (1.01_f64 * 4.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn distances_are_costs_even_if_higher_is_better() {
        let (bench, record) = run(&["a", "b"], &[[2.0, 2.0], [4.0, 4.0]]);
        let rate = Envelope::of(&bench, &record, &bench.metrics[1]);
        assert_eq!(rate.best[0].as_ref().map(|best| best.value), Some(5e5));
        assert_eq!(rate.contenders[1].cells[0].map(|found| found.ratio.median), Some(2.0));
        assert_eq!(verdicts(&rate.contenders[1]), [Some(Verdict::Worse); 2]);
    }

    #[test]
    fn a_contender_that_failed_often_is_never_the_best() {
        let (bench, mut record) = run(&["a", "b"], &[[2.0, 2.0], [4.0, 4.0]]);
        for round in 0..5 {
            record.keep(Slice { round, cell: 1, contender: 0 }, Err("reset".into()));
        }
        let envelope = Envelope::of(&bench, &record, &bench.metrics[0]);
        assert_eq!(envelope.best[1].as_ref().map(|best| best.contender.as_str()), Some("b"));
        let [a, b] = [0, 1].map(|index| &envelope.contenders[index]);
        assert_eq!(verdicts(a), [Some(Verdict::Better), Some(Verdict::Void)]);
        assert_eq!(verdicts(b), [Some(Verdict::Worse), Some(Verdict::Void)]);
        assert_eq!(
            (a.mean.map(|it| it.median), b.mean.map(|it| it.median)),
            (Some(1.0), Some(2.0))
        );
    }

    #[test]
    fn undecided_cells_do_not_count() {
        let (bench, mut record) = run(&["a", "b"], &[[2.0, 2.0], [4.0, 2.5]]);
        for round in 0..15 {
            record.keep(Slice { round, cell: 1, contender: 2 }, Ok(sample(3.0)));
        }
        let envelope = Envelope::of(&bench, &record, &bench.metrics[0]);
        let b = &envelope.contenders[1];
        assert_eq!(verdicts(b), [Some(Verdict::Worse), Some(Verdict::Void)]);
        assert_eq!((b.worst.as_ref().map(|worst| worst.ratio), b.mean.map(|mean| mean.median)), {
            (Some(2.0), Some(2.0))
        });
        let mut few = Record::new();
        let first = record.slices().iter().filter(|(slice, _)| slice.round < 5);
        first.for_each(|(&slice, outcome)| few.keep(slice, outcome.clone()));
        let envelope = Envelope::of(&bench, &few, &bench.metrics[0]);
        assert_eq!(verdicts(&envelope.contenders[1])[0], Some(Verdict::Undecided));
        assert!(envelope.contenders[1].mean.is_none());
    }

    #[test]
    fn nothing_measured_and_a_single_contender_have_no_envelope() {
        let bench = bench(&["a", "b"]);
        let envelope = Envelope::of(&bench, &Record::new(), &bench.metrics[0]);
        assert_eq!((envelope.best[0].as_ref(), envelope.contenders[0].cells[0]), (None, None));
        assert!(envelope.contenders[0].worst.is_none() && envelope.contenders[0].mean.is_none());
        let single = super::super::tests::bench(&["a"]);
        assert!(Envelope::all(&single, &Record::new()).is_empty());
    }
}
