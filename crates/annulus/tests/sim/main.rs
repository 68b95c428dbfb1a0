//! Programs on the simulated kernel: a mixed workload under faults for as many seeds as one likes, and what a user of
//! `annulus::sim` gets to see when things go wrong.
//!
//! `ANNULUS_SIM_SEEDS=N` runs the seeds 0 to N-1 (500 without it) and a tenth of them twice, `ANNULUS_SIM_SEED=n` runs
//! only that one, `ANNULUS_SIM_CANCELS=N` counts to so many cancels. A failure prints the command that replays it.

mod buffers;
mod direct;
mod ends;
mod faulty;
mod files;
#[path = "../common/foreign.rs"]
mod foreign;
mod gate;
mod letters;
mod pen;
mod plan;
mod reader;
mod scene;
mod seeds;
mod setup;
mod talk;

use plan::Plan;
use seeds::{Totals, number};

#[test]
fn chaos() {
    let totals = seeds::each("chaos", 0..number("ANNULUS_SIM_SEEDS", 500), |seed, totals| {
        talk::run(&Plan::of(seed), totals)
    });
    let met = [totals.bytes, totals.letters, totals.faults, totals.panics];
    assert!(seeds::only_one() || !met.contains(&0), "{totals:?}");
}

#[test]
fn cancels() {
    let wanted = number("ANNULUS_SIM_CANCELS", 20_000);
    let mut totals = Totals::default();
    let mut first = 0;
    while totals.cancels < wanted {
        totals += seeds::each("cancels", first..first + 20, |seed, totals| {
            talk::run(&Plan::of(seed).impatient(), totals)
        });
        first += 20;
        if seeds::only_one() {
            return;
        }
    }
    println!("cancels in all: {}", totals.cancels);
}

#[test]
fn one_seed_is_one_run() {
    let some = number("ANNULUS_SIM_SEEDS", 500) / 10;
    seeds::each("one_seed_is_one_run", 0..some, |seed, totals| {
        let first = talk::run(&Plan::of(seed), totals);
        let second = talk::run(&Plan::of(seed), totals);
        assert_eq!(first, second, "two runs of one seed differ");
        assert_ne!(first, talk::run(&Plan::of(seed + 1), totals), "two seeds are one run");
        first
    });
}
