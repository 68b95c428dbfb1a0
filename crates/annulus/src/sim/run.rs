//! Runs a network: its hosts take turns, one after another, until all clients have ended.

use super::disturb::Chaos;
use super::disturb::Tally;
use super::host::{Failure, Running, failed};
use super::network::{Network, RunStage};
use super::{DEADLOCK, ONLY_YIELDS, socket_lines};
use crate::tasks::remote::LostPanic;
use crate::unwind::Panic;
use annulus_sim::Hosts;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::Duration;

/// Guard that cleans up after a run, including one that fails or panics.
struct EndRunOnDrop<'a>(&'a Network);

impl Drop for EndRunOnDrop<'_> {
    fn drop(&mut self) {
        let Self(network) = self;
        let took = network.elapsed().saturating_sub(network.shared.start.get());
        Tally::note(|tally| tally.longest = tally.longest.max(took));
        // The run ends at this moment: a host that ended in order would wait for its syncs, and
        // data would become durable that no program saw synced.
        let hosts: Vec<_> = network.shared.hosts.borrow().iter().map(|host| host.ip).collect();
        hosts.iter().for_each(|host| network.shared.sim.crash(*host));
        (0..network.count()).for_each(|index| network.stop(index));
        hosts.iter().for_each(|host| network.shared.sim.restart(*host));
        network.shared.sim.set_host(None);
        network.shared.stage.set(RunStage::Ended);
        // Programs may hold the network and use it in their destructors.
        let programs: Vec<_> = {
            let mut hosts = network.shared.hosts.borrow_mut();
            hosts.iter_mut().map(|host| host.program.take()).collect()
        };
        drop(programs);
        network.shared.changes.borrow_mut().clear();
    }
}

impl Network {
    /// Runs all hosts until all clients have ended, then drops all tasks and programs. A network
    /// runs only once: for another run, create another network, for example in a function of the
    /// seed.
    ///
    /// # Errors
    /// Returns the error of the first program that fails, prefixed with its host's name. It keeps
    /// the kind of that error, if that is an [`io::Error`], and has it as its
    /// [source](std::error::Error::source). A host that [stops](crate::Handle::stop) its runtime
    /// has failed as well. Other errors are a deadlock, with a list of the events that every task
    /// waits for and of the open sockets (`Deadlock`); a run that takes longer than its
    /// [limit](Self::time_limit), or whose tasks
    /// [only yield](super::SimBuilder::max_idle_turns) (`TimedOut`); a network that has no client
    /// or has run before (`InvalidInput`); and disturbances [without a kind or with an empty
    /// range](Self::disturb) (`InvalidInput`).
    ///
    /// # Panics
    /// If a program panics, or if a task panics and no [`JoinHandle`](crate::task::JoinHandle) or
    /// [`JoinSet`](crate::task::JoinSet) takes the panic. The message is prefixed with the host's
    /// name and followed by the line that spawned the task and the virtual time. See [panics of
    /// programs](Self#panics-of-programs). Also panics if memory was changed while the kernel was
    /// using it.
    #[track_caller]
    pub fn run(&self) -> io::Result<()> {
        self.check_runnable()?;
        self.shared.stage.set(RunStage::Runs);
        self.shared.start.set(self.elapsed());
        let ending = EndRunOnDrop(self);
        let outcome = self.run_to_end();
        drop(ending);
        // No closure here: a panic in it would be reported at the closure instead of at the caller
        // of `run`.
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => error.fail(),
        }
    }

    fn check_runnable(&self) -> io::Result<()> {
        let text = if self.shared.stage.get() != RunStage::New {
            "this network has already been run, and a network runs only once; create another one for another run"
        } else if self.shared.hosts.borrow().iter().all(|host| host.is_service) {
            "a network without a client would run forever, because a run ends when all clients have ended; add one with Network::client"
        } else {
            return Ok(());
        };
        Err(io::Error::new(ErrorKind::InvalidInput, text))
    }

    fn run_to_end(&self) -> Result<(), RunError> {
        loop {
            self.apply_changes()?;
            self.disturb_now();
            self.start()?;
            let turned = self.turn_all();
            // Check for panics before errors of turns, because a host whose task has panicked is
            // stopped, and so its turn fails.
            self.check_panics()?;
            let is_idle = turned?;
            if self.have_clients_ended()? {
                return Ok(());
            }
            self.check_limit()?;
            if is_idle && self.shared.changes.borrow().is_empty() && !self.is_any_woken() {
                self.wait()?;
            }
        }
    }

    fn count(&self) -> usize {
        self.shared.hosts.borrow().len()
    }

    /// Drops the runtime of a host. The destructors of its tasks may use the network.
    pub(super) fn stop(&self, index: usize) {
        let (ip, running) = {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            (host.ip, host.running.take())
        };
        self.shared.sim.set_host(Some(ip));
        drop(running);
    }

    fn start(&self) -> Result<(), RunError> {
        (0..self.count()).try_for_each(|index| self.start_host(index))
    }

    /// Starts a host if it should be running and is not. The program is called while no host is
    /// borrowed, because it may use the network.
    fn start_host(&self, index: usize) -> Result<(), RunError> {
        let (ip, added_at, program) = {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            if host.running.is_some() || host.is_down {
                return Ok(());
            }
            (host.ip, host.added_at, host.program.take())
        };
        let Some(program) = program else { return Ok(()) };
        self.shared.sim.set_host(Some(ip));
        let started = catch_unwind(AssertUnwindSafe(|| program.start()));
        let (main, program) = started.map_err(|panic| self.panicked(index, panic))?;
        self.shared.hosts.borrow_mut()[index].program = program;
        let running = Running::start(self.builder(), main, added_at);
        let running = running.map_err(|error| self.failed(index, error))?;
        self.shared.hosts.borrow_mut()[index].running = Some(running);
        Ok(())
    }

    /// Runs a turn of each host, beginning with a random one. Returns true if none of them has
    /// anything left to do.
    fn turn_all(&self) -> io::Result<bool> {
        let count = self.count();
        let first = self.shared.random.borrow_mut().below(count as u64) as usize;
        let mut is_idle = true;
        for index in (first..count).chain(0..first) {
            is_idle &= self.turn(index)?;
        }
        Ok(is_idle)
    }

    fn turn(&self, index: usize) -> io::Result<bool> {
        let (ip, running) = {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            (host.ip, host.running.take())
        };
        let Some(mut running) = running else { return Ok(true) };
        self.shared.sim.set_host(Some(ip));
        let turned = running.turn();
        self.shared.hosts.borrow_mut()[index].running = Some(running);
        turned.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => {
                io::Error::new(ErrorKind::TimedOut, self.with_waits(ONLY_YIELDS.to_owned()))
            }
            _ => self.failed(index, error),
        })
    }

    /// # Errors
    /// Returns the panic of a task if nothing can take it.
    fn check_panics(&self) -> Result<(), RunError> {
        for host in &*self.shared.hosts.borrow() {
            if let Some(panic) = host.running.as_ref().and_then(Running::lost_panic) {
                return Err(RunError::lost(panic, Some(&host.name), self.elapsed()));
            }
        }
        Ok(())
    }

    fn have_clients_ended(&self) -> Result<bool, RunError> {
        let mut all = true;
        for index in 0..self.count() {
            if let Some(outcome) = self.take_outcome(index)? {
                outcome.map_err(|error| failed(&self.name(index), error))?;
            }
            let host = &self.shared.hosts.borrow()[index];
            all &= host.has_ended || host.is_service;
        }
        Ok(all)
    }

    /// Takes the outcome of a program that has ended.
    ///
    /// # Errors
    /// Returns the panic of the program.
    fn take_outcome(&self, index: usize) -> Result<Option<Result<(), Failure>>, RunError> {
        let outcome = {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            let outcome = host.running.as_mut().and_then(Running::take_outcome);
            host.has_ended |= outcome.is_some();
            outcome
        };
        match outcome {
            Some(Err(error)) if error.is_panic() => Err(self.panicked(index, error.into_panic())),
            Some(Err(error)) => Ok(Some(Err(error.into()))),
            Some(Ok(outcome)) => Ok(Some(outcome)),
            None => Ok(None),
        }
    }

    /// Returns the error of a run whose program has panicked.
    fn panicked(&self, index: usize, panic: Panic) -> RunError {
        let host = &self.shared.hosts.borrow()[index];
        RunError::of_program(panic, &host.name, host.added_at, self.elapsed())
    }

    fn failed(&self, index: usize, error: io::Error) -> io::Error {
        failed(&self.name(index), error.into())
    }

    pub(super) fn name(&self, index: usize) -> String {
        self.shared.hosts.borrow()[index].name.clone()
    }

    fn is_any_woken(&self) -> bool {
        let hosts = self.shared.hosts.borrow();
        hosts.iter().filter_map(|host| host.running.as_ref()).any(Running::is_woken)
    }

    /// Returns the virtual time at which the time limit expires.
    fn latest(&self) -> Duration {
        self.shared.start.get().saturating_add(self.shared.time_limit.get())
    }

    fn check_limit(&self) -> io::Result<()> {
        if self.elapsed() < self.latest() {
            return Ok(());
        }
        let limit = self.shared.time_limit.get();
        let text =
            format!("the run takes longer than {limit:?} of virtual time; see Network::time_limit");
        Err(io::Error::new(ErrorKind::TimedOut, self.with_waits(text)))
    }

    /// Lets virtual time pass until the next event, timer or disturbance, or until the time limit.
    /// Fails with `Deadlock` if none of them can happen.
    fn wait(&self) -> io::Result<()> {
        let disturbance = self.shared.chaos.borrow().as_ref().map(Chaos::next);
        let deadline = self.next_timer().into_iter().chain(disturbance).min();
        if self.shared.sim.pass_until(deadline.map(|deadline| deadline.min(self.latest()))) {
            return Ok(());
        }
        let waits = self.with_waits(DEADLOCK.to_owned());
        let sockets = socket_lines(&self.shared.sim);
        Err(io::Error::new(ErrorKind::Deadlock, waits + &sockets))
    }

    fn next_timer(&self) -> Option<Duration> {
        let hosts = self.shared.hosts.borrow();
        hosts.iter().filter_map(|host| host.running.as_ref()?.deadline).min()
    }

    /// Returns the text, followed by one line per task of each host with the events that it waits
    /// for.
    fn with_waits(&self, text: String) -> String {
        let mut lines = vec![text];
        for host in &*self.shared.hosts.borrow() {
            let waiting = host.running.as_ref().map(Running::waiting).unwrap_or_default();
            lines.extend(waiting.into_iter().map(|task| format!("  {}: {task}", host.name)));
        }
        lines.join("\n")
    }
}

/// The reason why a run has failed.
pub(super) enum RunError {
    Error(io::Error),
    /// A panic, with the text to report.
    Panic(String),
    /// A panic whose payload is not text.
    Payload(Panic),
}

impl RunError {
    /// Creates the error for a task's panic that nothing can take.
    pub(super) fn lost(panic: &LostPanic, host: Option<&str>, now: Duration) -> Self {
        Self::Panic(report(&panic.message, host, panic.spawned_at, now))
    }

    /// Creates the error for the panic of a host's program.
    pub(super) fn of_program(
        payload: Panic,
        host: &str,
        added_at: &Location<'_>,
        now: Duration,
    ) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        match text.or_else(|| payload.downcast_ref::<&str>().copied()) {
            Some(text) => Self::Panic(report(text, Some(host), added_at, now)),
            None => Self::Payload(payload),
        }
    }

    /// Returns the error, or panics at the caller's location.
    ///
    /// # Errors
    /// Returns the error if it is not a panic.
    ///
    /// # Panics
    /// If the run ended by a panic.
    #[track_caller]
    pub(super) fn fail<T>(self) -> io::Result<T> {
        match self {
            Self::Error(error) => Err(error),
            Self::Panic(text) => panic!("{text}"),
            Self::Payload(payload) => resume_unwind(payload),
        }
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Error(error)
    }
}

/// Returns the message of a panic with its host, task and time.
fn report(message: &str, host: Option<&str>, spawned_at: &Location<'_>, now: Duration) -> String {
    let host = host.map(|host| format!("{host}: ")).unwrap_or_default();
    let (file, line) = (spawned_at.file(), spawned_at.line());
    format!("{host}{message}\n  panic of the task spawned at {file}:{line}, at {now:?}")
}
