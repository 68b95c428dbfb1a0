//! Drivers and policies for file tests.

use crate::files::place::Place;
use annulus::fs::Policy;
use annulus::{DriverChoice, Runtime};
use annulus_skip::skip;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Longer than any body takes on a slow machine and under a sanitizer.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) driver: DriverChoice,
    pub(crate) policy: Policy,
}

impl Mode {
    /// Returns all modes that work on this machine.
    pub(crate) fn all() -> Vec<Self> {
        let drivers = [DriverChoice::Uring, DriverChoice::Epoll];
        let pairs = drivers.into_iter().flat_map(|driver| {
            Policy::ALL.into_iter().map(move |(_, policy)| Self { driver, policy })
        });
        let works = |mode: &Self| mode.driver == DriverChoice::Epoll || mode.runtime().is_ok();
        let modes: Vec<_> = pairs.filter(works).collect();
        if modes.len() < 2 * Policy::ALL.len() {
            skip!("io_uring is blocked here");
        }
        modes
    }

    pub(crate) fn runtime(self) -> io::Result<Runtime> {
        Runtime::builder().driver(self.driver).file_policy(self.policy).build()
    }

    /// Runs a body in a directory and on a thread of its own. A blocked loop cannot be timed out,
    /// but its thread can be left behind, so that the test fails instead of hanging.
    pub(crate) fn run<F: Future<Output = io::Result<()>>>(
        self,
        body: impl FnOnce(Place) -> F + Send + 'static,
    ) {
        let (done, ended) = channel();
        let thread = thread::spawn(move || {
            let done = done;
            let outcome = self.runtime().unwrap().block_on(body(Place::new()));
            outcome.unwrap_or_else(|error| panic!("{self:?}: {error}"));
            done.send(()).unwrap();
        });
        // If the body panics, its end of the channel is dropped.
        let hangs = ended.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout);
        assert!(!hangs, "{self:?}: the loop hangs");
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}

pub(crate) fn everywhere<F: Future<Output = io::Result<()>>>(
    body: impl Fn(Place) -> F + Copy + Send + 'static,
) {
    Mode::all().into_iter().for_each(|mode| mode.run(body));
}
