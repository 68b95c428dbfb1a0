//! What was asked of a network, and how it is done.

use super::Link;
use super::disturb::{Chaos, Disturbances};
use super::network::{Network, Stage};
use annulus_sim::Hosts;
use std::io;
use std::net::IpAddr;

/// A change of the network that a program has asked for.
#[derive(Clone, Debug)]
pub(super) enum Change {
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
    /// Notes a change, which is made before the next turn. After the run there is none.
    pub(super) fn ask(&self, change: Change) {
        if self.shared.stage.get() != Stage::Ended {
            self.shared.changes.borrow_mut().push(change);
        }
    }

    /// Makes the changes that were asked for.
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
            Change::Disturb(plan) => {
                self.calm_down();
                let chaos = Chaos::new(plan, self.elapsed(), &mut shared.random.borrow_mut())?;
                *shared.chaos.borrow_mut() = Some(chaos);
            }
            Change::Calm => self.calm_down(),
        }
        Ok(())
    }

    /// Cuts a host's power, by a program or by the disturbance with this number.
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

    pub(super) fn bounce_now(&self, index: usize) {
        self.crash_now(index, None);
        let host = &mut self.shared.hosts.borrow_mut()[index];
        host.is_down = false;
        self.shared.sim.restart(host.ip);
    }
}
