//! What takes something away from a result, each with what to do about it.

use std::fmt;

use crate::cores::Cores;
use crate::record::{Metric, Record};
use crate::schedule::Cell;
use crate::verdict::Verdict;

/// Above this share of its core the load, not the server, may set the pace.
const SATURATED: f64 = 0.9;

/// A doubt about a whole run. Its `Display` is one sentence.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt<C = Cell> {
    /// The load had no core of its own.
    SharedCore(Cores),
    /// The load used up its core in these cells.
    LoadSaturated {
        /// The highest median share, from 0 to 1.
        share: f64,
        /// Where.
        cells: Vec<C>,
    },
    /// The control failed in these cells.
    ControlFailed(Vec<C>),
    /// The ratios of these cells are known less well than was asked for.
    Imprecise {
        /// Half the width an interval should have had at most.
        half_width: f64,
        /// Where.
        cells: Vec<C>,
    },
    /// The run was broken off.
    Interrupted {
        /// Slices measured.
        done: usize,
        /// Slices planned.
        planned: usize,
    },
}

impl Doubt {
    /// The doubts that the figures themselves raise.
    pub fn of(record: &Record, verdicts: &[Verdict]) -> Vec<Doubt> {
        [saturated(record), control_failed(record, verdicts)].into_iter().flatten().collect()
    }

    /// The doubt about cells in which an interval is wider than twice `half_width`.
    pub fn of_precision(record: &Record, metric: Metric, half_width: f64) -> Option<Doubt> {
        let cells = record.cells().iter().enumerate();
        let wide = cells.filter(|(place, _)| !record.is_precise(metric, *place, half_width));
        let cells: Vec<Cell> = wide.map(|(_, &cell)| cell).collect();
        (!cells.is_empty()).then_some(Doubt::Imprecise { half_width, cells })
    }
}

impl<C: fmt::Display> fmt::Display for Doubt<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::SharedCore(Cores { server, load }) if server == load => write!(
                f,
                "server and load share core {server}: requests/s and latency say little, and CPU \
                 a request includes what they do to each other's caches"
            ),
            Doubt::SharedCore(Cores { server, load }) => write!(
                f,
                "cores {server} and {load} are two threads of one core: server and load slow each \
                 other down; choose others with --server-pin and --load-pin"
            ),
            Doubt::LoadSaturated { share, cells } => write!(
                f,
                "the load used {:.0} % of its core at {}: latency and requests/s carry a doubt \
                 (CPU a request does not)",
                share * 100.0,
                list(cells)
            ),
            Doubt::ControlFailed(cells) => write!(
                f,
                "the same server, measured twice, did not come out the same at {}: this run is \
                 worth nothing there; take more rounds on a quieter machine",
                list(cells)
            ),
            Doubt::Imprecise { half_width, cells } => write!(
                f,
                "ratios are not known to within ± {half_width} at {}: allow more rounds with \
                 --rounds-max, or run it on a quieter machine",
                list(cells)
            ),
            Doubt::Interrupted { done, planned } => {
                write!(f, "broken off after {done} of {planned} slices: this is what there is")
            }
        }
    }
}

fn list<C: fmt::Display>(cells: &[C]) -> String {
    cells.iter().map(C::to_string).collect::<Vec<_>>().join(", ")
}

fn saturated(record: &Record) -> Option<Doubt> {
    let mut share = 0.0_f64;
    let mut cells = Vec::new();
    for (place, &cell) in record.cells().iter().enumerate() {
        let shares = (0..record.servers().len())
            .filter_map(|server| record.median(Metric::ClientShare, server, place));
        let most = shares.fold(0.0, f64::max);
        if most > SATURATED {
            share = share.max(most);
            cells.push(cell);
        }
    }
    (!cells.is_empty()).then_some(Doubt::LoadSaturated { share, cells })
}

fn control_failed(record: &Record, verdicts: &[Verdict]) -> Option<Doubt> {
    let judged = record.cells().iter().zip(verdicts);
    let cells: Vec<Cell> =
        judged.filter(|(_, verdict)| verdict.is_worthless()).map(|(&cell, _)| cell).collect();
    (!cells.is_empty()).then_some(Doubt::ControlFailed(cells))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Sample;
    use crate::record::tests::{record, sample};
    use crate::schedule::Visit;

    fn doubts(record: &Record) -> Vec<Doubt> {
        Doubt::of(record, &[Verdict::of(record, 0)])
    }

    #[test]
    fn a_calm_run_raises_none() {
        let record = record(&["a", "b"], 15, |server, _| [2.0, 4.0, 2.0][server]);
        assert_eq!(doubts(&record), []);
    }

    #[test]
    fn a_load_that_used_up_its_core_is_named_once_with_its_cells() {
        let mut record = record(&["a", "b"], 3, |_, _| 2.0);
        for round in 0..3 {
            let busy = Sample { client_cpu_share: 0.97, ..sample(2.0) };
            record.keep(Visit { round, server: 1, cell: 0 }, Ok(busy));
        }
        let doubts = doubts(&record);
        assert_eq!(doubts.len(), 1);
        let text = doubts[0].to_string();
        assert!(
            text.starts_with("the load used 97 % of its core at 50 clients × 128 bytes:"),
            "{text}"
        );
    }

    #[test]
    fn an_interval_wider_than_asked_for_is_told() {
        let record = record(&["a", "b"], 15, |server, round| match server {
            1 => 2.0 + (round % 3) as f64 / 10.0,
            _ => 2.0,
        });
        assert_eq!(Doubt::of_precision(&record, Metric::Cpu, 0.06), None);
        let doubt = Doubt::of_precision(&record, Metric::Cpu, 0.01)
            .expect("1.00 to 1.10 is wider")
            .to_string();
        assert!(doubt.contains("± 0.01 at 50 clients × 128 bytes"), "{doubt}");
    }

    #[test]
    fn a_failed_control_is_told_for_the_run() {
        let record = record(&["a", "b"], 15, |server, _| [2.0, 4.0, 2.5][server]);
        assert_eq!(doubts(&record), [Doubt::ControlFailed(record.cells().to_vec())]);
    }
}
