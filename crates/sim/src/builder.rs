//! Choosing what is simulated.

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

/// Sets a simulation up. Without further wishes: the newest kernel, a quiet local network, and nothing goes wrong.
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

    /// Which kernel is played. [`Profile::current`] by default.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// What goes wrong. Nothing by default.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// The network.
    pub fn link(mut self, link: Link) -> Self {
        self.link = link;
        self
    }

    /// The disk: an empty one by default. What a run left of one goes on with [`Sim::disk`].
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Network and faults of the seed's choice: [`Link::any`] and [`Faults::mixture`].
    pub fn chaos(self) -> Self {
        // Not the seed itself: what is chosen here must not repeat in the run.
        let mut random = Random::new(self.seed.rotate_left(32) ^ 0x00C4_A05C);
        let link = Link::any(&mut random);
        self.link(link).faults(Faults::mixture(&mut random))
    }

    /// Most open descriptors, rings included: beyond that, EMFILE. 65,536 by default.
    pub fn descriptors(mut self, most: usize) -> Self {
        self.descriptors = most;
        self
    }

    /// What each enter costs of virtual time, so that a loop that only polls gets somewhere. 1 µs by default.
    pub fn turn(mut self, cost: Duration) -> Self {
        self.turn = cost;
        self
    }

    /// Bytes at either end of lent memory that are watched for strangers' writes: 256 by default. `usize::MAX` watches
    /// all of it, which takes time.
    pub fn poison(mut self, bytes: usize) -> Self {
        self.poison = bytes;
        self
    }

    /// Keeps the trace as text too: see [`Sim::trace_lines`].
    pub fn trace_text(mut self) -> Self {
        self.text = true;
        self
    }

    /// The simulated kernel. As `Rc<dyn Kernel>` it goes under a ring, a driver or a runtime.
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
