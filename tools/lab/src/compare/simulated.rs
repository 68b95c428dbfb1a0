//! Comparisons of simulated runs, for which it is known whether they differ.
//!
//! This command prints the figures of ADR 0050: `cargo test --release -p annulus-lab simulated --
//! --nocapture --include-ignored`.

use super::*;
use crate::bench::simulated::{self, MACHINES, Machine, QUIET_MACHINE, scaled_runs};

/// Compares `count` runs of equal contenders with runs of contenders with these costs. Returns how
/// many comparisons find a regression, how many find any difference, and how many of the latter
/// warn.
fn found(costs: &[f64], machine: Machine, count: u64, reference: Option<&str>) -> [u64; 3] {
    let old = simulated::SimulatedRun { costs: &[1.0; 3], cells: 2, rounds: 15 };
    let new = simulated::SimulatedRun { costs, cells: 2, rounds: 15 };
    let (bench, environment) =
        (old.bench(), Environment { debug_build: false, ..Environment::read() });
    let options = Options { reference: reference.map(str::to_owned), ..Options::default() };
    let mut found = [0; 3];
    for seed in 0..count {
        let records = [old.record(machine, 2 * seed), new.record(machine, 2 * seed + 1)];
        let [old, new] = records.each_ref().map(|record| Run {
            bench: &bench,
            record,
            environment: &environment,
        });
        let comparison = compare(old, new, &options, 0).expect("the runs cannot be compared");
        let [is_worse, is_better] =
            [Verdict::Worse, Verdict::Better].map(|kind| comparison.of(kind).next().is_some());
        let is_different = is_worse || is_better;
        found[0] += u64::from(is_worse);
        found[1] += u64::from(is_different);
        found[2] += u64::from(is_different && !comparison.warnings.is_empty());
    }
    found
}

/// Without a reference, a machine that is slower during a whole run cannot be distinguished from
/// slower programs. But then all contenders are slower, which causes a warning.
#[test]
fn equal_runs_differ_in_at_most_five_percent_or_with_a_warning() {
    for (name, machine) in MACHINES {
        let [_, different, warned] = found(&[1.0; 3], machine, scaled_runs(700), None);
        println!(
            "equal runs, {name}: {different} of {}, {warned} with a warning",
            scaled_runs(700)
        );
        let quiet = if machine.drift > 0.0 { different - warned } else { different };
        assert!(quiet <= scaled_runs(700) / 20, "{name}: {different}, {warned} with a warning");
    }
}

#[test]
fn equal_runs_with_a_reference_differ_in_at_most_five_percent() {
    for (name, machine) in MACHINES {
        let [_, different, _] = found(&[1.0; 3], machine, scaled_runs(700), Some("c0"));
        println!("equal runs with a reference, {name}: {different} of {}", scaled_runs(700));
        assert!(different <= scaled_runs(700) / 20, "{name}: {different}");
    }
}

#[test]
fn a_regression_of_ten_percent_is_found() {
    let slower = [1.0, 1.1, 1.0];
    let bursts = Machine { drift: 0.0, ..MACHINES[3].1 };
    let drifts = Machine { drift: 0.01, ..QUIET_MACHINE };
    for (name, machine, reference) in [
        ("quiet", QUIET_MACHINE, None),
        ("bursts", bursts, Some("c0")),
        ("drifts", drifts, Some("c0")),
    ] {
        let [worse, ..] = found(&slower, machine, scaled_runs(350), reference);
        println!("10 % slower, {name}, reference {reference:?}: {worse} of {}", scaled_runs(350));
        assert!(worse >= scaled_runs(350) * 8 / 10, "{name}: {worse}");
    }
}
