//! The settings of a simulation.

use crate::faults::Faults;
use crate::fs::{Device, Disk};
use crate::net::Link;
use crate::profile::Profile;
use crate::random::Random;
use crate::sim::Sim;
use crate::timeline::nanos;
use crate::world::{Settings, World};
use std::rc::Rc;
use std::time::Duration;

/// Maximum [`turn_cost`](SimBuilder::turn_cost).
const MAX_TURN_COST: Duration = Duration::from_secs(3600);

/// Builds a simulation. The default is the newest kernel, an idle local network and no faults.
#[derive(Clone, Debug)]
pub struct SimBuilder {
    seed: u64,
    profile: Profile,
    faults: Faults,
    link: Link,
    disk: Disk,
    descriptors: usize,
    turn_cost: Duration,
    max_idle_turns: u64,
    poison: usize,
    text: bool,
}

impl Sim {
    /// Returns the builder of a simulation that depends only on `seed` and on the calls made to it.
    pub fn builder(seed: u64) -> SimBuilder {
        SimBuilder::new(seed)
    }
}

impl SimBuilder {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            profile: Profile::current(),
            faults: Faults::none(),
            link: Link::default(),
            disk: Disk::new(Device::default()),
            descriptors: 65_536,
            turn_cost: Duration::from_micros(1),
            max_idle_turns: 1_000_000,
            poison: 256,
            text: false,
        }
    }

    /// Sets the kernel to simulate; the default is [`Profile::current`].
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Sets the faults; the default is no faults.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Sets the link between addresses that have no link of their own; the default is
    /// [`Link::default`].
    pub fn link(mut self, link: Link) -> Self {
        self.link = link;
        self
    }

    /// Sets the disk; the default is an empty one. [`Sim::disk`] returns the disk of an earlier
    /// run.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Lets the seed choose the network and the faults: [`Link::any`] and [`Faults::mixture`].
    pub fn chaos(self) -> Self {
        // A different seed, so that this generator and the generator of the run draw different
        // numbers.
        let mut random = Random::new(self.seed.rotate_left(32) ^ 0x00C4_A05C);
        let link = Link::any(&mut random);
        self.link(link).faults(Faults::mixture(&mut random))
    }

    /// Sets the maximum number of open descriptors, including those of rings. Opening more fails
    /// with EMFILE. The default is 65,536.
    pub fn descriptors(mut self, most: usize) -> Self {
        self.descriptors = most;
        self
    }

    /// Sets the virtual time that each `enter` and each epoll wait takes, so that time also passes
    /// for a loop that only polls. The default is 1 µs, the maximum an hour.
    pub fn turn_cost(mut self, cost: Duration) -> Self {
        self.turn_cost = cost;
        self
    }

    /// Sets after how many turns in a row without any effect a run fails: turns in which nothing is
    /// submitted and nothing completes, and which do not wait. Such a program only yields. With
    /// several hosts, this many turns of each. The default is a million; at least 1.
    pub fn max_idle_turns(mut self, turns: u64) -> Self {
        self.max_idle_turns = turns.max(1);
        self
    }

    /// Sets how many bytes at both ends of memory owned by the kernel are checked for writes. The
    /// default is 256. `usize::MAX` checks all bytes, which is slow.
    pub fn poison(mut self, bytes: usize) -> Self {
        self.poison = bytes;
        self
    }

    /// Records the trace as text as well; see [`Sim::trace_lines`].
    pub fn trace_text(mut self) -> Self {
        self.text = true;
        self
    }

    /// Returns the simulated kernel, for a ring, a driver or a runtime.
    pub fn build(self) -> Rc<Sim> {
        let settings = Settings {
            seed: self.seed,
            profile: self.profile,
            faults: self.faults,
            link: self.link,
            disk: self.disk,
            descriptors: self.descriptors,
            turn_cost: nanos(self.turn_cost.min(MAX_TURN_COST)),
            max_idle_turns: self.max_idle_turns,
            poison: self.poison,
            text: self.text,
        };
        Rc::new(Sim::new(World::new(settings)))
    }
}
