//! Measures the slices of a comparison: contenders as processes, and a client for each slice.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use annulus_load::{Observer, ServerAddress, limits};
use anyhow::{Result, anyhow};

use super::syscalls::{PERF_PROGRAM, SystemCalls};
use crate::bench::{
    CORE_DISTANCE_NS, Measure, OFFERED_KEY, OfferedRates, Outcome, SUBSCRIBER_BYTES_KEY,
    SYSTEM_CALLS_KEY, Slice, rate,
};
use crate::clients::Clients;
use crate::cores::{Awake, Cores};
use crate::describe::{Client, Contender, Load, MissingPolicy, Pace, Setup, find_installed};
use crate::interrupt;
use crate::proc::Memory;
use crate::process::ProcessError;
use crate::server::UsageObserver;
use crate::start::{Fixture, Running, start};
use crate::turns::{Turn, TurnOrder};
use crate::usage_error::one_line;

/// The smallest number of subscribers for which memory per subscriber is measured. With fewer, the
/// pages that a server touches for the first time are more than its subscribers need.
const MIN_MEASURED_SUBSCRIBERS: u64 = 100;

/// The contenders of a comparison, and everything needed to measure them.
#[derive(Debug)]
pub(super) struct Slices {
    pub(super) setup: Setup,
    /// The running processes by contender and service, each with the round in which it was started.
    pub(super) running: BTreeMap<(usize, String), (usize, Running)>,
    /// All contenders, the control last.
    pub(super) contenders: Vec<Contender>,
    pub(super) loads: Vec<Load>,
    pub(super) clients: Clients,
    pub(super) fixture: Fixture,
    /// The contender that relative rates refer to.
    pub(super) baseline: usize,
    /// The baseline's answers per second in a closed loop, once measured.
    pub(super) capacity: Option<f64>,
    /// Contenders whose server was still busy after its last slice.
    pub(super) restless: BTreeSet<usize>,
    /// The rates of a sweep, once the peaks are known.
    pub(super) rates: OfferedRates,
    /// The cores of servers and load, unless they share all cores.
    pub(super) cores: Option<Cores>,
    /// Keeps the cores awake, if that was chosen.
    pub(super) _awake: Option<Awake>,
}

/// The process id and the address of a server, if known.
type Place = (Option<u32>, Option<ServerAddress>);

/// The outcome of a slice, and whether the server was idle afterwards.
type Watched = (Outcome, bool);

impl Slices {
    /// Starts every contender. All keep running, since an idle one uses no CPU time.
    ///
    /// # Errors
    /// If one does not start, two listen at the same address, one does not answer although it must,
    /// or a signal arrives.
    pub(super) fn start(&mut self) -> Result<()> {
        for contender in 0..self.contenders.len() {
            for cell in 0..self.loads.len() {
                interrupt::check()?;
                self.running(Slice { round: 0, cell, contender })?;
            }
        }
        self.check_addresses()?;
        if self.setup.missing == MissingPolicy::Refuse { self.try_out() } else { Ok(()) }
    }

    /// Refuses two contenders at the same address, where connections would be spread over both. A
    /// server that picks a free port, or is given one, has its own address.
    fn check_addresses(&self) -> Result<()> {
        let fixed =
            self.running.iter().filter(|((index, _), _)| !self.contenders[*index].can_run_twice());
        for ((index, _), (_, live)) in fixed {
            let is_same =
                |other: &(usize, &Running)| other.0 != *index && other.1.address == live.address;
            let mut others = self.running.iter().map(|((index, _), (_, live))| (*index, live));
            if let Some((other, _)) = others.find(is_same) {
                let [one, other] = [*index, other].map(|index| &self.contenders[index].name);
                return Err(anyhow!(
                    "{one} and {other} both listen at {}: connections would be spread over both; write {{port}} in \
                     their commands, or choose another port for one",
                    live.address.as_ref().map_or_else(String::new, ToString::to_string)
                ));
            }
        }
        Ok(())
    }

    /// Loads every server briefly with the first cell of every load other than a job, so that
    /// failures are reported before the first round.
    ///
    /// # Errors
    /// If a server cannot answer a load; the error names both and the cause.
    fn try_out(&mut self) -> Result<()> {
        for contender in 0..self.contenders.len() {
            for cell in 0..self.loads.len() {
                let load = &self.load(Slice { round: 0, cell, contender });
                let is_job = matches!(load.client, Client::Job(_));
                if is_job || self.loads[..cell].iter().any(|other| other.name() == load.name()) {
                    continue;
                }
                interrupt::check()?;
                let (load, rate) = match (&load.client, load.pace) {
                    (Client::Command { .. }, Pace::Rate(rate)) => (load.clone(), Some(rate)),
                    (Client::Command { .. }, _) => (load.clone(), Some(1.0)),
                    _ => (load.closed(load.depth), None),
                };
                let (slice, for_trial) =
                    (Slice { round: 0, cell, contender }, self.clients.for_trial());
                let address = self.running(slice)?.address.clone();
                let tried = for_trial.run(&load, address.as_ref(), rate, &mut ());
                // A slow server may not answer within the short trial, so it gets the time of a
                // slice.
                let tried =
                    tried.or_else(|_| self.clients.run(&load, address.as_ref(), rate, &mut ()));
                self.running(slice)?.outcome(tried).map_err(|why| {
                    let (name, load, connections) =
                        (&self.contenders[contender].name, load.name(), load.connections);
                    anyhow!("{name} under load '{load}' with {connections} connections: {why}")
                })?;
            }
        }
        Ok(())
    }

    /// Returns the contender whose process is measured for this one: itself, or the first contender
    /// for a control if two cannot run at once.
    fn host(&self, contender: usize) -> usize {
        let is_control = contender + 1 == self.contenders.len() && contender > 0;
        if is_control && !self.contenders[0].can_run_twice() { 0 } else { contender }
    }

    fn key(&self, slice: Slice) -> (usize, String) {
        (self.host(slice.contender), self.loads[slice.cell].service.clone())
    }

    /// Returns the process for a slice. Starts a new one if there is none yet, if the old one has
    /// ended, or if it has served its rounds and contenders of its kind can run twice.
    fn running(&mut self, slice: Slice) -> Result<&mut Running, ProcessError> {
        let key = self.key(slice);
        let contender = &self.contenders[key.0];
        let max_time = self.setup.rounds_per_process;
        let is_worn = |since: usize| contender.can_run_twice() && slice.round - since >= max_time;
        let is_fit = |(since, one): &mut (usize, Running)| !is_worn(*since) && !one.has_ended();
        if !self.running.get_mut(&key).is_some_and(is_fit) {
            // Ends the old process before the new one starts.
            self.running.remove(&key);
            let one = start(contender, &key.1, self.setup.start_timeout, &mut self.fixture)?;
            self.running.insert(key.clone(), (slice.round, one));
        }
        Ok(&mut self.running.get_mut(&key).expect("the process was not inserted").1)
    }

    /// Returns the load of a slice, with the contender's own client if it has one.
    fn load(&self, slice: Slice) -> Load {
        let load = self.loads[slice.cell].clone();
        match &self.contenders[slice.contender].client {
            Some(client) => Load { client: client.clone(), ..load },
            None => load,
        }
    }

    /// Returns the rate of an open loop, or `None` for a closed one.
    fn rate(&mut self, slice: Slice) -> Result<Option<f64>, String> {
        match self.loads[slice.cell].pace {
            Pace::Closed => Ok(None),
            Pace::Rate(rate) => Ok(Some(rate)),
            Pace::Share(share) => Ok(Some(self.capacity(slice)? * share)),
            Pace::OfPeak => {
                let found = self.rates.get(&(slice.contender, slice.cell)).cloned();
                found.unwrap_or_else(|| Err("its peak is unknown".into())).map(Some)
            }
        }
    }

    /// Returns the rate that shares refer to, which is measured on first use: the baseline's rate
    /// in a closed loop with one request in flight on each connection.
    fn capacity(&mut self, slice: Slice) -> Result<f64, String> {
        if self.capacity.is_none() {
            let closed = self.loads[slice.cell].closed(1);
            let baseline = Slice { contender: self.baseline, ..slice };
            let address = self.running(baseline).map_err(|error| error.why)?.address.clone();
            let sample = self.clients.run(&closed, address.as_ref(), None, &mut ())?;
            self.capacity = rate().of.of(&sample);
        }
        Ok(self.capacity.unwrap_or_default())
    }

    /// Measures a slice with a running process: the answer to a job, or the report of a client.
    fn slice(&mut self, slice: Slice) -> Outcome {
        let rate = self.rate(slice)?;
        match self.load(slice).client {
            Client::Job(job) => self.running(slice).map_err(|error| error.why)?.ask(&job),
            _ => self.loaded(slice, rate),
        }
    }

    /// Returns how many of these slices of a cell, from the first, are measured together: as many as
    /// the limit on open files permits. Servers that stay busy after their load, for example with a
    /// kernel thread that polls, are measured alone.
    fn count_together(&self, slices: &[Slice]) -> usize {
        let rests = |slice: &&Slice| !self.restless.contains(&self.host(slice.contender));
        let has_turns = |slice: &&Slice| self.load(**slice).turns.is_some();
        let most =
            limits::available_connections() as u64 / self.loads[slices[0].cell].connections.max(1);
        slices.iter().take(most as usize).take_while(rests).take_while(has_turns).count().max(1)
    }

    /// Measures slices of one cell whose clients take turns, so that all are measured within tens
    /// of milliseconds.
    fn in_turns(&mut self, slices: &[Slice]) -> Vec<Outcome> {
        let places: Vec<_> = slices.iter().map(|slice| self.place(*slice)).collect();
        let loads: Vec<Load> = slices.iter().map(|slice| self.load(*slice)).collect();
        let (clients, turns) = (&self.clients, &TurnOrder::new(slices.len()));
        let run = |number: usize| {
            let turn = turns.start(number);
            let place = places[number].as_ref().map_err(Clone::clone)?;
            Ok(watched(clients, &loads[number], place, None, Some(&turn)))
        };
        let measured: Vec<Result<Watched, String>> = thread::scope(|scope| {
            let handles: Vec<_> =
                (0..slices.len()).map(|number| scope.spawn(move || run(number))).collect();
            let join = |handle: ScopedJoinHandle<'_, _>| {
                handle.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            handles.into_iter().map(join).collect()
        });
        let finish = |(slice, (place, measured)): (&Slice, (Result<Place, String>, _))| {
            let (place, measured) = (place?, measured?);
            self.finish(*slice, place, None, measured)
        };
        slices.iter().zip(places.into_iter().zip(measured)).map(finish).collect()
    }

    /// Measures a server under its load.
    fn loaded(&mut self, slice: Slice, rate: Option<f64>) -> Outcome {
        let place = self.place(slice)?;
        let load = Load { turns: None, ..self.load(slice) };
        let measured = watched(&self.clients, &load, &place, rate, None);
        self.finish(slice, place, rate, measured)
    }

    /// Returns where the server of a slice runs.
    fn place(&mut self, slice: Slice) -> Result<Place, String> {
        let running = self.running(slice).map_err(|error| error.why)?;
        Ok((running.pid, running.address.clone()))
    }

    /// Returns the sample of a slice after its load has ended.
    fn finish(
        &mut self,
        slice: Slice,
        (pid, address): Place,
        rate: Option<f64>,
        (measured, has_rested): Watched,
    ) -> Outcome {
        let (key, host) = (self.key(slice), self.host(slice.contender));
        _ = if has_rested { self.restless.remove(&host) } else { self.restless.insert(host) };
        let running = self.running.get_mut(&key).map(|(_, running)| running);
        let mut sample = running.map_or(Err("it has ended".into()), |one| one.outcome(measured))?;
        if let Some(rate) = rate {
            sample.set(OFFERED_KEY, rate);
        }
        if let Some(bytes) = self.bytes_per_subscriber(slice)? {
            sample.set(SUBSCRIBER_BYTES_KEY, bytes);
        }
        let load = &self.loads[slice.cell];
        let is_first =
            slice.round == 0 && self.setup.counts_calls() && find_installed(PERF_PROGRAM).is_ok();
        // An additional run counts the system calls per request.
        if let Some(pid) = pid.filter(|_| is_first) {
            let mut calls = SystemCalls::new(pid, &self.clients.directory);
            let run = self.clients.run(load, address.as_ref(), rate, &mut calls);
            let requests = run.ok().and_then(|run| run.get("operations"));
            if let (Some(calls), Some(requests)) = (calls.counted(), requests) {
                sample.set(SYSTEM_CALLS_KEY, calls / requests);
            }
        }
        Ok(sample)
    }
}

impl Slices {
    /// Returns the memory per subscriber of a broadcast while messages are delivered. It is
    /// measured in the first round only, in a new process, because an old one may reuse the memory
    /// of earlier subscribers.
    fn bytes_per_subscriber(&mut self, slice: Slice) -> Result<Option<f64>, String> {
        let load = &self.loads[slice.cell];
        let contender = &self.contenders[self.host(slice.contender)];
        let is_measured = matches!(load.client, Client::FanOut { .. })
            && load.connections >= MIN_MEASURED_SUBSCRIBERS
            && slice.round == 0
            && contender.is_started()
            && contender.can_run_twice();
        if !is_measured {
            return Ok(None);
        }
        let (subscribers, timeout) = (load.connections as f64, self.setup.start_timeout);
        let fresh = start(contender, &load.service, timeout, &mut self.fixture)
            .map_err(|error| error.why)?;
        let Some(before) = fresh.memory() else { return Ok(None) };
        let mut observer = MemoryObserver { running: &fresh, in_use: None };
        self.clients.for_trial().run(load, fresh.address.as_ref(), None, &mut observer)?;
        let grown = |memory: Memory| memory.resident_bytes.saturating_sub(before.resident_bytes);
        Ok(observer.in_use.map(|memory| grown(memory) as f64 / subscribers))
    }
}

/// Loads a server, and returns the sample, and whether the server was idle afterwards.
fn watched(
    clients: &Clients,
    load: &Load,
    (pid, address): &Place,
    rate: Option<f64>,
    turn: Option<&Turn<'_>>,
) -> Watched {
    let mut watch = pid.map(|pid| UsageObserver::new(pid, turn));
    let observer: &mut dyn Observer = match &mut watch {
        Some(watch) => watch,
        None => &mut (),
    };
    let measured = clients.run(load, address.as_ref(), rate, observer);
    let has_rested = watch.as_ref().is_none_or(UsageObserver::has_rested);
    let outcome = match watch {
        Some(watch) => measured.and_then(|sample| watch.add_to(sample).map_err(one_line)),
        None => measured,
    };
    (outcome, has_rested)
}

/// Reads the memory of a server at the end of the measured window.
struct MemoryObserver<'a> {
    running: &'a Running,
    in_use: Option<Memory>,
}

impl Observer for MemoryObserver<'_> {
    fn window_closed(&mut self) {
        self.in_use = self.running.memory();
    }
}

impl Measure for Slices {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let outcome = self.slice(slice);
        // End a contender that has failed a job: its late answer must not be taken as the answer to
        // the next job.
        if outcome.is_err() && matches!(self.loads[slice.cell].client, Client::Job(_)) {
            self.running.remove(&self.key(slice));
        }
        outcome
    }

    fn measure_next(&mut self, slices: &[Slice]) -> Vec<Outcome> {
        let distance = |cores: Option<Cores>| cores.and_then(Cores::distance);
        let before = distance(self.cores);
        let mut outcomes = match self.count_together(slices) {
            1 => vec![self.measure(slices[0])],
            count => self.in_turns(&slices[..count]),
        };
        if let Some((before, after)) = before.zip(distance(self.cores)) {
            for sample in outcomes.iter_mut().flatten() {
                sample.set(CORE_DISTANCE_NS, before.max(after));
            }
        }
        outcomes
    }

    fn set_rates(&mut self, rates: OfferedRates) {
        self.rates = rates;
    }

    /// Returns the memory of each contender, taken from one of its servers.
    fn memory(&self) -> Vec<Option<Memory>> {
        let of = |contender| {
            let host = self.host(contender);
            let mut all = self.running.iter().filter(|((index, _), _)| *index == host);
            all.next().and_then(|(_, (_, one))| one.memory())
        };
        let all: Vec<_> = (0..self.contenders.len()).map(of).collect();
        if all.iter().all(Option::is_none) { Vec::new() } else { all }
    }
}
