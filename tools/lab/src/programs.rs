//! Benches whose contenders are programs that answer jobs: their definitions as data, and their comparison.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value as Json, json};

use crate::bench::{Bench, Cell, Contenders, Layout, Metric, Plan, Prepared, parameters};
use crate::cores::Cores;
use crate::jobs::{Job, Known, Programs, find};
use crate::peer::Peers;

/// How much longer than its slice an answer may take: for the warm-up, and for a machine that is slow at times.
const ANSWER_SLACK: Duration = Duration::from_secs(10);

/// The core that a contender is pinned to, if it does not pin itself, and its arguments.
type Run = fn(&Known, Cores) -> (Option<usize>, Vec<OsString>);

/// The definition of a bench, common to all its comparisons.
#[derive(Debug)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// The contenders, by name.
    pub contenders: &'static [Known],
    /// The contenders that are measured unless others are named.
    pub usual: &'static [&'static str],
    /// The length of a slice unless another is given.
    pub usual_slice: Duration,
    /// The contender that ratios are taken to, if it is measured; else the first.
    pub(crate) baseline: &'static str,
    pub(crate) metrics: fn() -> Vec<Metric>,
    /// The numbers of an answer that must be above 0.
    pub(crate) required: &'static [&'static str],
    pub(crate) layout: Layout,
    pub(crate) legend: &'static str,
    /// Whether a contender uses both cores, or only that of the server.
    pub(crate) on_two_cores: bool,
    pub(crate) run: Run,
    /// The cores, as text and as parameters of the report.
    pub(crate) placement: fn(Cores) -> (String, Json),
}

/// A comparison.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The bench.
    pub definition: &'static Definition,
    /// Its rounds.
    pub plan: Plan,
    /// The names of the contenders.
    pub contenders: Vec<String>,
    /// The parameters.
    pub cells: Vec<Cell>,
    /// How long a slice is measured.
    pub slice: Duration,
    /// The cores; a bench on one core uses that of the server.
    pub cores: Cores,
    /// The peers.
    pub peers: Option<Peers>,
}

impl Setup {
    /// Builds peers and starts all contenders.
    ///
    /// # Errors
    /// If a contender cannot be built or started, or none is left.
    pub fn prepare(self) -> Result<Prepared> {
        let Setup { definition, plan, contenders, cells, slice, cores, peers } = self;
        let contenders = gather(definition, &contenders, peers.as_ref(), cores)?;
        let job = |cell: &Cell| Job { line: cell.timed_job(slice), timeout: slice + ANSWER_SLACK };
        let jobs = cells.iter().map(job).collect();
        let measure = Programs::start(&contenders, jobs, definition.required)?;
        let seconds = slice.as_secs_f64();
        let (placement, of_cores) = (definition.placement)(cores);
        let mut all: Map<String, Json> = parameters(json!({ "seconds": seconds }));
        all.extend(parameters(of_cores));
        let bench = Bench {
            plan,
            terms: format!(" of {seconds} s, {placement}"),
            legend: definition.legend.into(),
            layout: definition.layout,
            contenders,
            cells,
            metrics: (definition.metrics)(),
            idle: None,
            cores: definition.on_two_cores.then_some(cores),
            parameters: all,
        };
        Ok(Prepared { bench, measure: Box::new(measure), scratch: None })
    }

    /// About how long a slice takes: contenders warm up for a fifth of it.
    pub fn cost(&self) -> Duration {
        self.slice * 6 / 5
    }
}

fn gather(
    definition: &Definition,
    names: &[String],
    peers: Option<&Peers>,
    cores: Cores,
) -> Result<Contenders> {
    let found = names.iter().map(|name| {
        let known = find(definition.contenders, name)?;
        let (pin, arguments) = (definition.run)(known, cores);
        known.prepare(peers, pin, arguments)
    });
    Contenders::gather(found, Some(definition.baseline))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nop;

    #[test]
    fn outside_the_repository_only_peers_are_missing() {
        let names = ["task", "liburing-one"].map(String::from);
        let cores = Cores { server: 3, load: 3 };
        let contenders = gather(&nop::BENCH, &names, None, cores).expect("a contender of ours");
        let spec = &contenders.specs[0];
        assert_eq!((spec.name.as_str(), spec.pin, spec.arguments.len()), ("task", Some(3), 4));
        assert!(contenders.missing[0].contains("liburing-nop is left out"), "{contenders:?}");
        assert!(gather(&nop::BENCH, &["rio".into()], None, cores).is_err());
    }
}
