//! Benches whose contenders are programs that answer jobs: their definitions as data, and their comparison.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::bench::{Bench, Cell, Contenders, Layout, Metric, Plan, Prepared, parameters};
use crate::jobs::{Job, Known, Programs, find};
use crate::peer::Peers;
use crate::scratch::Scratch;

/// Checks that the cells fit a directory; returns the name of its file system.
type Check = fn(&[Cell], &Path) -> Result<String>;

/// The definition of a bench, common to all its comparisons. All contenders run on one core.
#[derive(Debug)]
pub struct Definition {
    /// Its name, which is that of our contenders' command, too.
    pub name: &'static str,
    /// The contenders, by name.
    pub contenders: &'static [Known],
    /// The contender that ratios are taken to, if it is measured; else the first.
    pub(crate) baseline: Option<&'static str>,
    pub(crate) metrics: fn() -> Vec<Metric>,
    /// The numbers of an answer that must be above 0.
    pub(crate) required: &'static [&'static str],
    pub(crate) layout: Layout,
    /// How long slices are measured, usually and quickly, if they have a time.
    pub(crate) slices: Option<[Duration; 2]>,
    /// The job of a cell, and about how long it takes.
    pub(crate) job: fn(&Cell, Duration) -> Job,
    pub(crate) cost: fn(&Cell, Duration) -> Duration,
    /// If contenders work in a directory, which is their last argument.
    pub(crate) check: Option<Check>,
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
    /// The core of all contenders.
    pub core: usize,
    /// The peers.
    pub peers: Option<Peers>,
}

impl Setup {
    /// Builds peers and starts all contenders.
    ///
    /// # Errors
    /// If a contender cannot be built or started, or none is left, or a directory cannot be made.
    pub fn prepare(self) -> Result<Prepared> {
        let Setup { definition, plan, contenders, cells, slice, core, peers } = self;
        let directory = std::env::temp_dir();
        let file_system = definition.check.map(|check| check(&cells, &directory)).transpose()?;
        let scratch = file_system.as_ref().map(|_| Scratch::within(&directory));
        let scratch = scratch.transpose().with_context(|| {
            format!("cannot make a directory in {}: set TMPDIR elsewhere", directory.display())
        })?;
        let place = scratch.as_ref().map(Scratch::path);
        let contenders = gather(definition, &contenders, peers.as_ref(), core, place)?;
        let jobs = cells.iter().map(|cell| (definition.job)(cell, slice)).collect();
        let measure = Programs::start(&contenders, jobs, definition.required)?;
        let mut all = parameters(json!({ "core": core }));
        let timed = definition.slices.map(|_| slice.as_secs_f64());
        all.extend(timed.map(|seconds| ("seconds".to_owned(), seconds.into())));
        all.extend(file_system.map(|name| ("file_system".to_owned(), name.into())));
        let slices = timed.map_or(String::new(), |seconds| format!(" of {seconds} s"));
        let bench = Bench {
            plan,
            terms: format!("{slices}, all on core {core}"),
            legend: String::new(),
            layout: definition.layout,
            contenders,
            cells,
            metrics: (definition.metrics)(),
            idle: None,
            cores: None,
            parameters: all,
        };
        Ok(Prepared { bench, measure: Box::new(measure), scratch })
    }

    /// About how long a slice of a cell takes.
    pub fn cost(&self, cell: &Cell) -> Duration {
        (self.definition.cost)(cell, self.slice)
    }
}

fn gather(
    definition: &Definition,
    names: &[String],
    peers: Option<&Peers>,
    core: usize,
    place: Option<&Path>,
) -> Result<Contenders> {
    let found = names.iter().map(|name| {
        let known = find(definition.contenders, name)?;
        let directory = || place.map(OsString::from).into_iter();
        let own = ["contender", definition.name, known.name].map(OsString::from).into_iter();
        let own = own.chain(directory()).collect();
        known.prepare(peers, Some(core), known.arguments(own, directory().collect()))
    });
    Contenders::gather(found, definition.baseline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nop;

    #[test]
    fn outside_the_repository_only_peers_are_missing() {
        let names = ["task", "liburing-one"].map(String::from);
        let contenders = gather(&nop::BENCH, &names, None, 3, None).expect("a contender of ours");
        let spec = &contenders.specs[0];
        assert_eq!((spec.name.as_str(), spec.pin, spec.arguments.len()), ("task", Some(3), 3));
        assert!(contenders.missing[0].contains("liburing-nop is left out"), "{contenders:?}");
        assert!(gather(&nop::BENCH, &["rio".into()], None, 3, None).is_err());
    }
}
