//! Disturbances of a network, at random.

use super::network::Network;
use super::orders::Order;
use super::seeds;
use super::{Link, Random};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

/// What happens to a pair of hosts.
///
/// ```
/// use annulus::sim::{Disturbance, Disturbances};
///
/// let gentle = Disturbances { kinds: &[Disturbance::Delay, Disturbance::Slow], ..Disturbances::default() };
/// assert!(gentle.kinds.iter().all(|kind| Disturbance::ALL.contains(kind)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disturbance {
    /// Nothing arrives, for some time.
    Partition,
    /// All connections between them are reset.
    Reset,
    /// Up to 500 ms more latency, and as much jitter, for some time.
    Delay,
    /// Between 100 and 10,000 bytes a second, for some time.
    Slow,
    /// One of them loses its power, if it is no client, and starts again after some time. Its peers' connections are half-open.
    Crash,
}

impl Disturbance {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Partition, Self::Reset, Self::Delay, Self::Slow, Self::Crash];
}

/// What disturbs a network, and how often: for [`Network::disturb`].
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
    /// The kinds; all by default.
    pub kinds: &'static [Disturbance],
    /// How long it is from one to the next: 10 ms to 5 s by default.
    pub pause: Range<Duration>,
    /// How long one lasts that does not end by itself: 1 ms to 20 s by default.
    pub length: Range<Duration>,
}

impl Default for Disturbances {
    fn default() -> Self {
        Self {
            kinds: Disturbance::ALL,
            pause: Duration::from_millis(10)..Duration::from_secs(5),
            length: Duration::from_millis(1)..Duration::from_secs(20),
        }
    }
}

/// The disturbances of a run.
pub(super) struct Chaos {
    plan: Disturbances,
    next: Duration,
    /// What ends those that last, and when.
    ends: Vec<(Duration, Order)>,
}

impl Chaos {
    /// # Errors
    /// If there are no kinds, or a range is empty.
    pub(super) fn new(plan: Disturbances, now: Duration, random: &mut Random) -> io::Result<Self> {
        if plan.kinds.is_empty() || plan.pause.is_empty() || plan.length.is_empty() {
            let text = format!(
                "{plan:?} has no kind, or an empty range; give at least one kind, and times from a shorter to a longer one"
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let next = now + between(&plan.pause, random);
        Ok(Self { plan, next, ends: Vec::new() })
    }

    /// When the next one begins or ends.
    pub(super) fn next(&self) -> Duration {
        self.ends.iter().map(|(at, _)| *at).fold(self.next, Duration::min)
    }

    /// What ends now, in the order of time.
    fn take_ended(&mut self, now: Duration) -> Vec<Order> {
        self.ends.sort_by_key(|(at, _)| *at);
        let ended = self.ends.partition_point(|(at, _)| *at <= now);
        self.ends.drain(..ended).map(|(_, order)| order).collect()
    }

    /// Whether one is to begin; if so, when it ends.
    fn begin(&mut self, now: Duration, random: &mut Random) -> Option<Duration> {
        if now < self.next {
            return None;
        }
        self.next = now + between(&self.plan.pause, random).max(Duration::from_nanos(1));
        Some(now + between(&self.plan.length, random))
    }
}

impl Network {
    /// Begins and ends the disturbances that are due.
    pub(super) fn disturb_now(&self) -> io::Result<()> {
        let Some(mut chaos) = self.shared.chaos.take() else { return Ok(()) };
        let now = self.elapsed();
        for order in chaos.take_ended(now) {
            self.tell(&order);
            self.carry_out(order)?;
        }
        let until = chaos.begin(now, &mut self.shared.random.borrow_mut());
        if let Some(until) = until
            && let Some((order, end)) = self.draw(chaos.plan.kinds)
        {
            self.tell(&order);
            self.carry_out(order)?;
            chaos.ends.extend(end.map(|end| (until, end)));
        }
        *self.shared.chaos.borrow_mut() = Some(chaos);
        Ok(())
    }

    /// Ends all disturbances.
    pub(super) fn calm_down(&self) -> io::Result<()> {
        let chaos = self.shared.chaos.take();
        let ends = chaos.map(|chaos| chaos.ends).unwrap_or_default();
        ends.into_iter().try_for_each(|(_, order)| self.carry_out(order))
    }

    /// A disturbance, and what ends it. None if there is only one host, or it would crash a client.
    fn draw(&self, kinds: &[Disturbance]) -> Option<(Order, Option<Order>)> {
        let hosts = self.shared.hosts.borrow();
        let random = &mut *self.shared.random.borrow_mut();
        let kind = random.pick(kinds);
        let one = random.below(hosts.len() as u64) as usize;
        let other = (one + 1 + random.below(hosts.len().max(2) as u64 - 1) as usize) % hosts.len();
        if kind == Disturbance::Crash {
            let is_possible = hosts[one].is_service() && !hosts[one].is_down;
            return is_possible.then_some((Order::Crash(one), Some(Order::Bounce(one))));
        }
        let (a, b) = (hosts[one].ip, hosts[other].ip);
        if a == b {
            return None;
        }
        Some(match kind {
            Disturbance::Partition => (Order::Partition(a, b), Some(Order::Repair(a, b))),
            Disturbance::Reset => (Order::Reset(a, b), None),
            Disturbance::Delay => (linked(a, b, delayed(random)), Some(Order::Link(a, b, None))),
            Disturbance::Slow | Disturbance::Crash => {
                let bandwidth = random.between(100, 10_000);
                let slow = Link { bandwidth, segment: 512, ..Link::default() };
                (linked(a, b, slow), Some(Order::Link(a, b, None)))
            }
        })
    }

    /// Prints a disturbance, if this run is a replay.
    fn tell(&self, order: &Order) {
        if !seeds::is_replay() {
            return;
        }
        let name = |ip: &IpAddr| self.shared.names.name(*ip);
        let host = |index: &usize| self.shared.hosts.borrow()[*index].name.clone();
        let what = match order {
            Order::Partition(a, b) => format!("{} and {} are separated", name(a), name(b)),
            Order::Repair(a, b) => format!("{} and {} are repaired", name(a), name(b)),
            Order::Reset(a, b) => format!("connections of {} and {} are reset", name(a), name(b)),
            Order::Link(a, b, link) => {
                let link = link.map_or("the usual one".to_owned(), |link| {
                    format!("{:?} + {:?}, {} bytes/s", link.latency, link.jitter, link.bandwidth)
                });
                format!("the link of {} and {} is {link}", name(a), name(b))
            }
            Order::Crash(index) => format!("{} crashes", host(index)),
            Order::Bounce(index) => format!("{} starts again", host(index)),
            Order::Disturb(_) | Order::Calm => return,
        };
        eprintln!("{:?}: {what}", self.elapsed());
    }
}

fn linked(a: IpAddr, b: IpAddr, link: Link) -> Order {
    Order::Link(a, b, Some(link))
}

fn delayed(random: &mut Random) -> Link {
    let [latency, jitter] = [(); 2].map(|()| Duration::from_micros(random.below(500_000)));
    Link { latency, jitter, ..Link::default() }
}

/// A duration of a range that is not empty.
fn between(range: &Range<Duration>, random: &mut Random) -> Duration {
    let width = u64::try_from((range.end - range.start).as_nanos()).unwrap_or(u64::MAX);
    range.start + Duration::from_nanos(random.below(width))
}
