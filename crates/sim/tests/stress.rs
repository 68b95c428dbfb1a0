//! Many seeds, every fault: no byte is lost, doubled or out of place, and nothing is left over.

mod common;

use annulus_ring::{Kernel, Linux};
use annulus_sim::{Profile, Sim};
use common::Host;
use common::mill::{Mill, Size};
use std::rc::Rc;

/// Seeds of a run; `ANNULUS_SIM_SEED` runs that one alone.
const SEEDS: u64 = 400;

fn small() -> Size {
    Size { connections: 4, bytes: 6_000, buffers: 8, buffer: 128 }
}

/// Everything about a run follows from its seed: the kernel's age, the network, the faults, the program.
fn mill(seed: u64) -> Rc<Sim> {
    let profile = if seed.is_multiple_of(4) { Profile::old() } else { Profile::current() };
    let sim = Sim::builder(seed).profile(profile).chaos().build();
    let host = Host::over(sim.clone(), 8, 16);
    drop(Mill::new(host, seed, small()).run());
    assert_eq!((sim.open_descriptors(), sim.pending_operations()), (0, 0), "{:#?}", sim.leftovers());
    sim
}

#[test]
fn no_seed_loses_a_byte_or_leaves_anything() {
    if let Some(seed) = std::env::var("ANNULUS_SIM_SEED").ok().and_then(|seed| seed.parse().ok()) {
        mill(seed);
        return;
    }
    for seed in 0..SEEDS {
        let run = std::panic::catch_unwind(|| mill(seed));
        let command = "cargo test -p annulus-sim --test stress no_seed";
        run.unwrap_or_else(|_| panic!("replay with: ANNULUS_SIM_SEED={seed} {command}"));
    }
}

#[test]
fn one_seed_is_one_run_and_another_seed_another() {
    let hashes: Vec<u64> = (0..20).map(|seed| mill(seed).trace_hash()).collect();
    let again: Vec<u64> = (0..20).map(|seed| mill(seed).trace_hash()).collect();
    assert_eq!(hashes, again);
    let mut distinct = hashes;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 20);
}

#[test]
fn the_same_program_runs_over_linux() {
    let kernel: Rc<dyn Kernel> = Rc::new(Linux);
    for seed in 0..3 {
        drop(Mill::new(Host::over(kernel.clone(), 8, 16), seed, small()).run());
    }
}
