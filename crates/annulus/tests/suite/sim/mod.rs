//! Programs on the simulated kernel: a mixed workload under faults with any number of seeds, and
//! the errors that a user of `annulus::sim` sees.
//!
//! `chaos` and `cancels` show invariant 1. The simulated kernel seals the memory that an operation
//! refers to, and panics if it changes before the terminal completion, whatever is dropped,
//! cancelled or ended in the meantime. `one_seed_is_one_run` shows invariant 12: two runs of a seed
//! would differ if they used the machine's clock or another random generator.
//!
//! `ANNULUS_SIM_SEEDS=N` runs the seeds 0 to N-1 (20 by default), and a tenth of them twice.
//! `ANNULUS_SIM_SEED=n` runs only that seed. `ANNULUS_SIM_CANCELS=N` runs until N waits have been
//! dropped. A failure prints the command that replays it.

mod buffers;
mod datagrams;
mod deadlocks;
mod faulty;
mod files;
use crate::common::foreign;
mod latch;
mod partitions;
mod plan;
mod reader;
mod run;
pub(crate) mod seeds;
mod setup;
mod slow_readers;
mod workload;
mod writer;

use plan::Plan;
use seeds::{Totals, number};

#[test]
fn chaos() {
    run_seeds("sim::chaos", Plan::of);
}

#[test]
fn chaos_without_a_ring() {
    run_seeds("sim::chaos_without_a_ring", |seed| Plan::of(seed).without_ring());
}

fn run_seeds(test: &'static str, plan: fn(u64) -> Plan) {
    let totals = seeds::each(test, 0..number("ANNULUS_SIM_SEEDS", 20), |seed, totals| {
        workload::run(&plan(seed), totals)
    });
    let counts = [totals.bytes, totals.datagrams, totals.faults, totals.panics];
    assert!(seeds::only_one() || !counts.contains(&0), "{totals:?}");
}

#[test]
fn cancels() {
    let wanted = number("ANNULUS_SIM_CANCELS", 20_000);
    let mut totals = Totals::default();
    let mut first = 0;
    while totals.cancels < wanted {
        totals += seeds::each("sim::cancels", first..first + 20, |seed, totals| {
            workload::run(&Plan::of(seed).with_many_cancels(), totals)
        });
        first += 20;
        if seeds::only_one() {
            return;
        }
    }
    println!("cancels: {}", totals.cancels);
}

#[test]
fn one_seed_is_one_run() {
    let count = number("ANNULUS_SIM_SEEDS", 20) / 10;
    seeds::each("sim::one_seed_is_one_run", 0..count, |seed, totals| {
        let mut run_both = |seed| {
            let plan = Plan::of(seed);
            let with_ring = workload::run(&plan, totals);
            [with_ring, workload::run(&plan.without_ring(), totals)]
        };
        let (first, second, other) = (run_both(seed), run_both(seed), run_both(seed + 1));
        assert_eq!(first, second, "two runs of one seed differ");
        assert!(first[0] != other[0] && first[1] != other[1], "two seeds gave the same run");
        first[0]
    });
}
