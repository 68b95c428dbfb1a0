//! Datagrams under all faults and on lossy links, with many seeds. Every datagram that arrives was
//! sent, and is whole. On Unix sockets, each arrives once and in order. Nothing is left open,
//! including passed descriptors.
#![allow(unsafe_code)]

use crate::common::datagram_stress::{DatagramStress, Tally};
use crate::common::messages::{header_of, recv_msg_multi};
use crate::common::*;
use annulus_kernel::*;
use annulus_sim::{Fault, Faults, Link, Sim};
use std::rc::Rc;

const SEED_COUNT: u64 = 100;

fn run(sim: Rc<Sim>, seed: u64) -> (Rc<Sim>, Tally) {
    let (mut host, tally) = DatagramStress::new(Host::over(sim.clone(), 8, 16), seed).run(&sim);
    assert_eq!(host.drain_until_quiet(), []);
    assert_eq!(sim.sockets(), 0);
    drop(host);
    assert_eq!(sim.leftovers(), [""; 0]);
    (sim, tally)
}

#[test]
fn no_seed_invents_a_datagram_or_leaves_anything_open() {
    each_seed(
        SEED_COUNT,
        "cargo test -p annulus-sim --test suite datagram_stress::no_seed",
        |seed| {
            run(Sim::builder(seed).chaos().build(), seed);
        },
    );
}

#[test]
fn same_seed_repeats_the_run() {
    let hash = |seed| run(Sim::builder(seed).chaos().build(), seed).0.trace_hash();
    assert!((0..20).all(|seed| hash(seed) == hash(seed)));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn link_loses_duplicates_and_reorders_as_configured() {
    let tally = |link: Link| run(Sim::builder(5).link(link).build(), 5).1;
    let roomy = Link { receive_buffer: 1 << 24, ..Link::default() };
    let good = tally(roomy);
    assert_eq!((good.received, good.twice, good.late), (good.sent, 0, 0), "{good:?}");
    let lossy = tally(Link { loss: 500, ..roomy });
    assert!(lossy.received < lossy.sent && lossy.received > 0, "{lossy:?}");
    let doubling = tally(Link { duplication: 500, ..roomy });
    assert!(
        doubling.twice > 0 && doubling.received == doubling.sent + doubling.twice,
        "{doubling:?}"
    );
    let shuffling = tally(Link { reordering: 500, ..roomy });
    assert!(shuffling.late > 0 && shuffling.received == shuffling.sent, "{shuffling:?}");
}

#[test]
fn segmented_send_fails_under_its_fault() {
    let faults = Faults::none().with(Fault::SegmentsRefused, 1000);
    let (mut host, sim) = Host::simulated(Sim::builder(1).faults(faults));
    let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
    let cut = [Control::SegmentSize(10)];
    assert_eq!(host.send_msg(a, Some(&to), &[1; 30], &cut), errno(rustix::io::Errno::IO));
    assert_eq!(host.send_msg(a, Some(&to), &[1; 30], &[]), 30, "an unsegmented send failed");
    assert_eq!(host.recv(b).unwrap().len(), 30);
    assert_eq!(sim.counts().faults, 1);
}

#[test]
fn write_to_buffer_of_waiting_recvmsg_panics() {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (fd, _) = host.udp(Domain::Inet);
    let buffers = ProvidedBuffers::new(&host.ring, 1, 64);
    let header = header_of(MessageLayout { name: 16, control: 0 });
    host.push(1, recv_msg_multi(fd, &header, 0));
    host.reap();
    // SAFETY: the memory is mapped. The write breaks the contract on purpose; no other thread
    // accesses it.
    unsafe { buffers.address(0).write(0) };
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.check()));
    assert!(seen.is_err());
    std::mem::forget(host);
}
