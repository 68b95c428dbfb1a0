//! Definitions of comparisons whose contenders are programs that answer jobs.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::bench::{Cell, Metric, Plan, parameters};
use crate::cores::Cores;
use crate::describe::{Contender, DirectoryCheck, Job, Load, Presentation, Setup};
use crate::peer::Peers;

/// A contender by name: one of annulus's own, or a peer with the arguments that follow the common
/// ones.
pub(crate) type KnownContender = (&'static str, Option<(&'static str, &'static [&'static str])>);

/// The definition of a comparison. All contenders run on one core.
#[derive(Debug)]
pub struct Definition {
    /// The name of the comparison, also in the command of annulus's own contenders.
    pub name: &'static str,
    pub(crate) known: &'static [KnownContender],
    /// The contender that ratios refer to, if it is measured; otherwise the first.
    pub(crate) baseline: Option<&'static str>,
    pub(crate) metrics: fn() -> Vec<Metric>,
    /// The numbers in an answer that must be above 0.
    pub(crate) required: &'static [&'static str],
    /// The duration of slices in normal runs and in quick runs; `None` if it cannot be chosen.
    pub(crate) slices: Option<[Duration; 2]>,
    /// The job of a cell, the timeout of the answer, and roughly how long the job takes.
    pub(crate) job: fn(&Cell, Duration) -> (String, Duration, Duration),
    /// The check for contenders that work in a directory, which is an argument of each.
    pub(crate) check: Option<DirectoryCheck>,
}

impl Definition {
    /// Returns the contenders with these names.
    ///
    /// # Errors
    /// If a name is not known.
    pub fn contenders(&self, names: &[impl AsRef<str>]) -> Result<Vec<Contender>> {
        let directory = self.check.map(|_| "{dir}");
        let contender = |name: &str| {
            let found = self.known.iter().find(|(known, _)| *known == name);
            let (name, peer) =
                found.with_context(|| format!("no contender '{name}' in this version"))?;
            let words = |first: &[&str], last: &[&str]| {
                let words = first.iter().copied().chain(directory).chain(last.iter().copied());
                words.map(String::from).collect()
            };
            let contender = match peer {
                Some((peer, mode)) => Contender::peer(name, peer, words(&[], mode)),
                None => Contender::own(name, words(&["contender", self.name, name], &[])),
            };
            Ok(contender.answering_jobs())
        };
        names.iter().map(|name| contender(name.as_ref())).collect()
    }

    /// Returns the loads of these cells, with slices of this duration.
    pub fn loads(&self, cells: impl IntoIterator<Item = Cell>, slice: Duration) -> Vec<Load> {
        let load = |cell: Cell| {
            let (line, timeout, cost) = (self.job)(&cell, slice);
            Load::job(cell, Job { line, timeout, required: self.required }, cost)
        };
        cells.into_iter().map(load).collect()
    }

    /// Returns the comparison, without contenders and loads.
    pub fn setup(&self, plan: Plan, slice: Duration, cores: Cores, peers: Option<Peers>) -> Setup {
        let core = cores.server;
        let mut all = parameters(json!({ "core": core }));
        let timed = self.slices.map(|_| slice.as_secs_f64());
        all.extend(timed.map(|seconds| ("seconds".to_owned(), seconds.into())));
        let slices = timed.map_or(String::new(), |seconds| format!(" of {seconds} s"));
        let shown = Presentation {
            kind: self.name,
            title: None,
            terms: format!("{slices}, all on core {core}{}", cores.shown_awake()),
            legend: String::new(),
            metrics: (self.metrics)(),
            parameters: all,
        };
        let (baseline, check) = (self.baseline.map(str::to_owned), self.check);
        Setup { baseline, check, ..Setup::new(plan, slice, cores, peers, shown) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{file, nop};

    #[test]
    fn outside_the_repository_only_peers_are_missing() {
        let [own, peer] =
            &nop::BENCH.contenders(&["task", "liburing-one"]).expect("a contender is unknown")[..]
        else {
            panic!("two");
        };
        let own = own
            .clone()
            .prepare(None, Some(3))
            .expect("preparing the contender failed")
            .expect("our contender is missing");
        assert_eq!((own.spec.pin, own.spec.arguments.len()), (Some(3), 3));
        let why = peer
            .clone()
            .prepare(None, Some(3))
            .expect("preparing the contender failed")
            .expect_err("a peer was built outside the repository");
        assert!(why.contains("liburing-nop is left out"), "{why}");
        assert!(nop::BENCH.contenders(&["rio"]).is_err());
        assert!(
            file::BENCH.contenders(&["rocket-threads"]).expect("a contender is unknown")[0]
                .needs("dir")
        );
    }
}
