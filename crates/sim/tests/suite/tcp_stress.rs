//! TCP under all faults, with many seeds: no byte is lost, duplicated or reordered, and nothing is
//! left open.

use crate::common::tcp_stress::{StressSize, TcpStress};
use crate::common::{Host, each_seed};
use annulus_kernel::{Kernel, Linux};
use annulus_sim::{Fault, Faults, Profile, Sim, SimBuilder};
use std::rc::Rc;

const SEED_COUNT: u64 = 500;

fn small() -> StressSize {
    StressSize { connections: 4, bytes: 6_000, buffers: 8, buffer: 128 }
}

/// Runs a seed, which determines everything: the kernel version, the network, the faults, and the
/// program.
fn stress(seed: u64) -> Rc<Sim> {
    let profile = if seed.is_multiple_of(4) { Profile::old() } else { Profile::current() };
    run(Sim::builder(seed).profile(profile).chaos(), seed)
}

fn run(builder: SimBuilder, seed: u64) -> Rc<Sim> {
    let sim = builder.build();
    let mut host = TcpStress::new(Host::over(sim.clone(), 8, 16), seed, small()).run();
    // Segments in flight between closed sockets still arrive.
    sim.set_faults(Faults::none());
    assert_eq!(host.drain_until_quiet(), []);
    assert_eq!(sim.sockets(), 0);
    drop(host);
    assert_eq!(
        (sim.open_descriptors(), sim.pending_operations()),
        (0, 0),
        "{:#?}",
        sim.leftovers()
    );
    sim
}

#[test]
fn no_seed_loses_a_byte_or_leaves_anything_open() {
    each_seed(SEED_COUNT, "cargo test -p annulus-sim --test suite tcp_stress::no_seed", |seed| {
        drop(stress(seed))
    });
}

#[test]
fn every_fault_occurs() {
    let occurs = |fault: Fault| {
        (0..SEED_COUNT).any(|seed| {
            let faults = Faults::none().with(fault, 100);
            let sim = run(Sim::builder(seed).faults(faults).trace_text(), seed);
            let line = format!("fault {fault:?}");
            sim.trace_lines().iter().any(|text| text.ends_with(&line))
        })
    };
    // A reset loses bytes, segmented sends need datagrams, and edges need epoll, so other tests
    // cover these three faults.
    let others = [Fault::Reset, Fault::SegmentsRefused, Fault::NeedlessEdge];
    let all = Fault::ALL.iter().filter(|fault| !others.contains(fault));
    let idle: Vec<_> = all.filter(|&&fault| !occurs(fault)).collect();
    assert!(idle.is_empty(), "{idle:?} never occurred");
}

#[test]
fn same_seed_repeats_the_run_and_others_differ() {
    let hashes: Vec<u64> = (0..20).map(|seed| stress(seed).trace_hash()).collect();
    let again: Vec<u64> = (0..20).map(|seed| stress(seed).trace_hash()).collect();
    assert_eq!(hashes, again);
    let mut distinct = hashes;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 20);
}

#[test]
fn stress_program_runs_on_linux() {
    let kernel: Rc<dyn Kernel> = Rc::new(Linux);
    for seed in 0..3 {
        drop(TcpStress::new(Host::over(kernel.clone(), 8, 16), seed, small()).run());
    }
}
