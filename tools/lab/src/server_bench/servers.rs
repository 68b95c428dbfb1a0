//! Servers as processes, and a client for each slice.

use std::collections::BTreeMap;

use annulus_load::Observer;
use anyhow::{Result, anyhow};

use super::client::{Client, Clients};
use super::fixture::Fixture;
use super::installed;
use super::load::{Load, Pace};
use super::recipe::{Live, Recipe};
use super::syscalls::{PERF, SystemCalls};
use crate::bench::{Measure, Outcome, Slice, rate};
use crate::proc::Memory;
use crate::process::ProcessError;
use crate::server::one_line;
use crate::watch::Watch;

/// How many rounds a process serves before a new one takes its place: two processes of one program differ by up to a few
/// percent, by where their memory lies.
const ROUNDS_A_PROCESS: usize = 4;

/// All servers of a comparison.
#[derive(Debug)]
pub(super) struct Servers {
    /// By contender and service, with the first round that the process serves. They end before what they find.
    running: BTreeMap<(usize, String), (usize, Live)>,
    /// The control's is the last.
    recipes: Vec<Recipe>,
    loads: Vec<Load>,
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
    /// Names the first server that does not start, and why; or two that listen at one address.
    pub(super) fn start(
        recipes: Vec<Recipe>,
        baseline: usize,
        loads: Vec<Load>,
        clients: Clients,
        fixture: Fixture,
    ) -> Result<Servers> {
        let (contenders, cells) = (recipes.len(), loads.len());
        let running = BTreeMap::new();
        let mut servers =
            Servers { running, recipes, loads, clients, fixture, baseline, capacity: None };
        for contender in 0..contenders {
            for cell in 0..cells {
                servers.server(Slice { round: 0, cell, contender })?;
            }
        }
        servers.check_addresses().map(|()| servers)
    }

    /// Connections to an address at which two listen would be spread over both. What picks a free port, or is told one, has its own.
    fn check_addresses(&self) -> Result<()> {
        let fixed =
            self.running.iter().filter(|((index, _), _)| !self.recipes[*index].can_run_twice());
        for ((index, _), (_, live)) in fixed {
            let is_same =
                |other: &(usize, &Live)| other.0 != *index && other.1.address == live.address;
            let mut others = self.running.iter().map(|((index, _), (_, live))| (*index, live));
            if let Some((other, _)) = others.find(is_same) {
                let [one, other] = [*index, other].map(|index| &self.recipes[index].spec.name);
                return Err(anyhow!(
                    "{one} and {other} both listen at {}: connections would be spread over both; write {{port}} in \
                     their commands, or choose another port for one",
                    live.address
                ));
            }
        }
        Ok(())
    }

    /// Loads every server shortly by every kind of load, so that what cannot work is told before the first round.
    ///
    /// # Errors
    /// Names the server and the load, and what came of them.
    pub(super) fn try_out(&mut self) -> Result<()> {
        for contender in 0..self.recipes.len() {
            for cell in 0..self.loads.len() {
                let is_tried =
                    self.loads[..cell].iter().any(|load| load.name == self.loads[cell].name);
                if is_tried {
                    continue;
                }
                let (slice, brief) = (Slice { round: 0, cell, contender }, self.clients.brief());
                let address = self.server(slice)?.address.clone();
                let load = &self.loads[cell];
                let closed = Load { pace: Pace::Closed, ..load.clone() };
                let (load, rate) = match (&load.client, load.pace) {
                    (Client::Own(_), _) => (&closed, None),
                    (_, Pace::Rate(rate)) => (load, Some(rate)),
                    (_, Pace::Closed | Pace::Share(_)) => (load, Some(1.0)),
                };
                let tried = brief.run(load, &address, rate, &mut ());
                let name = format!("'{}' with {} connections", load.name, load.connections);
                // A slow server has answered nothing in so short a time.
                let tried = tried.or_else(|_| self.clients.run(load, &address, rate, &mut ()));
                self.server(slice)?.outcome(tried).map_err(|why| {
                    anyhow!("{} under load {name}: {why}", self.recipes[contender].spec.name)
                })?;
            }
        }
        Ok(())
    }

    /// Whose process a contender is measured by: the control has one of its own, unless there can be only one.
    fn host(&self, contender: usize) -> usize {
        let is_control = contender + 1 == self.recipes.len() && contender > 0;
        if is_control && !self.recipes[0].can_run_twice() { 0 } else { contender }
    }

    /// The server of a slice; started anew if it has served its rounds, or has ended.
    fn server(&mut self, slice: Slice) -> Result<&mut Live, ProcessError> {
        let host = self.host(slice.contender);
        let recipe = &self.recipes[host];
        let service = self.loads[slice.cell].service.clone();
        let key = (host, service);
        let is_worn =
            |since: usize| recipe.can_run_twice() && slice.round >= since + ROUNDS_A_PROCESS;
        let is_fit = |(since, live): &mut (usize, Live)| !is_worn(*since) && !live.has_ended();
        if !self.running.get_mut(&key).is_some_and(is_fit) {
            // The old one ends first.
            self.running.remove(&key);
            let started = recipe.start(&key.1, &mut self.fixture)?;
            self.running.insert(key.clone(), (slice.round, started));
        }
        Ok(&mut self.running.get_mut(&key).expect("inserted above").1)
    }

    /// The rate of an open loop; none of a closed one. The first measures the baseline in a closed loop of the same kind.
    fn rate(&mut self, slice: Slice) -> Result<Option<f64>, String> {
        let load = &self.loads[slice.cell];
        let share = match load.pace {
            Pace::Closed => return Ok(None),
            Pace::Rate(rate) => return Ok(Some(rate)),
            Pace::Share(share) => share,
        };
        let capacity = match self.capacity {
            Some(capacity) => capacity,
            None => {
                let closed = Load { depth: 1, pace: Pace::Closed, ..load.clone() };
                let baseline = Slice { contender: self.baseline, ..slice };
                let address = self.server(baseline).map_err(|error| error.why)?.address.clone();
                let sample = self.clients.run(&closed, &address, None, &mut ())?;
                *self.capacity.insert(rate().of.of(&sample).unwrap_or_default())
            }
        };
        Ok(Some(capacity * share))
    }

    /// The server's system calls a request, by a run of its own; `None` if they cannot be counted.
    fn syscalls(&self, load: &Load, address: &str, rate: Option<f64>, pid: u32) -> Option<f64> {
        installed::find(PERF).ok()?;
        let mut calls = SystemCalls::new(pid, &self.clients.directory);
        let sample = self.clients.run(load, address, rate, &mut calls).ok()?;
        Some(calls.counted()? / sample.get("operations")?)
    }
}

impl Measure for Servers {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let rate = self.rate(slice)?;
        let live = self.server(slice).map_err(|error| error.why)?;
        let (pid, address) = (live.pid, live.address.clone());
        let load = &self.loads[slice.cell];
        let (mut watch, mut nothing) = (pid.map(Watch::new), ());
        let observer: &mut dyn Observer = match &mut watch {
            Some(watch) => watch,
            None => &mut nothing,
        };
        let measured = self.clients.run(load, &address, rate, observer);
        let key = (self.host(slice.contender), load.service.clone());
        let measured = match self.running.get_mut(&key) {
            Some((_, live)) => live.outcome(measured),
            None => measured,
        };
        let (Some(watch), Some(pid)) = (watch, pid) else { return measured };
        let mut sample = watch.add_to(measured?).map_err(one_line)?;
        if slice.round == 0
            && let Some(calls) = self.syscalls(load, &address, rate, pid)
        {
            sample.set("syscalls", calls);
        }
        Ok(sample)
    }

    /// Of each contender, that of one of its servers.
    fn memory(&self) -> Vec<Option<Memory>> {
        let of = |contender| {
            let host = self.host(contender);
            self.running
                .iter()
                .find(|((index, _), _)| *index == host)
                .and_then(|(_, (_, live))| live.memory())
        };
        (0..self.recipes.len()).map(of).collect()
    }
}
