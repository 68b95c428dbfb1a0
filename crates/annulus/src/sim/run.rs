//! A run of a network: the turns of its hosts, one after the other, until all clients have ended.

use super::deadlock_of;
use super::disturb::Chaos;
use super::host::{Failure, Running, failed};
use super::network::{Network, Stage};
use crate::task::panic_message;
use annulus_sim::Hosts;
use std::any::Any;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// Ends a run, however it ends.
struct Ending<'a>(&'a Network);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let Self(network) = self;
        (0..network.count()).for_each(|index| network.stop(index));
        network.shared.sim.set_host(None);
        network.shared.stage.set(Stage::Ended);
        // Programs may hold the network, and use it when they are dropped.
        let programs: Vec<_> = {
            let mut hosts = network.shared.hosts.borrow_mut();
            hosts.iter_mut().map(|host| host.program.take()).collect()
        };
        drop(programs);
        network.shared.changes.borrow_mut().clear();
    }
}

impl Network {
    /// Runs all hosts until all clients have ended, and drops what is left, programs too. A network runs once: for another run make
    /// another, by a function of the seed.
    ///
    /// # Errors
    /// The error of the first program that ends with one: it has that error's kind, if that is an [`io::Error`], its host's name in front,
    /// and that error as its [source](std::error::Error::source). A host that [stops](crate::Handle::stop) its runtime is such an error.
    /// A deadlock, with what every task waits for (`Deadlock`); a run that takes longer than its [limit](Self::time_limit) (`TimedOut`);
    /// no client, or a second run (`InvalidInput`).
    ///
    /// # Panics
    /// If a program panics: with its message, and its host's name in front. Or if memory that was lent to the kernel was changed.
    pub fn run(&self) -> io::Result<()> {
        self.check_runnable()?;
        self.shared.stage.set(Stage::Runs);
        self.shared.start.set(self.elapsed());
        let _ending = Ending(self);
        self.run_to_end()
    }

    fn check_runnable(&self) -> io::Result<()> {
        let text = if self.shared.stage.get() != Stage::New {
            "this network has run, or runs, and does so once; make another one for another run"
        } else if self.shared.hosts.borrow().iter().all(|host| host.is_service) {
            "a network without a client would run for ever: it ends when all clients have; add one by Network::client"
        } else {
            return Ok(());
        };
        Err(io::Error::new(ErrorKind::InvalidInput, text))
    }

    fn run_to_end(&self) -> io::Result<()> {
        loop {
            self.apply_changes()?;
            self.disturb_now();
            self.start()?;
            let is_idle = self.turn_all()?;
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

    /// Drops the runtime of a host. Its tasks' destructors may use the network.
    pub(super) fn stop(&self, index: usize) {
        let (ip, running) = {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            (host.ip, host.running.take())
        };
        self.shared.sim.set_host(Some(ip));
        drop(running);
    }

    /// Starts the hosts that do not run and should.
    fn start(&self) -> io::Result<()> {
        (0..self.count()).try_for_each(|index| self.start_host(index))
    }

    /// Programs are called while no host is borrowed: they may use the network.
    fn start_host(&self, index: usize) -> io::Result<()> {
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
        let (main, program) = started.unwrap_or_else(|panic| self.panic_as(index, panic));
        self.shared.hosts.borrow_mut()[index].program = program;
        let running = Running::start(self.builder(), main, added_at);
        let running = running.map_err(|error| self.failed(index, error))?;
        self.shared.hosts.borrow_mut()[index].running = Some(running);
        Ok(())
    }

    /// A turn of each host, in an order that begins at a random one. True if all have nothing left to do.
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
        turned.map_err(|error| self.failed(index, error))
    }

    /// Whether all clients have ended.
    fn have_clients_ended(&self) -> io::Result<bool> {
        let mut all = true;
        for index in 0..self.count() {
            if let Some(outcome) = self.take_outcome(index) {
                outcome.map_err(|error| failed(&self.name(index), error))?;
            }
            let host = &self.shared.hosts.borrow()[index];
            all &= host.has_ended || host.is_service;
        }
        Ok(all)
    }

    /// What a program has returned, once.
    ///
    /// # Panics
    /// If it has panicked.
    fn take_outcome(&self, index: usize) -> Option<Result<(), Failure>> {
        let outcome = {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            let outcome = host.running.as_mut()?.take_outcome()?;
            host.has_ended = true;
            outcome
        };
        match outcome {
            Ok(outcome) => Some(outcome),
            Err(error) if error.is_panic() => self.panic_as(index, error.into_panic()),
            Err(error) => Some(Err(error.into())),
        }
    }

    /// A program's panic goes on, with the host's name if it has a message.
    fn panic_as(&self, index: usize, panic: Box<dyn Any + Send>) -> ! {
        if panic.is::<&str>() || panic.is::<String>() {
            let text = format!("{}: {}", self.name(index), panic_message(&panic));
            resume_unwind(Box::new(text));
        }
        resume_unwind(panic)
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

    /// When the run has taken too long.
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

    /// Lets time pass until something happens.
    fn wait(&self) -> io::Result<()> {
        let disturbance = self.shared.chaos.borrow().as_ref().map(Chaos::next);
        let deadline = self.next_timer().into_iter().chain(disturbance).min();
        if self.shared.sim.pass_until(deadline.map(|deadline| deadline.min(self.latest()))) {
            return Ok(());
        }
        let error = deadlock_of(&self.shared.sim);
        Err(io::Error::new(ErrorKind::Deadlock, self.with_waits(error)))
    }

    fn next_timer(&self) -> Option<Duration> {
        let hosts = self.shared.hosts.borrow();
        hosts.iter().filter_map(|host| host.running.as_ref()?.deadline).min()
    }

    /// A text, and below it what every task of every host waits for.
    fn with_waits(&self, text: String) -> String {
        let mut lines = vec![text];
        for host in &*self.shared.hosts.borrow() {
            let waiting = host.running.as_ref().map(Running::waiting).unwrap_or_default();
            lines.extend(waiting.into_iter().map(|task| format!("  {}: {task}", host.name)));
        }
        lines.join("\n")
    }
}
