//! The variables that choose seeds, in a process of their own.

use annulus::sim::check;
use std::process::{Command, Output};

/// Set in the process that runs the test below.
const CHILD: &str = "ANNULUS_TEST_SEEDS_CHILD";

#[test]
fn seeds_run_as_chosen() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    check(3..5, |seed| -> Result<(), String> {
        println!("seed {seed} runs;");
        Ok(())
    });
}

/// What [`seeds_run_as_chosen`] prints and does with a variable.
fn with(variable: &str, value: &str) -> Output {
    let mut child = Command::new(std::env::current_exe().expect("this test"));
    child.args(["seeds::seeds_run_as_chosen", "--exact", "--nocapture"]).env(CHILD, "1");
    child.env_remove("ANNULUS_SIM_SEED").env_remove("ANNULUS_SIM_SEEDS").env(variable, value);
    child.output().expect("it runs")
}

fn ran(output: &Output) -> Vec<u64> {
    let text = String::from_utf8_lossy(&output.stdout);
    let seeds = text.split("seed ").skip(1);
    seeds.filter_map(|rest| rest.split_once(" runs;")?.0.parse().ok()).collect()
}

#[test]
fn variables_choose_any_seed_and_any_number_of_them() {
    assert_eq!(ran(&with("ANNULUS_SIM_OTHER", "1")), [3, 4]);
    assert_eq!(ran(&with("ANNULUS_SIM_SEED", "17")), [17]);
    let last = u64::MAX.to_string();
    assert_eq!(ran(&with("ANNULUS_SIM_SEED", &last)), [u64::MAX]);
    assert_eq!(ran(&with("ANNULUS_SIM_SEEDS", "3")), [3, 4, 5]);
}

#[test]
fn no_seeds_and_no_numbers_are_refused_with_the_remedy() {
    for (variable, value, remedy) in [
        ("ANNULUS_SIM_SEEDS", "0", "ANNULUS_SIM_SEEDS=0 runs nothing; give the number of seeds"),
        ("ANNULUS_SIM_SEED", "x", "ANNULUS_SIM_SEED=x is not a number; give one from 0"),
    ] {
        let output = with(variable, value);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(remedy), "{text}");
    }
}
