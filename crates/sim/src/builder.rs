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

/// Builds a simulation. By default: the newest kernel, a local network without load, and no faults.
#[derive(Clone, Debug)]
pub struct Builder {
    seed: u64,
    profile: Profile,
    faults: Faults,
    link: Link,
    disk: Disk,
    descriptors: usize,
    turn: Duration,
    poison: usize,
    text: bool,
}

impl Sim {
    /// A simulation that depends only on `seed` and on the calls made to it.
    pub fn builder(seed: u64) -> Builder {
        Builder::new(seed)
    }
}

impl Builder {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            profile: Profile::current(),
            faults: Faults::none(),
            link: Link::default(),
            disk: Disk::new(Device::default()),
            descriptors: 65_536,
            turn: Duration::from_micros(1),
            poison: 256,
            text: false,
        }
    }

    /// The kernel to simulate. [`Profile::current`] by default.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// The faults. None by default.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// The network.
    pub fn link(mut self, link: Link) -> Self {
        self.link = link;
        self
    }

    /// The disk: empty by default. [`Sim::disk`] is the disk of an earlier run.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Network and faults chosen by the seed: [`Link::any`] and [`Faults::mixture`].
    pub fn chaos(self) -> Self {
        // Not the seed itself, so that the run does not draw the same numbers.
        let mut random = Random::new(self.seed.rotate_left(32) ^ 0x00C4_A05C);
        let link = Link::any(&mut random);
        self.link(link).faults(Faults::mixture(&mut random))
    }

    /// Most open descriptors, including rings: EMFILE beyond that. 65,536 by default.
    pub fn descriptors(mut self, most: usize) -> Self {
        self.descriptors = most;
        self
    }

    /// The virtual time of each enter, so that time passes for a loop that only polls. 1 µs by default.
    pub fn turn(mut self, cost: Duration) -> Self {
        self.turn = cost;
        self
    }

    /// Bytes at both ends of lent memory that are checked for writes: 256 by default. `usize::MAX` checks all of it, which takes
    /// time.
    pub fn poison(mut self, bytes: usize) -> Self {
        self.poison = bytes;
        self
    }

    /// Records the trace as text too: see [`Sim::trace_lines`].
    pub fn trace_text(mut self) -> Self {
        self.text = true;
        self
    }

    /// The simulated kernel, for a ring, a driver or a runtime.
    pub fn build(self) -> Rc<Sim> {
        let settings = Settings {
            seed: self.seed,
            profile: self.profile,
            faults: self.faults,
            link: self.link,
            disk: self.disk,
            descriptors: self.descriptors,
            turn: nanos(self.turn),
            poison: self.poison,
            text: self.text,
        };
        Rc::new(Sim::new(World::new(settings)))
    }
}
