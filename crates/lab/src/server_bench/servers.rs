//! Servers as processes, and a client for each slice.

use std::collections::BTreeMap;

use super::client::Clients;
use super::contender::Recipe;
use super::fixture::Fixture;
use super::load::Load;
use super::syscalls::{PERF, SystemCalls};
use crate::bench::{Measure, Outcome, Slice, rate};
use crate::process::ProcessError;
use crate::server::{Server, one_line};
use crate::watch::Watch;

/// How many rounds a process serves before a new one takes its place: two processes of one program differ by up to a few
/// percent, by where their memory lies.
const ROUNDS_A_PROCESS: usize = 4;

/// All servers of a comparison.
#[derive(Debug)]
pub(super) struct Servers {
    /// By contender and service, with the first round that the process serves. They end before what they find.
    running: BTreeMap<(usize, &'static str), (usize, Server)>,
    recipes: Vec<Recipe>,
    loads: Vec<&'static Load>,
    clients: Clients,
    fixture: Fixture,
    baseline: usize,
    /// What the baseline answers a second in a closed loop, once an open one needs it.
    capacity: Option<f64>,
}

impl Servers {
    /// Starts every server for everything it is asked for. All stay up: an idle one uses no CPU time.
    ///
    /// # Errors
    /// Names the first server that does not start, and why.
    pub(super) fn start(
        recipes: Vec<Recipe>,
        baseline: usize,
        loads: Vec<&'static Load>,
        clients: Clients,
        fixture: Fixture,
    ) -> Result<Servers, ProcessError> {
        let (contenders, cells) = (recipes.len(), loads.len());
        let running = BTreeMap::new();
        let mut servers =
            Servers { running, recipes, loads, clients, fixture, baseline, capacity: None };
        for contender in 0..contenders {
            for cell in 0..cells {
                servers.server(Slice { round: 0, cell, contender })?;
            }
        }
        Ok(servers)
    }

    /// The server of a slice; started anew if it has served its rounds.
    fn server(&mut self, slice: Slice) -> Result<&mut Server, ProcessError> {
        let service = self.loads[slice.cell].service;
        let key = (slice.contender, service);
        let is_fresh = |(since, _): &(usize, Server)| slice.round < since + ROUNDS_A_PROCESS;
        if !self.running.get(&key).is_some_and(is_fresh) {
            // The old one ends first.
            self.running.remove(&key);
            let started = self.recipes[slice.contender].start(service, &mut self.fixture)?;
            self.running.insert(key, (slice.round, started));
        }
        Ok(&mut self.running.get_mut(&key).expect("inserted above").1)
    }

    /// The rate of an open loop; none of a closed one. The first measures the baseline in a closed loop of the same kind.
    fn rate(&mut self, slice: Slice) -> Result<Option<f64>, String> {
        let load = self.loads[slice.cell];
        let Some(share) = load.rate else { return Ok(None) };
        let capacity = match self.capacity {
            Some(capacity) => capacity,
            None => {
                let closed = Load { depth: 1, rate: None, ..*load };
                let baseline = Slice { contender: self.baseline, ..slice };
                let address = self.server(baseline).map_err(|error| error.why)?.address.to_string();
                let sample = self.clients.run(&closed, &address, None, &mut ())?;
                *self.capacity.insert(rate().of.of(&sample).unwrap_or_default())
            }
        };
        Ok(Some(capacity * share))
    }

    /// The server's system calls a request, by a run of its own; `None` if they cannot be counted.
    fn syscalls(&self, load: &Load, address: &str, rate: Option<f64>, pid: u32) -> Option<f64> {
        PERF.find().ok()?;
        let mut calls = SystemCalls::new(pid, &self.clients.directory);
        let sample = self.clients.run(load, address, rate, &mut calls).ok()?;
        Some(calls.counted()? / sample.get("operations")?)
    }
}

impl Measure for Servers {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let load = self.loads[slice.cell];
        let rate = self.rate(slice)?;
        let server = self.server(slice).map_err(|error| error.why)?;
        let (pid, address) = (server.process.pid(), server.address.to_string());
        let mut watch = Watch::new(pid);
        let sample = self.clients.run(load, &address, rate, &mut watch);
        let sample = self.server(slice).map_err(|error| error.why)?.outcome(sample)?;
        let mut sample = watch.add_to(sample).map_err(one_line)?;
        if slice.round == 0
            && let Some(calls) = self.syscalls(load, &address, rate, pid)
        {
            sample.set("syscalls", calls);
        }
        Ok(sample)
    }
}
