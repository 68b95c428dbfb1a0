//! Pairs of hosts: the program's settings for the network between them and, kept apart, the
//! disturbances of the pair.

use super::{Link, Sim};
use annulus_sim::Hosts;
use std::net::IpAddr;
use std::time::Duration;

/// The pairs of hosts that have had a setting or a disturbance.
#[derive(Default)]
pub(super) struct Pairs(Vec<Pair>);

/// Two hosts and the state of the network between them.
struct Pair {
    /// The addresses, the lower one first.
    ends: (IpAddr, IpAddr),
    /// Whether a program has separated the hosts.
    is_cut: bool,
    /// The link that a program has set between the hosts.
    link: Option<Link>,
    /// The disturbances of the pair, by their numbers.
    disturbances: Vec<(u64, Overlay)>,
}

/// The effect of a disturbance on a pair, on top of the program's settings.
#[derive(Clone, Copy, Debug)]
pub(super) enum Overlay {
    Cut,
    /// Adds to the latency and the jitter of each direction.
    Delay {
        latency: Duration,
        jitter: Duration,
    },
    /// Limits the bandwidth to this many bytes per second.
    Slow(u64),
}

impl Pairs {
    /// Separates two hosts, or ends the separation.
    pub(super) fn cut(&mut self, sim: &Sim, a: IpAddr, b: IpAddr, is_cut: bool) {
        let pair = self.pair(a, b);
        pair.is_cut = is_cut;
        pair.apply_cut(sim);
    }

    /// Sets the link between two hosts; `None` restores the network's link.
    pub(super) fn link(&mut self, sim: &Sim, a: IpAddr, b: IpAddr, link: Option<Link>) {
        let pair = self.pair(a, b);
        pair.link = link;
        pair.apply_link(sim);
    }

    /// Begins a disturbance.
    pub(super) fn disturb(
        &mut self,
        sim: &Sim,
        ends: (IpAddr, IpAddr),
        number: u64,
        what: Overlay,
    ) {
        let pair = self.pair(ends.0, ends.1);
        pair.disturbances.push((number, what));
        pair.apply(sim, what);
    }

    /// Ends a disturbance and leaves everything else as it is.
    pub(super) fn calm(&mut self, sim: &Sim, number: u64) {
        for pair in &mut self.0 {
            let Some(at) = pair.disturbances.iter().position(|(other, _)| *other == number) else {
                continue;
            };
            let (_, what) = pair.disturbances.remove(at);
            pair.apply(sim, what);
        }
    }

    fn pair(&mut self, a: IpAddr, b: IpAddr) -> &mut Pair {
        let ends = (a.min(b), a.max(b));
        let at = self.0.iter().position(|pair| pair.ends == ends).unwrap_or_else(|| {
            self.0.push(Pair { ends, is_cut: false, link: None, disturbances: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

impl Pair {
    /// Passes the partition or the link to the kernel, whichever `what` affects.
    fn apply(&self, sim: &Sim, what: Overlay) {
        match what {
            Overlay::Cut => self.apply_cut(sim),
            Overlay::Delay { .. } | Overlay::Slow(_) => self.apply_link(sim),
        }
    }

    fn apply_cut(&self, sim: &Sim) {
        let (a, b) = self.ends;
        let is_disturbed = self.disturbances.iter().any(|(_, what)| matches!(what, Overlay::Cut));
        if self.is_cut || is_disturbed { sim.partition(a, b) } else { sim.repair(a, b) }
    }

    fn apply_link(&self, sim: &Sim) {
        let overlays = self.disturbances.iter().filter(|(_, what)| !matches!(what, Overlay::Cut));
        let own = self.link.unwrap_or_else(|| sim.usual_link());
        let disturbed = overlays.clone().fold(own, |link, (_, what)| what.over(link));
        let is_own = self.link.is_some() || overlays.count() > 0;
        sim.set_link(self.ends.0, self.ends.1, is_own.then_some(disturbed));
    }
}

impl Overlay {
    /// Returns the link with this disturbance on top.
    fn over(self, link: Link) -> Link {
        match self {
            Self::Cut => link,
            Self::Delay { latency, jitter } => {
                let latency = link.latency.saturating_add(latency);
                Link { latency, jitter: link.jitter.saturating_add(jitter), ..link }
            }
            Self::Slow(bandwidth) => Link {
                bandwidth: if link.bandwidth == 0 {
                    bandwidth
                } else {
                    link.bandwidth.min(bandwidth)
                },
                ..link
            },
        }
    }
}
