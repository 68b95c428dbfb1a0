//! The environment variables that choose seeds, in a child process, and sweeps whose disturbances
//! never occur.

use super::SECOND;
use crate::common::rerun::{self, rerun};
use annulus::sim::{Disturbance, Disturbances, Network, check, find_failure};
use annulus::time::sleep;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::time::Duration;

/// Set in the child process that runs the tests below, each of which is a sweep.
const CHILD: &str = "ANNULUS_TEST_SEEDS_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Fails for seeds from 4.
fn run(seed: u64) -> Result<(), String> {
    println!("seed {seed} runs;");
    if seed < 4 { Ok(()) } else { Err("too large".to_owned()) }
}

#[test]
fn child_that_checks() {
    if is_child() {
        check(3..9, run);
    }
}

#[test]
fn child_that_finds() {
    if is_child() {
        println!("{}", find_failure(3..9, run).expect("no seed failed"));
    }
}

#[test]
fn child_that_passes() {
    if is_child() {
        check(0..2, run);
    }
}

/// Runs a test with a variable set, and returns its output and status.
fn with(mut child: Command, variable: &str, value: impl AsRef<OsStr>) -> Output {
    child.env(CHILD, "1").env("CARGO_PKG_NAME", "bank");
    child.env_remove("ANNULUS_SIM_SEED").env_remove("ANNULUS_SIM_SEEDS").env(variable, value);
    child.output().expect("the test program does not start")
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn ran(output: &Output) -> Vec<u64> {
    let text = text(output);
    let seeds = text.split("seed ").skip(1);
    seeds.filter_map(|rest| rest.split_once(" runs;")?.0.parse().ok()).collect()
}

#[test]
fn variables_choose_a_seed_or_the_number_of_seeds() {
    let ran = |variable, value| ran(&with(rerun!(child_that_passes), variable, value));
    assert_eq!(ran("ANNULUS_SIM_OTHER", "1"), [0, 1]);
    assert_eq!(ran("ANNULUS_SIM_SEED", "17"), [17]);
    let last = u64::MAX.to_string();
    assert_eq!(ran("ANNULUS_SIM_SEED", &last), [u64::MAX]);
    assert_eq!(ran("ANNULUS_SIM_SEEDS", "3"), [0, 1, 2]);
}

#[test]
fn the_printed_command_runs_only_the_failed_seed() {
    for test in [|| rerun!(child_that_checks), || rerun!(child_that_finds)] {
        let failed = with(test(), "ANNULUS_SIM_OTHER", "1");
        let test = test().get_args().next().expect("the command names no test").to_owned();
        assert_eq!(ran(&failed), [3, 4], "{test:?}");
        let text = text(&failed);
        let (_, command) = text.split_once("replay: ").expect("no command to replay");
        let words: Vec<_> = command.lines().next().unwrap().split(' ').collect();
        let [variable, "cargo", "test", "-p", "bank", named, "--", "--exact", "--nocapture"] =
            words[..]
        else {
            panic!("{words:?}")
        };
        let (variable, value) = variable.split_once('=').expect("no variable");
        assert_eq!(test, named);
        let (_, module) = module_path!().split_once("::").expect("the path has no program");
        let function = named.strip_prefix(module).expect("not a test of this module");
        let again = with(rerun::command(&format!("{}{function}", module_path!())), variable, value);
        assert_eq!(ran(&again), [4], "{named}");
        assert_eq!(again.status, failed.status, "{named}");
    }
}

#[test]
fn empty_ranges_and_invalid_numbers_are_refused_with_the_remedy() {
    for (variable, value, remedy) in [
        ("ANNULUS_SIM_SEEDS", &b"0"[..], "SIM_SEEDS=0 runs nothing; give the number of seeds"),
        ("ANNULUS_SIM_SEED", b"x", "ANNULUS_SIM_SEED=x is not a number; give one from 0"),
        ("ANNULUS_SIM_SEED", b"\xff", "ANNULUS_SIM_SEED=\u{fffd} is not a number"),
    ] {
        let output = with(rerun!(child_that_passes), variable, OsStr::from_bytes(value));
        let text = text(&output);
        assert!(!output.status.success() && text.contains(remedy), "{text}");
    }
    if std::env::var_os("ANNULUS_SIM_SEEDS").is_none() {
        let empty = catch_unwind(|| check(7..7, run)).expect_err("a sweep without seeds passed");
        assert_eq!(message(&*empty), "7..7 has no seed; give a range such as 0..1000");
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<String>().expect("the panic has no text")
}

/// Runs two clients, the longer of which takes this long, with disturbances of these kinds. The
/// first disturbance begins after 100 ms or more.
fn disturbed(kind: &'static [Disturbance], took: Duration) -> io::Result<()> {
    let network = Network::new(1);
    for time in [took, took / 2] {
        let name = format!("sleeps for {time:?}");
        network.client(&name, async move {
            sleep(time).await;
            io::Result::Ok(())
        })?;
    }
    let pause = SECOND / 10..SECOND / 5;
    network.disturb(Disturbances { kinds: kind, pause, ..Disturbances::default() });
    network.run()
}

const RESETS: &[Disturbance] = &[Disturbance::Reset];
const CRASHES: &[Disturbance] = &[Disturbance::Crash];

#[test]
fn a_sweep_without_its_requested_disturbances_fails_with_the_reason() {
    for (kind, took, why) in [
        (
            RESETS,
            SECOND / 50,
            "all 3 runs that requested disturbances ended before the first one, which begins 100ms after",
        ),
        (
            CRASHES,
            SECOND,
            "drawn disturbances were impossible, because they need a second host or would crash a client",
        ),
    ] {
        let sweep = AssertUnwindSafe(|| find_failure(0..3, |_| disturbed(kind, took)));
        let panic = catch_unwind(sweep).expect_err("a sweep without disturbances passed");
        let message = message(&*panic);
        assert!(message.starts_with("nothing was disturbed by any of 3 seeds; "), "{message}");
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn one_disturbance_in_many_seeds_is_enough_and_one_seed_needs_none() {
    let times = [SECOND / 50, SECOND / 50, SECOND];
    assert_eq!(find_failure(0..3, |seed| disturbed(RESETS, times[seed as usize])), None);
    assert_eq!(find_failure([7], |_| disturbed(RESETS, SECOND / 50)), None);
    assert_eq!(
        find_failure(0..3, |_| Ok::<_, String>(())),
        None,
        "a sweep without requested disturbances failed"
    );
    // A sweep within a test counts as part of the test.
    let nested = |_| -> io::Result<()> {
        assert_eq!(find_failure(0..2, |_| disturbed(RESETS, SECOND)), None);
        disturbed(RESETS, SECOND / 50)
    };
    assert_eq!(find_failure(0..2, nested), None);
}
