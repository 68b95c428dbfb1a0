//! The envelope: the distance of each contender from the best contender of each cell.

use annulus_load::stats::Ratio;
use serde::Serialize;

use super::Bench;
use super::contest::Contest;
use super::metric::Metric;
use super::record::Record;

/// Each contender's distance from the best contender of each cell, by one metric.
///
/// The distance is a ratio of costs: 1 is the best and 2 is twice as bad, whichever direction of
/// the metric is better. It is the median of the rounds' ratios, and at least 1. The control is not
/// included. Distances are figures, not verdicts.
#[derive(Clone, Debug, Serialize)]
pub struct Envelope {
    /// The key of the metric.
    pub metric: String,
    /// The distances of each contender, in contender order.
    pub contenders: Vec<Distances>,
}

/// The distances of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Distances {
    /// The contender.
    pub contender: String,
    /// The distance in each cell, in cell order, with the interval that a verdict would be based
    /// on; `null` if the contender was not measured there.
    pub cells: Vec<Option<Ratio>>,
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
        let contenders = bench.contenders.specs.iter().enumerate();
        let distances = contenders.map(|(index, spec)| {
            let distance = |(contest, best): (&Contest<'_>, &Option<usize>)| {
                let ratio = contest.cost(index, (*best)?)?;
                Some(Ratio { median: ratio.median.max(1.0), ..ratio })
            };
            Distances {
                contender: spec.name.clone(),
                cells: contests.iter().zip(&best).map(distance).collect(),
            }
        });
        Envelope { metric: metric.key.clone(), contenders: distances.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::Cell;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, sample};
    use super::*;

    /// Returns a run of two cells without noise. `cpu` has the CPU time of each contender in each
    /// cell. The control equals the first contender.
    fn run(names: &[&str], cpu: &[[f64; 2]]) -> (Bench, Record) {
        let mut bench = bench(names);
        bench.cells.push(Cell::new([("connections", 1.into()), ("bytes", 128.into())]));
        let mut record = Record::new();
        for (round, cell) in (0..15).flat_map(|round| [(round, 0), (round, 1)]) {
            for contender in 0..=names.len() {
                let cpu = cpu[contender % names.len()][cell];
                record.keep(Slice { round, cell, contender }, Ok(sample(cpu)));
            }
        }
        (bench, record)
    }

    fn medians(distances: &Distances) -> Vec<Option<f64>> {
        distances.cells.iter().map(|cell| cell.map(|ratio| ratio.median)).collect()
    }

    #[test]
    fn distances_are_ratios_to_the_best_of_each_cell() {
        let (bench, record) = run(&["a", "b", "c"], &[[2.0, 4.0], [4.0, 2.0], [2.02, 8.0]]);
        let all = Envelope::all(&bench, &record);
        let keys: Vec<&str> = all.iter().map(|envelope| envelope.metric.as_str()).collect();
        assert_eq!(keys, ["cpu_us", "rate", "p99_us"]);
        assert_eq!(medians(&all[0].contenders[0]), [Some(1.0), Some(2.0)]);
        assert_eq!(medians(&all[0].contenders[1]), [Some(2.0), Some(1.0)]);
        assert_eq!(medians(&all[0].contenders[2]), [Some(1.01), Some(4.0)]);
    }

    #[test]
    fn distances_are_costs_even_if_higher_is_better() {
        let (bench, record) = run(&["a", "b"], &[[2.0, 2.0], [4.0, 4.0]]);
        let rate = Envelope::of(&bench, &record, &bench.metrics[1]);
        assert_eq!(medians(&rate.contenders[0]), [Some(1.0); 2]);
        assert_eq!(medians(&rate.contenders[1]), [Some(2.0); 2]);
    }

    #[test]
    fn a_contender_that_failed_often_is_never_the_best() {
        let (bench, mut record) = run(&["a", "b"], &[[2.0, 2.0], [4.0, 4.0]]);
        for round in 0..5 {
            record.keep(Slice { round, cell: 1, contender: 0 }, Err("reset".into()));
        }
        let envelope = Envelope::of(&bench, &record, &bench.metrics[0]);
        assert_eq!(medians(&envelope.contenders[1]), [Some(2.0), Some(1.0)]);
    }

    #[test]
    fn nothing_measured_and_a_single_contender_have_no_envelope() {
        let bench = bench(&["a", "b"]);
        let envelope = Envelope::of(&bench, &Record::new(), &bench.metrics[0]);
        assert_eq!(envelope.contenders[0].cells[0], None);
        let single = super::super::tests::bench(&["a"]);
        assert!(Envelope::all(&single, &Record::new()).is_empty());
    }
}
