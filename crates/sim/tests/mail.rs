//! Datagrams under every fault and over bad links, many seeds: what arrives was sent, whole; within the host exactly once
//! and in order; and nothing is left over, passed descriptors included.
#![allow(unsafe_code)]

mod common;

use annulus_kernel::*;
use annulus_sim::{Fault, Faults, Link, Sim};
use common::mail::{recv_msg_multi, room};
use common::office::{Office, Tally};
use common::*;
use std::rc::Rc;

/// Seeds of a run.
const SEEDS: u64 = 100;

fn run(sim: Rc<Sim>, seed: u64) -> (Rc<Sim>, Tally) {
    let (mut host, tally) = Office::new(Host::over(sim.clone(), 8, 16), seed).run(&sim);
    assert_eq!(host.settle(), []);
    assert_eq!(sim.sockets(), 0);
    drop(host);
    assert_eq!(sim.leftovers(), [""; 0]);
    (sim, tally)
}

#[test]
fn no_seed_makes_up_a_datagram_or_leaves_anything() {
    each_seed(SEEDS, "cargo test -p annulus-sim --test mail no_seed", |seed| {
        run(Sim::builder(seed).chaos().build(), seed);
    });
}

#[test]
fn one_seed_is_one_run() {
    let hash = |seed| run(Sim::builder(seed).chaos().build(), seed).0.trace_hash();
    assert!((0..20).all(|seed| hash(seed) == hash(seed)));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn a_good_link_loses_nothing_and_a_bad_one_does_what_it_says() {
    let tally = |link: Link| run(Sim::builder(5).link(link).build(), 5).1;
    let roomy = Link { receive_buffer: 1 << 24, ..Link::default() };
    let good = tally(roomy);
    assert_eq!((good.heard, good.twice, good.late), (good.sent, 0, 0), "{good:?}");
    let lossy = tally(Link { loss: 500, ..roomy });
    assert!(lossy.heard < lossy.sent && lossy.heard > 0, "{lossy:?}");
    let doubling = tally(Link { duplication: 500, ..roomy });
    assert!(doubling.twice > 0 && doubling.heard == doubling.sent + doubling.twice, "{doubling:?}");
    let shuffling = tally(Link { reordering: 500, ..roomy });
    assert!(shuffling.late > 0 && shuffling.heard == shuffling.sent, "{shuffling:?}");
}

#[test]
fn segments_can_be_refused() {
    let faults = Faults::none().with(Fault::SegmentsRefused, 1000);
    let (mut host, sim) = Host::simulated(Sim::builder(1).faults(faults));
    let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
    let cut = [Control::SegmentSize(10)];
    assert_eq!(host.send_msg(a, Some(&to), &[1; 30], &cut), errno(rustix::io::Errno::IO));
    assert_eq!(host.send_msg(a, Some(&to), &[1; 30], &[]), 30, "whole it goes");
    assert_eq!(host.recv(b).unwrap().len(), 30);
    assert_eq!(sim.counts().faults, 1);
}

#[test]
fn a_frame_is_watched_like_any_lent_buffer() {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (fd, _) = host.udp(Domain::Inet);
    let lent = Lent::new(&host.ring, 1, 64);
    let header = room(Layout { name: 16, control: 0 });
    host.push(1, recv_msg_multi(fd, &header, 0));
    host.reap();
    // SAFETY: the test writes where it must not, to its own memory.
    unsafe { lent.address(0).write(0) };
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.check()));
    assert!(seen.is_err());
    std::mem::forget(host);
}
