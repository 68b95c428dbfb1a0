//! The ways.

use crate::place::Place;
use annulus::fs::Policy;
use annulus::{DriverChoice, Runtime};
use std::io;

/// A driver, and where calls are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) driver: DriverChoice,
    pub(crate) policy: Policy,
}

impl Mode {
    /// All of them that work here.
    pub(crate) fn all() -> Vec<Self> {
        let drivers = [DriverChoice::Uring, DriverChoice::Epoll];
        let pairs = drivers.into_iter().flat_map(|driver| {
            Policy::ALL.into_iter().map(move |(_, policy)| Self { driver, policy })
        });
        pairs.filter(|mode| mode.driver == DriverChoice::Epoll || mode.runtime().is_ok()).collect()
    }

    pub(crate) fn runtime(self) -> io::Result<Runtime> {
        Runtime::builder().driver(self.driver).file_policy(self.policy).build()
    }
}

/// Runs a body in every mode, in a folder of its own.
pub(crate) fn everywhere<F: Future<Output = io::Result<()>>>(body: impl Fn(Place) -> F) {
    for mode in Mode::all() {
        let place = Place::new();
        let mut runtime = mode.runtime().unwrap();
        let done = runtime.block_on(body(place)).unwrap();
        done.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
    }
}
