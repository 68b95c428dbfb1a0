//! Changes of a network, as requested by programs.

use super::Link;
use super::disturb::{Chaos, Disturbances};
use super::network::{Network, RunStage};
use crate::signal::Signal;
use annulus_sim::Hosts;
use std::io;
use std::net::IpAddr;

/// A change of the network that a program has requested.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Partition(IpAddr, IpAddr),
    Repair(IpAddr, IpAddr),
    Reset(IpAddr, IpAddr),
    Link(IpAddr, IpAddr, Option<Link>),
    /// The number of a host.
    Crash(usize),
    Bounce(usize),
    Signal(usize, Signal),
    Disturb(Disturbances),
    Calm,
}

impl Network {
    /// Queues a change, which is applied before the hosts' next turns. After the run it is ignored.
    pub(super) fn request(&self, change: Change) {
        if self.shared.stage.get() != RunStage::Ended {
            self.shared.changes.borrow_mut().push(change);
        }
    }

    /// Applies the queued changes.
    pub(super) fn apply_changes(&self) -> io::Result<()> {
        let changes = std::mem::take(&mut *self.shared.changes.borrow_mut());
        changes.into_iter().try_for_each(|change| self.apply(change))
    }

    fn apply(&self, change: Change) -> io::Result<()> {
        let Self { shared } = self;
        let sim = &shared.sim;
        match change {
            Change::Partition(a, b) => shared.pairs.borrow_mut().cut(sim, a, b, true),
            Change::Repair(a, b) => shared.pairs.borrow_mut().cut(sim, a, b, false),
            Change::Reset(a, b) => sim.reset(a, b),
            Change::Link(a, b, link) => shared.pairs.borrow_mut().link(sim, a, b, link),
            Change::Crash(index) => self.crash_now(index, None),
            Change::Bounce(index) => self.bounce_now(index),
            Change::Signal(index, signal) => self.signal_now(index, signal),
            Change::Disturb(plan) => {
                self.calm_down();
                let chaos = Chaos::new(plan, self.elapsed(), &mut shared.random.borrow_mut())?;
                *shared.chaos.borrow_mut() = Some(chaos);
            }
            Change::Calm => self.calm_down(),
        }
        Ok(())
    }

    /// Cuts a host's power, for a program or for the disturbance with this number.
    pub(super) fn crash_now(&self, index: usize, disturbance: Option<u64>) {
        let ip = {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            host.is_down = true;
            host.down_by = disturbance;
            host.ip
        };
        self.shared.sim.crash(ip);
        self.stop(index);
    }

    /// Delivers a signal to a host that is running. The host ends if its program does not catch the
    /// signal and the signal's default action is to end the process.
    fn signal_now(&self, index: usize, signal: Signal) {
        const IGNORED_BY_DEFAULT: [Signal; 4] =
            [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGURG, Signal::SIGWINCH];
        // Wakers may use the network.
        let Some(running) = self.shared.hosts.borrow_mut()[index].running.take() else { return };
        let continues = running.signal(signal) || IGNORED_BY_DEFAULT.contains(&signal);
        {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            host.is_down = !continues;
            host.running = Some(running);
        }
        if !continues {
            self.stop(index);
        }
    }

    pub(super) fn bounce_now(&self, index: usize) {
        self.crash_now(index, None);
        let host = &mut self.shared.hosts.borrow_mut()[index];
        host.is_down = false;
        self.shared.sim.restart(host.ip);
    }
}
