//! What was asked of a network, and the run that does it between the turns of hosts.

use super::disturb::{Chaos, Disturbances};
use super::host::Running;
use super::network::Network;
use super::{Link, deadlock_of};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::time::Duration;

/// A change of the network that a program has asked for.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Partition(IpAddr, IpAddr),
    Repair(IpAddr, IpAddr),
    Reset(IpAddr, IpAddr),
    Link(IpAddr, IpAddr, Option<Link>),
    /// The number of a host.
    Crash(usize),
    Bounce(usize),
    Disturb(Disturbances),
    Calm,
}

impl Network {
    /// Runs all hosts until all clients have ended, and drops what is left.
    ///
    /// # Errors
    /// The error of the first program that ends with one, with its host's name; a deadlock, with what every task waits for
    /// (`Deadlock`); a run that takes longer than its [limit](Self::time_limit) (`TimedOut`); no client.
    ///
    /// # Panics
    /// If a program panics; or if memory that was lent to the kernel was changed.
    pub fn run(&self) -> io::Result<()> {
        if self.shared.hosts.borrow().iter().all(|host| host.is_service()) {
            let text = "a network without a client, whose end would end the run; add one by Network::client";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let ran = self.run_to_end();
        (0..self.count()).for_each(|index| self.stop(index));
        self.shared.sim.set_host(None);
        ran
    }

    fn run_to_end(&self) -> io::Result<()> {
        loop {
            self.obey()?;
            self.disturb_now()?;
            self.start()?;
            let is_idle = self.turn_all()?;
            if self.have_clients_ended()? {
                return Ok(());
            }
            if is_idle && self.shared.orders.borrow().is_empty() && !self.is_any_woken() {
                self.wait()?;
            }
        }
    }

    fn count(&self) -> usize {
        self.shared.hosts.borrow().len()
    }

    /// Carries out what was asked for.
    pub(super) fn obey(&self) -> io::Result<()> {
        let orders = std::mem::take(&mut *self.shared.orders.borrow_mut());
        orders.into_iter().try_for_each(|order| self.carry_out(order))
    }

    pub(super) fn carry_out(&self, order: Order) -> io::Result<()> {
        let sim = &self.shared.sim;
        match order {
            Order::Partition(a, b) => sim.partition(a, b),
            Order::Repair(a, b) => sim.repair(a, b),
            Order::Reset(a, b) => sim.reset(a, b),
            Order::Link(a, b, link) => sim.set_link(a, b, link),
            Order::Crash(index) => self.crash_now(index),
            Order::Bounce(index) => {
                self.crash_now(index);
                let mut hosts = self.shared.hosts.borrow_mut();
                hosts[index].is_down = false;
                sim.restart(hosts[index].ip);
            }
            Order::Disturb(plan) => {
                self.calm_down()?;
                let chaos = Chaos::new(plan, self.elapsed(), &mut self.shared.random.borrow_mut())?;
                *self.shared.chaos.borrow_mut() = Some(chaos);
            }
            Order::Calm => self.calm_down()?,
        }
        Ok(())
    }

    fn crash_now(&self, index: usize) {
        let ip = self.shared.hosts.borrow()[index].ip;
        self.shared.sim.crash(ip);
        self.stop(index);
        self.shared.hosts.borrow_mut()[index].is_down = true;
    }

    /// Drops the runtime of a host. Its tasks' destructors may use the network.
    fn stop(&self, index: usize) {
        let (ip, running) = {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            (host.ip, host.running.take())
        };
        self.shared.sim.set_host(Some(ip));
        drop(running);
    }

    /// Starts the hosts that do not run and should.
    fn start(&self) -> io::Result<()> {
        for index in 0..self.count() {
            let (ip, main) = {
                let host = &mut self.shared.hosts.borrow_mut()[index];
                if host.running.is_some() || host.is_down {
                    continue;
                }
                (host.ip, host.main())
            };
            let Some(main) = main else { continue };
            self.shared.sim.set_host(Some(ip));
            let running = Running::start(self.builder(), main)?;
            self.shared.hosts.borrow_mut()[index].running = Some(running);
        }
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
        turned.map_err(|error| self.failed(index, &error))
    }

    /// Whether all clients have ended.
    fn have_clients_ended(&self) -> io::Result<bool> {
        let mut all = true;
        for index in 0..self.count() {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            if let Some(outcome) = host.running.as_mut().and_then(Running::take_outcome) {
                host.has_ended = true;
                outcome.map_err(|error| failed(&host.name, &*error))?;
            }
            all &= host.has_ended || host.is_service();
        }
        Ok(all)
    }

    fn failed(&self, index: usize, error: &io::Error) -> io::Error {
        failed(&self.shared.hosts.borrow()[index].name, error)
    }

    fn is_any_woken(&self) -> bool {
        let hosts = self.shared.hosts.borrow();
        hosts.iter().filter_map(|host| host.running.as_ref()).any(Running::is_woken)
    }

    /// Lets time pass until something happens.
    fn wait(&self) -> io::Result<()> {
        let limit = self.shared.time_limit.get();
        if self.elapsed() >= limit {
            let text = format!(
                "the run takes longer than {limit:?} of virtual time; see Network::time_limit"
            );
            return Err(io::Error::new(ErrorKind::TimedOut, self.with_waits(text)));
        }
        let timers = self.next_timer();
        let disturbance = self.shared.chaos.borrow().as_ref().map(Chaos::next);
        let deadline = timers.into_iter().chain(disturbance).min();
        if self.shared.sim.pass_until(deadline.map(|deadline| deadline.min(limit))) {
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

fn failed(name: &str, error: &dyn std::error::Error) -> io::Error {
    io::Error::other(format!("{name}: {error}"))
}
