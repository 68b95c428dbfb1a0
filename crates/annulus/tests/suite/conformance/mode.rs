//! The modes in which a body runs.

use crate::common::host::Host;
use annulus::sim::{Link, Profile, Sim};
use annulus::stats::Counters;
use annulus::time::{Elapsed, timeout};
use annulus::{Builder, DriverChoice, DriverKind, Guest, Runtime, ZeroCopyReceive};
use annulus_ring::{Features, SetupFlags};
use annulus_sim::Random;
use annulus_skip::skip;
use std::env;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// A driver and the kernel under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Uring,
    UringWithoutNewerFlags,
    Epoll,
    Simulated,
    SimulatedOldKernel,
    SimulatedEpoll,
    UringBusyPolling,
    SimulatedBusyPolling,
    UringWithoutCopies,
    SimulatedWithoutCopies,
    /// The runtime is the guest of another event loop.
    GuestOnUring,
    GuestOnUringWithoutNewerFlags,
    GuestOnEpoll,
}

/// If this variable is set, the modes on an io_uring of Linux receive without a copy, as far as
/// their flags allow it: see [`Mode::receives_zero_copy`].
const ZERO_COPY_RECEIVE_VARIABLE: &str = "ANNULUS_TEST_ZERO_COPY_RECEIVE";
/// Size of the memory for these receives, in bytes.
const RECEIVE_AREA_BYTES: usize = 2 << 20;

/// Number of times that a body runs in a simulated mode, each time on another network.
const SEEDS: u64 = 4;

/// A body, to be run once per seed.
type Body = fn() -> Pin<Box<dyn Future<Output = io::Result<()>>>>;

pub(crate) struct Case {
    body: Body,
    settings: fn(Builder) -> Builder,
    check: fn(Mode, &Counters),
    link: fn(Link) -> Link,
}

impl Case {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, settings: |builder| builder, check: |_, _| (), link: |link| link }
    }

    pub(crate) fn with(self, settings: fn(Builder) -> Builder) -> Self {
        Self { settings, ..self }
    }

    /// Uses simulated networks that do not lose, duplicate or reorder datagrams, and whose buffers
    /// hold the largest ones.
    pub(crate) fn in_order(self) -> Self {
        const LARGE: u32 = 1 << 20;
        let link = |link| Link {
            jitter: Duration::ZERO,
            receive_buffer: LARGE,
            send_buffer: LARGE,
            loss: 0,
            duplication: 0,
            reordering: 0,
            ..link
        };
        Self { link, ..self }
    }

    /// Checks the counters afterwards.
    pub(crate) fn then(self, check: fn(Mode, &Counters)) -> Self {
        Self { check, ..self }
    }
}

impl Mode {
    pub(crate) const ALL: [Self; 6] = [
        Self::Uring,
        Self::UringWithoutNewerFlags,
        Self::Epoll,
        Self::Simulated,
        Self::SimulatedOldKernel,
        Self::SimulatedEpoll,
    ];

    /// Modes on the real kernel, which have peers outside the runtime.
    pub(crate) const OF_LINUX: [Self; 8] = [
        Self::Uring,
        Self::UringWithoutNewerFlags,
        Self::Epoll,
        Self::UringBusyPolling,
        Self::UringWithoutCopies,
        Self::GuestOnUring,
        Self::GuestOnUringWithoutNewerFlags,
        Self::GuestOnEpoll,
    ];

    pub(crate) fn is_epoll(self) -> bool {
        matches!(self, Self::Epoll | Self::GuestOnEpoll | Self::SimulatedEpoll)
    }

    fn is_guest(self) -> bool {
        matches!(
            self,
            Self::GuestOnUring | Self::GuestOnUringWithoutNewerFlags | Self::GuestOnEpoll
        )
    }

    /// Returns true if the kernel sends from the program's memory without a copy.
    pub(crate) fn is_zero_copy(self) -> bool {
        matches!(self, Self::UringWithoutCopies | Self::SimulatedWithoutCopies)
    }

    pub(crate) fn is_simulated(self) -> bool {
        self.profile().is_some()
    }

    /// Returns true if TCP streams receive into memory that the network stack owns.
    pub(crate) fn receives_zero_copy(self) -> bool {
        let has_ring = !self.is_epoll() && !self.is_simulated();
        has_ring && self.without().is_empty() && env::var_os(ZERO_COPY_RECEIVE_VARIABLE).is_some()
    }

    fn tuned(self, builder: Builder) -> Builder {
        let memory = ZeroCopyReceive::without_device(RECEIVE_AREA_BYTES);
        let memory = self.receives_zero_copy().then_some(memory);
        let builder = builder.zero_copy_receive(memory);
        match self {
            Self::UringBusyPolling | Self::SimulatedBusyPolling => {
                builder.busy_poll(Duration::from_micros(50))
            }
            // Every send is long enough for this threshold.
            Self::UringWithoutCopies | Self::SimulatedWithoutCopies => {
                builder.zero_copy_threshold(Some(1))
            }
            _ => builder,
        }
    }

    /// Returns true if the mode can run on this machine.
    pub(crate) fn is_available(self) -> bool {
        let real_ring = !self.is_epoll() && self.profile().is_none();
        let has_it = |features: Features| !self.is_zero_copy() || features.has("zero-copy sendmsg");
        let here = !real_ring || Features::detect().is_ok_and(has_it);
        if !here {
            skip!("this kernel has no io_uring, or lacks a feature of it");
        }
        here
    }

    /// Runs a body to its end, and checks that nothing is left.
    pub(crate) fn run(self, case: &Case) {
        if !self.is_available() {
            return;
        }
        match self.profile() {
            None => self.run_on(case, self.builder()),
            Some(profile) => (0..SEEDS).for_each(|seed| {
                let sim = simulation(seed, profile(), case.link);
                self.run_on(case, self.on_simulated(&sim));
                nothing_left(seed, &sim);
            }),
        }
    }

    /// Returns a runtime of this mode and its simulated kernel, if it has one.
    pub(crate) fn runtime(self) -> (Runtime, Option<Rc<Sim>>) {
        let sim = self.profile().map(|profile| simulation(1, profile(), |link| link));
        let builder = match &sim {
            Some(sim) => self.on_simulated(sim),
            None => self.builder(),
        };
        (builder.build().expect("no runtime can be built"), sim)
    }

    fn run_on(self, case: &Case, builder: Builder) {
        let mut runtime = (case.settings)(builder).build().expect("no runtime can be built");
        assert_eq!(runtime.driver().kind == DriverKind::Epoll, self.is_epoll());
        let in_use = runtime.driver().in_use().any(|feature| feature.name == "deviceless receive");
        assert_eq!(in_use, self.receives_zero_copy());
        if self.is_guest() {
            return self
                .run_as_guest(case, runtime.into_guest().expect("the runtime cannot be a guest"));
        }
        let outcome = runtime.try_block_on(timeout(self.deadline(), (case.body)()));
        self.check(case, &runtime, outcome);
    }

    fn run_as_guest(self, case: &Case, mut guest: Guest) {
        let host = Host::of(&guest);
        let outcome = host.run(&mut guest, timeout(self.deadline(), (case.body)()));
        self.check(case, guest.runtime(), outcome);
    }

    fn check(
        self,
        case: &Case,
        runtime: &Runtime,
        outcome: io::Result<Result<io::Result<()>, Elapsed>>,
    ) {
        let waiting = runtime.waiting().join("\n");
        match outcome {
            Ok(Ok(done)) => done.expect("a step of the body failed"),
            Ok(Err(_elapsed)) => panic!("nothing happens anymore:\n{waiting}"),
            Err(error) => panic!("the runtime ended: {error}\n{waiting}"),
        }
        (case.check)(self, &runtime.counters());
    }

    /// The deadline that turns a hang into a failure. Simulated time costs nothing.
    fn deadline(self) -> Duration {
        Duration::from_secs(if self.profile().is_some() { 1_000_000 } else { 1000 })
    }

    fn builder(self) -> Builder {
        self.tuned(Runtime::builder()).driver(self.driver()).without(self.without())
    }

    /// Uses deadlines that are long enough for the slowest network.
    fn on_simulated(self, sim: &Rc<Sim>) -> Builder {
        let long = Duration::from_secs(100_000);
        self.builder().kernel(sim.clone()).linger(long).shutdown_timeout(long)
    }

    fn driver(self) -> DriverChoice {
        if self.is_epoll() { DriverChoice::Epoll } else { DriverChoice::Uring }
    }

    fn without(self) -> SetupFlags {
        match self {
            Self::UringWithoutNewerFlags | Self::GuestOnUringWithoutNewerFlags => {
                SetupFlags::DEFER_TASKRUN | SetupFlags::NO_SQARRAY
            }
            _ => SetupFlags::empty(),
        }
    }

    fn profile(self) -> Option<fn() -> Profile> {
        match self {
            Self::Simulated
            | Self::SimulatedEpoll
            | Self::SimulatedBusyPolling
            | Self::SimulatedWithoutCopies => Some(Profile::current),
            Self::SimulatedOldKernel => Some(Profile::old),
            _ => None,
        }
    }
}

/// A simulated kernel without faults, on one of several networks.
fn simulation(seed: u64, profile: Profile, link: fn(Link) -> Link) -> Rc<Sim> {
    let link = link(match seed {
        0 => Link::default(),
        seed => Link::any(&mut Random::new(seed)),
    });
    Sim::builder(seed).profile(profile).link(link).build()
}

/// Checks that nothing is left of a runtime that has ended.
pub(crate) fn nothing_left(seed: u64, sim: &Sim) {
    sim.check();
    assert_eq!(sim.leftovers(), [""; 0], "seed {seed}");
    assert_eq!((sim.open_descriptors(), sim.buffers_held()), (0, 0), "seed {seed}");
}
