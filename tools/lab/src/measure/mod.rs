//! Measures a comparison: builds peers, starts the contenders, and measures slices.
//!
//! Servers are pinned to a core and clients run on another, unless they
//! [share](crate::describe::Placement) all cores. CPU time covers a server and the
//! processes that it has started, in the measured window. For a client that is a program, the
//! window is from its start to its end. Requests and latency are those that the client reports. The
//! first contender runs a second time as the control. If only one instance can run, because its
//! port is fixed or it is already running, that instance is measured twice instead.

mod slices;
mod syscalls;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::time::Duration;

use annulus_load::limits;
use anyhow::{Context, Result, bail, ensure};

use crate::bench::{Bench, Contenders, OfferedRates, Prepared};
use crate::clients::Clients;
use crate::describe::{
    Client, Contender, Load, MissingPolicy, Placement, Presentation, Setup, find_installed,
};
use crate::scratch::Scratch;
use crate::start::{Fixture, start};

use slices::Slices;
use syscalls::PERF_PROGRAM;

impl Setup {
    /// Builds peers and starts all contenders.
    ///
    /// # Errors
    /// If a contender cannot be built or started and may not be left out, if no contender or no
    /// load is left, or if files cannot be created.
    pub fn prepare(mut self) -> Result<Prepared> {
        let awake = self.cores.keep_awake()?;
        let temporary = env::temp_dir();
        let scratch = Scratch::within(&temporary).with_context(|| {
            format!(
                "cannot create a directory in {}: set TMPDIR to another directory",
                temporary.display()
            )
        })?;
        let (loads, mut missing) = available(&self.loads)?;
        let cells: Vec<_> = loads.iter().map(|load| load.cell.clone()).collect();
        limits::reserve(self.files as usize)?;
        let file_system = self.check.map(|check| check(&cells, &temporary)).transpose()?;
        let prepared = self.contenders.iter().map(|one| self.prepared(one));
        let prepared = prepared.collect::<Result<Vec<_>>>()?;
        let needs_target =
            |one: &Result<Contender, String>| one.as_ref().is_ok_and(|one| one.needs("target"));
        let target = (prepared.iter().any(needs_target), self.placement.target(self.cores));
        let mut fixture = Fixture::new(scratch.path(), &self.site, target)?;
        let (mut contenders, mut ready) = self.gather(prepared, &mut fixture)?;
        missing.splice(0..0, contenders.missing);
        if let Some(why) = missing.first().filter(|_| self.missing == MissingPolicy::Refuse) {
            bail!("{why}");
        }
        self.leave_out(&contenders.absent, &loads);
        missing.append(&mut self.notes);
        missing.extend(not_counted(&ready, self.counts_calls()));
        contenders.missing = missing;
        if let Some(control) = &contenders.control {
            ready.push(ready[0].named(control));
        }
        let clients = Clients {
            core: self.placement.load(self.cores),
            time: self.time,
            max_time: Duration::MAX,
            directory: scratch.path().to_owned(),
        };
        let bench = self.bench(contenders, &loads, file_system);
        let (baseline, cores) = (bench.contenders.baseline_index(), bench.cores);
        let mut slices = Slices {
            setup: self,
            running: BTreeMap::new(),
            contenders: ready,
            loads,
            clients,
            fixture,
            baseline,
            capacity: None,
            restless: BTreeSet::new(),
            rates: OfferedRates::new(),
            cores,
            _awake: awake,
        };
        slices.start()?;
        Ok(Prepared { bench, measure: Box::new(slices), scratch: Some(scratch) })
    }

    /// Prepares a contender, or returns why it is missing.
    fn prepared(&self, one: &Contender) -> Result<Result<Contender, String>> {
        let prepared = one.clone().prepare(self.peers.as_ref(), self.placement.server(self.cores));
        match prepared {
            Err(error) if self.missing == MissingPolicy::LeaveOutBroken => {
                Ok(Err(error.to_string()))
            }
            prepared => prepared,
        }
    }

    /// Collects the available contenders. With [`MissingPolicy::LeaveOutBroken`], each is started
    /// once to find out whether it works.
    fn gather(
        &self,
        prepared: Vec<Result<Contender, String>>,
        fixture: &mut Fixture,
    ) -> Result<(Contenders, Vec<Contender>)> {
        let (mut ready, mut absent) = (Vec::new(), Vec::new());
        let found = self.contenders.iter().zip(prepared).map(|(described, prepared)| {
            let tried = prepared.and_then(|one| match self.missing {
                MissingPolicy::LeaveOutBroken => start(&one, "", self.start_timeout, fixture)
                    .map_or_else(|error| Err(error.to_string()), |_| Ok(one)),
                MissingPolicy::Refuse | MissingPolicy::LeaveOut => Ok(one),
            });
            let spec = tried.map(|one| {
                ready.push(one);
                ready[ready.len() - 1].spec.clone()
            });
            absent.extend(spec.is_err().then(|| described.name.clone()));
            Ok(spec)
        });
        let mut contenders = Contenders::gather(found, self.baseline.as_deref())?;
        contenders.absent = absent;
        contenders.named_by_user = self.named_by_user;
        Ok((contenders, ready))
    }

    /// Returns the definition of the run, which is stored with its results.
    fn bench(&self, contenders: Contenders, loads: &[Load], file_system: Option<String>) -> Bench {
        let Presentation { terms, legend, metrics, mut parameters, .. } = self.shown.clone();
        let commands: Vec<_> = loads.iter().map(|load| load.client.words().join(" ")).collect();
        if commands.iter().any(|command| !command.is_empty()) {
            parameters.insert("loads".into(), commands.into());
        }
        let clients = self.contenders.iter().filter_map(|one| Some(one.client.as_ref()?.words()));
        let clients: Vec<_> = clients.map(|words| words.join(" ")).collect();
        if !clients.is_empty() {
            parameters.insert("clients".into(), clients.into());
        }
        parameters.extend(file_system.map(|name| ("file_system".to_owned(), name.into())));
        Bench {
            plan: self.plan(),
            terms,
            legend,
            contenders,
            cells: loads.iter().map(|load| load.cell.clone()).collect(),
            metrics,
            sweep: self.sweep.clone(),
            idle: self.idle,
            cores: self.uses_both().then_some(self.cores),
            parameters,
        }
    }

    /// Returns true if servers and clients each have a core.
    fn uses_both(&self) -> bool {
        let is_job = |load: &Load| matches!(load.client, Client::Job(_));
        self.placement != Placement::Shared && !self.loads.iter().all(is_job)
    }
}

/// Returns the loads whose client is installed, and lines about the others.
fn available(loads: &[Load]) -> Result<(Vec<Load>, Vec<String>)> {
    let (mut left, mut missing) = (Vec::new(), Vec::new());
    for load in loads {
        match load.client.missing() {
            None => left.push(load.clone()),
            Some(why) => missing.push(format!("load {} is left out: {why}", load.name())),
        }
    }
    ensure!(!left.is_empty(), "no load is left: {}", missing.join("; "));
    Ok((left, missing))
}

/// Returns lines about figures that cannot be measured.
fn not_counted(contenders: &[Contender], counts_calls: bool) -> Vec<String> {
    let perf = counts_calls.then(|| find_installed(PERF_PROGRAM).err()).flatten();
    let perf = perf.map(|why| format!("system calls are not counted: {why}"));
    let hidden = contenders.iter().filter(|one| !one.is_visible()).map(|one| {
        format!(
            "CPU time and memory of {} are unknown, because no process of this user listens there: requests/s decide",
            one.name
        )
    });
    perf.into_iter().chain(hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Measure, Outcome, Plan, Rounds, Sample, Slice};
    use crate::cores::Cores;
    use crate::describe::Job;
    use crate::nop;

    const TIMEOUT: Duration = Duration::from_secs(20);
    const FIRST_SLICE: Slice = Slice { round: 0, cell: 0, contender: 0 };

    /// Starts a shell that reads jobs, in two cells.
    fn program(script: &str, timeout: Duration) -> Box<dyn Measure> {
        let core = annulus_load::affinity::allowed().expect("the cores cannot be read")[0];
        let cores = Cores::new(core, core);
        let plan = Plan { name: "test".into(), rounds: Rounds::fixed(1), seed: 1 };
        let mut setup = nop::BENCH.setup(plan, Duration::ZERO, cores, None);
        let shell =
            Contender::of_text(&format!("sh -c '{script}'")).expect("the command is invalid");
        setup.contenders = vec![shell.answering_jobs()];
        let job = |line: &str| Job { line: line.into(), timeout, required: &["n"] };
        let cells = [1, 20].map(nop::cell).into_iter().zip(["1", "20"]);
        setup.loads =
            cells.map(|(cell, line)| Load::job(cell, job(line), Duration::ZERO)).collect();
        setup.prepare().expect("the shell did not start").measure
    }

    fn error(script: &str) -> String {
        program(script, TIMEOUT).measure(FIRST_SLICE).expect_err(script)
    }

    #[test]
    fn jobs_are_answered_one_by_one() {
        let mut twice = program(r#"while read n; do echo "{\"n\":$((n * 2))}"; done"#, TIMEOUT);
        for (cell, number) in [(0, 2.0), (1, 40.0), (0, 2.0)] {
            let sample =
                twice.measure(Slice { cell, ..FIRST_SLICE }).expect("the job was not answered");
            assert_eq!(sample, Sample::from([("n", number)]));
        }
    }

    #[test]
    fn an_answer_without_a_required_number_is_quoted() {
        for wrong in ["4 80 7", r#"{"n":0}"#, r#"{"m":1}"#, r#"{"n":"x"}"#] {
            let expected = format!("its answer to `1` is not valid: `{wrong}`; it printed nothing");
            assert_eq!(
                error(&format!("read n; echo \"{}\"", wrong.replace('"', "\\\""))),
                expected
            );
        }
    }

    #[test]
    fn a_contender_that_ends_or_does_not_answer_is_quoted() {
        let expected = "ended (exit status: 1); its last line: no ring here";
        assert_eq!(error("read n; echo no ring here >&2; exit 1"), expected);
        let mut silent = program("while read n; do :; done", Duration::from_millis(1));
        let outcome: Outcome = silent.measure(FIRST_SLICE);
        assert_eq!(outcome, Err("no answer to `1` within 1ms; it printed nothing".into()));
    }

    /// Each process ends at its second job.
    #[test]
    fn a_contender_that_failed_is_restarted() {
        let mut twice = program(r#"read n; echo "{\"n\":1}"; read n; exit 3"#, TIMEOUT);
        for _ in 0..3 {
            assert!(twice.measure(FIRST_SLICE).is_ok());
            let error = twice.measure(FIRST_SLICE).expect_err("the process did not end");
            assert!(error.contains("exit status: 3"), "{error}");
        }
    }
}
