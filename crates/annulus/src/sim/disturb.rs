//! Random disturbances of a network.

use super::devices::DeviceOverlay;
use super::network::Network;
use super::pairs::Overlay;
use super::{Random, seeds};
use annulus_sim::Hosts;
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

/// A kind of disturbance: of a pair of hosts, of one host, or of its disk.
///
/// ```
/// use annulus::sim::{Disturbance, Disturbances};
///
/// let gentle = Disturbances { kinds: &[Disturbance::Delay, Disturbance::Slow], ..Disturbances::default() };
/// assert!(gentle.kinds.iter().all(|kind| Disturbance::ALL.contains(kind)));
/// assert!(!Disturbances::default().kinds.contains(&Disturbance::FailingDisk));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disturbance {
    /// Nothing arrives at either host from the other for some time.
    Partition,
    /// All connections between the two hosts are reset.
    Reset,
    /// Latency and jitter each rise by up to 500 ms for some time.
    Delay,
    /// The bandwidth is limited to between 100 and 10,000 bytes per second for some time.
    Slow,
    /// A host that is not a client ends, and starts again after some time. Its connections are left
    /// half-open at its peers; its disk keeps what was written.
    Crash,
    /// Like a crash, but the host's disk also loses what was not synced, or some of it.
    PowerCut,
    /// The operations of a host's disk take up to 200 ms longer on average for some time, and a few
    /// of them much longer.
    SlowDisk,
    /// Three in ten reads, writes and syncs of a host's disk fail with EIO for some time.
    FailingDisk,
    /// A host's disk has no free space for some time.
    FullDisk,
}

impl Disturbance {
    /// Every kind of disturbance.
    pub const ALL: &'static [Self] = &[
        Self::Partition,
        Self::Reset,
        Self::Delay,
        Self::Slow,
        Self::Crash,
        Self::PowerCut,
        Self::SlowDisk,
        Self::FailingDisk,
        Self::FullDisk,
    ];

    /// The kinds that do not affect disks, which are the default.
    pub const NETWORK: &'static [Self] =
        &[Self::Partition, Self::Reset, Self::Delay, Self::Slow, Self::Crash];
}

/// The kinds of disturbances, how often they begin and how long they last, for
/// [`Network::disturb`].
///
/// ```
/// use annulus::sim::{Disturbance, Disturbances, Network};
/// use std::time::Duration;
///
/// let network = Network::new(3);
/// network.disturb(Disturbances {
///     kinds: &[Disturbance::Partition, Disturbance::Reset],
///     pause: Duration::from_millis(1)..Duration::from_secs(2),
///     ..Disturbances::default()
/// });
/// network.host("idle", async || std::io::Result::Ok(()))?;
/// network.client("sleeper", async {
///     annulus::time::sleep(Duration::from_secs(60)).await;
///     std::io::Result::Ok(())
/// })?;
/// network.run()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Disturbances {
    /// The kinds of disturbances; [`Disturbance::NETWORK`] by default. A program that keeps files
    /// should also survive [`Disturbance::ALL`].
    pub kinds: &'static [Disturbance],
    /// The time between the beginnings of two disturbances: 10 ms to 5 s by default.
    pub pause: Range<Duration>,
    /// The duration of a disturbance: 1 ms to 20 s by default. Resets have no duration.
    pub length: Range<Duration>,
}

impl Default for Disturbances {
    fn default() -> Self {
        Self {
            kinds: Disturbance::NETWORK,
            pause: Duration::from_millis(10)..Duration::from_secs(5),
            length: Duration::from_millis(1)..Duration::from_secs(20),
        }
    }
}

/// The disturbances of a run.
pub(super) struct Chaos {
    plan: Disturbances,
    next: Duration,
    /// Number of disturbances that have begun. The next one gets this number.
    begun: u64,
    /// The disturbances that have not ended yet: when each ends, its number and its effect.
    active: Vec<(Duration, u64, Effect)>,
}

/// The effect of a disturbance, and the hosts that it affects.
#[derive(Clone, Copy, Debug)]
enum Effect {
    Pair(IpAddr, IpAddr, Overlay),
    Reset(IpAddr, IpAddr),
    Device(IpAddr, DeviceOverlay),
    /// Contains the host's index, like `PowerCut`.
    Crash(usize),
    PowerCut(usize),
}

impl Chaos {
    /// # Errors
    /// Returns an error if there are no kinds or a range is empty.
    pub(super) fn new(plan: Disturbances, now: Duration, random: &mut Random) -> io::Result<Self> {
        if plan.kinds.is_empty() || plan.pause.is_empty() || plan.length.is_empty() {
            let text = format!(
                "{plan:?} has no kinds or an empty range; give at least one kind, and ranges from a shorter to a longer time"
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let next = now.saturating_add(between(&plan.pause, random));
        Tally::note(|tally| {
            tally.asked += 1;
            tally.first = tally.first.min(plan.pause.start);
        });
        Ok(Self { plan, next, begun: 0, active: Vec::new() })
    }

    /// Returns when the next disturbance begins or ends.
    pub(super) fn next(&self) -> Duration {
        self.active.iter().map(|(at, ..)| *at).fold(self.next, Duration::min)
    }

    /// Removes the disturbances that have ended by `now` and returns them, earliest first.
    fn take_ended(&mut self, now: Duration) -> Vec<(u64, Effect)> {
        self.active.sort_by_key(|(at, ..)| *at);
        let ended = self.active.partition_point(|(at, ..)| *at <= now);
        self.active.drain(..ended).map(|(_, number, effect)| (number, effect)).collect()
    }

    /// Returns when a disturbance that begins now will end, or `None` if none is due.
    fn begin(&mut self, now: Duration, random: &mut Random) -> Option<Duration> {
        if now < self.next {
            return None;
        }
        let pause = between(&self.plan.pause, random).max(Duration::from_nanos(1));
        self.next = now.saturating_add(pause);
        Some(now.saturating_add(between(&self.plan.length, random)))
    }
}

impl Network {
    /// Begins and ends the disturbances that are due.
    pub(super) fn disturb_now(&self) {
        let Some(mut chaos) = self.shared.chaos.take() else { return };
        let now = self.elapsed();
        for (number, effect) in chaos.take_ended(now) {
            self.report(|| self.end_text(effect));
            self.end_effect(number, effect);
        }
        let until = chaos.begin(now, &mut self.shared.random.borrow_mut());
        if let Some(until) = until {
            match self.draw(chaos.plan.kinds) {
                Some(effect) => self.begin_until(&mut chaos, until, effect),
                None => Tally::note(|tally| tally.impossible += 1),
            }
        }
        *self.shared.chaos.borrow_mut() = Some(chaos);
    }

    fn begin_until(&self, chaos: &mut Chaos, until: Duration, effect: Effect) {
        self.report(|| self.begin_text(effect));
        Tally::note(|tally| tally.begun += 1);
        let number = chaos.begun;
        chaos.begun += 1;
        self.begin_effect(number, effect);
        if !matches!(effect, Effect::Reset(..)) {
            chaos.active.push((until, number, effect));
        }
    }

    /// Ends all disturbances.
    pub(super) fn calm_down(&self) {
        let chaos = self.shared.chaos.take();
        let active = chaos.map(|chaos| chaos.active).unwrap_or_default();
        active.into_iter().for_each(|(_, number, effect)| self.end_effect(number, effect));
    }

    fn begin_effect(&self, number: u64, effect: Effect) {
        let sim = &self.shared.sim;
        match effect {
            Effect::Pair(a, b, overlay) => {
                self.shared.pairs.borrow_mut().disturb(sim, (a, b), number, overlay);
            }
            Effect::Reset(a, b) => sim.reset(a, b),
            Effect::Device(host, overlay) => {
                self.shared.devices.borrow_mut().disturb(sim, host, number, overlay);
            }
            Effect::Crash(index) => self.crash_now(index, Some(number)),
            Effect::PowerCut(index) => self.cut_power_now(index, Some(number)),
        }
    }

    /// Ends the effect of a disturbance. Changes that a program has made in the meantime remain.
    fn end_effect(&self, number: u64, effect: Effect) {
        match effect {
            Effect::Pair(..) => self.shared.pairs.borrow_mut().calm(&self.shared.sim, number),
            Effect::Device(..) => self.shared.devices.borrow_mut().calm(&self.shared.sim, number),
            Effect::Reset(..) => {}
            Effect::Crash(index) | Effect::PowerCut(index) => {
                if self.shared.hosts.borrow()[index].down_by == Some(number) {
                    self.bounce_now(index);
                }
            }
        }
    }

    /// Draws a disturbance. Returns `None` if it needs a second host and none exists, or if it
    /// would crash a client or a host that is down.
    fn draw(&self, kinds: &[Disturbance]) -> Option<Effect> {
        let hosts = self.shared.hosts.borrow();
        let random = &mut *self.shared.random.borrow_mut();
        let kind = random.pick(kinds);
        let one = random.below(hosts.len() as u64) as usize;
        let other = (one + 1 + random.below(hosts.len().max(2) as u64 - 1) as usize) % hosts.len();
        let can_crash = hosts[one].is_service && !hosts[one].is_down;
        let (a, b) = (hosts[one].ip, hosts[other].ip);
        let effect = match kind {
            Disturbance::Crash => return can_crash.then_some(Effect::Crash(one)),
            Disturbance::PowerCut => return can_crash.then_some(Effect::PowerCut(one)),
            Disturbance::SlowDisk => Effect::Device(a, slow_device(random)),
            Disturbance::FailingDisk => Effect::Device(a, DeviceOverlay::Failing),
            Disturbance::FullDisk => Effect::Device(a, DeviceOverlay::Full),
            _ if one == other => return None,
            Disturbance::Partition => Effect::Pair(a, b, Overlay::Cut),
            Disturbance::Reset => Effect::Reset(a, b),
            Disturbance::Delay => Effect::Pair(a, b, delay(random)),
            Disturbance::Slow => Effect::Pair(a, b, slow(random)),
        };
        Some(effect)
    }

    /// Prints a description of a disturbance if this run is a replay.
    fn report(&self, what: impl FnOnce() -> String) {
        if seeds::is_replay() {
            eprintln!("{:?}: {}", self.elapsed(), what());
        }
    }

    fn begin_text(&self, effect: Effect) -> String {
        let pair =
            |a, b| format!("{} and {}", self.shared.names.name(a), self.shared.names.name(b));
        match effect {
            Effect::Pair(a, b, Overlay::Cut) => format!("{} are separated", pair(a, b)),
            Effect::Pair(a, b, Overlay::Delay { latency, jitter }) => {
                format!("{} are {latency:?} + {jitter:?} farther apart", pair(a, b))
            }
            Effect::Pair(a, b, Overlay::Slow(bandwidth)) => {
                format!("the link of {} has {bandwidth} bytes/s", pair(a, b))
            }
            Effect::Reset(a, b) => format!("connections of {} are reset", pair(a, b)),
            Effect::Device(host, overlay) => {
                let name = self.shared.names.name(host);
                match overlay {
                    DeviceOverlay::Slow(mean) => format!("the disk of {name} is {mean:?} slower"),
                    DeviceOverlay::Failing => format!("the disk of {name} is failing"),
                    DeviceOverlay::Full => format!("the disk of {name} is full"),
                }
            }
            Effect::Crash(index) => format!("{} crashes", self.name(index)),
            Effect::PowerCut(index) => format!("{} loses its power", self.name(index)),
        }
    }

    fn end_text(&self, effect: Effect) -> String {
        format!("ended: {}", self.begin_text(effect))
    }
}

fn delay(random: &mut Random) -> Overlay {
    let [latency, jitter] = [(); 2].map(|()| Duration::from_micros(random.below(500_000)));
    Overlay::Delay { latency, jitter }
}

fn slow_device(random: &mut Random) -> DeviceOverlay {
    DeviceOverlay::Slow(Duration::from_micros(random.between(1, 200_000)))
}

fn slow(random: &mut Random) -> Overlay {
    Overlay::Slow(random.between(100, 10_000))
}

/// Returns a random duration from a range that is not empty.
fn between(range: &Range<Duration>, random: &mut Random) -> Duration {
    let width = u64::try_from((range.end - range.start).as_nanos()).unwrap_or(u64::MAX);
    range.start.saturating_add(Duration::from_nanos(random.below(width)))
}

thread_local! {
    static TALLY: Cell<Tally> = const { Cell::new(Tally::NONE) };
}

/// Counts of the disturbances of one or several runs.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    /// Number of requests for disturbances.
    pub(super) asked: u64,
    /// The shortest pause that was requested.
    pub(super) first: Duration,
    /// Number of disturbances that have begun.
    pub(super) begun: u64,
    /// Number of drawn disturbances that were impossible with the given hosts.
    pub(super) impossible: u64,
    /// The virtual time that the longest run took.
    pub(super) longest: Duration,
}

impl Tally {
    const NONE: Self =
        Self { asked: 0, first: Duration::MAX, begun: 0, impossible: 0, longest: Duration::ZERO };

    /// Runs a closure. Returns its value and the tally of this thread's networks during that time.
    pub(super) fn of<T>(run: impl FnOnce() -> T) -> (T, Self) {
        let outer = TALLY.replace(Self::NONE);
        let value = run();
        let inner = TALLY.get();
        TALLY.set(outer.and(inner));
        (value, inner)
    }

    pub(super) fn note(change: impl FnOnce(&mut Self)) {
        let mut tally = TALLY.get();
        change(&mut tally);
        TALLY.set(tally);
    }

    /// Returns true if disturbances were requested and none has begun.
    pub(super) fn has_none_begun(&self) -> bool {
        self.asked > 0 && self.begun == 0
    }

    /// Returns a remedy for disturbances that [never begin](Self::has_none_begun).
    pub(super) fn remedy(&self) -> String {
        let Self { asked, first, impossible, longest, .. } = self;
        if *impossible > 0 {
            return format!(
                "all {impossible} drawn disturbances were impossible, because they need a second host or would crash a client or a host \
                 that is down; add hosts, or choose other `Disturbances::kinds`"
            );
        }
        format!(
            "all {asked} runs that requested disturbances ended before the first one, which begins {first:?} after `disturb` at the \
             earliest; the longest run took {longest:?} of virtual time; let the clients do more, or shorten `Disturbances::pause`"
        )
    }

    fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            first: self.first.min(other.first),
            begun: self.begun + other.begun,
            impossible: self.impossible + other.impossible,
            longest: self.longest.max(other.longest),
        }
    }
}
