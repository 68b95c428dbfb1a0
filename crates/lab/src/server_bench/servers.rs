//! Servers as processes, and a client for each slice.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use annulus_load::{affinity, clock};

use super::catalogue::Load;
use crate::bench::{CLIENT_CPU_SHARE, Measure, Outcome, Sample, Slice};
use crate::child;
use crate::cpu_clock::children_cpu;
use crate::process::{ProcessError, Spec};
use crate::server::{Server, add_usage, one_line, usage_at_rest};

/// How many rounds a process serves before a new one takes its place: two processes of one program differ by up to a few
/// percent, by where their memory lies.
const ROUNDS_A_PROCESS: usize = 4;

/// What perf counts as system calls.
const SYSCALLS: &str = "raw_syscalls:sys_enter";

/// How clients are run.
#[derive(Debug)]
pub(super) struct ClientSettings {
    /// Their core.
    pub(super) core: usize,
    /// For how long.
    pub(super) seconds: u64,
    /// A directory for their scripts.
    pub(super) scripts: PathBuf,
}

/// All servers of a comparison.
#[derive(Debug)]
pub(super) struct Servers {
    specs: Vec<Spec>,
    loads: Vec<&'static Load>,
    clients: ClientSettings,
    /// By contender and service, with the first round that the process serves.
    running: BTreeMap<(usize, &'static str), (usize, Server)>,
}

impl Servers {
    /// Starts every server for everything it is asked for. All stay up: an idle one uses no CPU time.
    ///
    /// # Errors
    /// Names the first server that does not start, and why.
    pub(super) fn start(
        specs: Vec<Spec>,
        loads: Vec<&'static Load>,
        clients: ClientSettings,
    ) -> Result<Servers, ProcessError> {
        let (contenders, cells) = (specs.len(), loads.len());
        let mut servers = Servers { specs, loads, clients, running: BTreeMap::new() };
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
            let started = Server::start(&with_service(&self.specs[slice.contender], service))?;
            self.running.insert(key, (slice.round, started));
        }
        Ok(&mut self.running.get_mut(&key).expect("inserted above").1)
    }

    /// Runs a client to its end, after the words of `wrapper`; its sample, and its share of the core.
    fn load(&self, cell: usize, address: &str, wrapper: Vec<OsString>) -> Result<Sample, String> {
        let (load, ClientSettings { core, seconds, scripts }) = (self.loads[cell], &self.clients);
        let words = load.client.command(load, address, *seconds, scripts).map_err(one_line)?;
        let mut words = wrapper.into_iter().chain(words);
        let program = words.next().expect("a client has a name");
        let mut command = Command::new(&program);
        command.args(words);
        let (began, used) = (clock::now(), children_cpu().map_err(one_line)?);
        let _pinned = affinity::pin(*core).map_err(one_line)?;
        let output = child::output(command)
            .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        let took = clock::now() - began;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            let last = printed.lines().last().unwrap_or("it printed nothing").to_owned();
            return Err(format!("{} failed ({}): {last}", program.display(), output.status));
        }
        let mut sample = load.client.sample(&String::from_utf8_lossy(&output.stdout))?;
        let used = children_cpu().map_err(one_line)?.saturating_sub(used);
        sample.set(CLIENT_CPU_SHARE, used.as_secs_f64() / took.as_secs_f64());
        Ok(sample)
    }

    /// The server's system calls a request, by a run of its own, since counting slows each of them; `None` without perf or the right
    /// to use it.
    fn syscalls(&self, cell: usize, address: &str, pid: u32) -> Option<f64> {
        let counts = self.clients.scripts.join("counts");
        let words = ["perf", "stat", "-x,", "-e", SYSCALLS, "-p", &pid.to_string(), "-o"];
        let words = words.into_iter().map(OsString::from);
        let wrapper = words.chain([counts.clone().into(), "--".into()]).collect();
        let sample = self.load(cell, address, wrapper).ok()?;
        let text = fs::read_to_string(counts).ok()?;
        let line = text.lines().find(|line| line.contains(SYSCALLS))?;
        Some(line.split(',').next()?.parse::<f64>().ok()? / sample.get("operations")?)
    }
}

impl Measure for Servers {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let server = self.server(slice).map_err(|error| error.why)?;
        let (pid, address) = (server.process.pid(), server.address.to_string());
        let before = usage_at_rest(pid).map_err(one_line)?;
        let sample = self.load(slice.cell, &address, Vec::new());
        let mut sample = self.server(slice).map_err(|error| error.why)?.outcome(sample)?;
        let used = usage_at_rest(pid).map_err(one_line)?.since(before);
        add_usage(&mut sample, pid, used).map_err(one_line)?;
        if slice.round == 0
            && let Some(calls) = self.syscalls(slice.cell, &address, pid)
        {
            sample.set("syscalls", calls);
        }
        Ok(sample)
    }
}

/// A server on a free port that speaks this; its mode, if it has one, is the last argument.
fn with_service(spec: &Spec, service: &str) -> Spec {
    let words = ["0", service].map(OsString::from).into_iter();
    Spec { arguments: words.chain(spec.arguments.iter().cloned()).collect(), ..spec.clone() }
}
