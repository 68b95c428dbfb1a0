//! The verbs that are one command or a list of parts. Each returns the steps that were skipped.

use crate::part::{self, Part};
use crate::step::{Failure, Outcome, Step};
use crate::{
    advisories, api, check, compat, features, fuzz, instructions, kernels, package, peers,
    sanitizers, static_program,
};

/// The rest of what CI runs, quick parts first.
const MORE: [Part; 10] = [
    Part::required("build ahead", instructions::build_ahead),
    Part::required("features", features::none_and_all),
    Part::wanted("msrv", features::msrv),
    Part::required("package", package::unbuilt).leaving(&["package"]),
    Part::required("api", api::check),
    Part::wanted("peers", peers::quick).leaving(&["peers", "release"]),
    Part::wanted("instructions", || instructions::run(&[])).leaving(&["dist"]),
    Part::required("test", test),
    Part::wanted("compat", compat::run),
    Part::wanted("asan", sanitizers::asan_quick).leaving(&["asan"]),
];

/// Proofs that take long and seldom find what the others do not.
const WEEKLY: [Part; 17] = [
    Part::wanted("advisories", advisories::all),
    Part::required("features", features::all_targets),
    Part::wanted("msrv", features::msrv_of_all),
    Part::wanted("peers", || peers::run(&[])).leaving(&["peers", "release"]),
    Part::required("package", package::all).leaving(&["package", "compat"]),
    Part::wanted("static", || static_program::run(&[])).leaving(&["x86_64-unknown-linux-musl"]),
    Part::wanted("miri", sanitizers::miri).leaving(&["miri"]),
    Part::wanted("fuzz", fuzz::all).leaving(&["fuzz"]),
    Part::wanted("kernels", kernels::quick).leaving(&["kernels", "kernel-images"]),
    Part::wanted("asan", sanitizers::asan).leaving(&["asan"]),
    Part::required("compare", compare).leaving(&["release"]),
    Part::required("seeds", || sim(&["10000".into()])).leaving(&["release"]),
    Part::required("compat-seeds", compat::seeds).leaving(&["release"]),
    Part::required("resets", || many("resets", "ANNULUS_RESETS", 1_000_000)).leaving(&["release"]),
    Part::required("file-model", || many("files::model", "ANNULUS_FILE_SEQUENCES", 4000))
        .leaving(&["release"]),
    Part::required("stream-model", || many("stream_model", "ANNULUS_STREAM_SEQUENCES", 34_000))
        .leaving(&["release"]),
    Part::required("datagram-model", || {
        many("datagram_model", "ANNULUS_DATAGRAM_SEQUENCES", 34_000)
    })
    .leaving(&["release"]),
];

/// All that a change must pass.
pub(crate) fn ci() -> Outcome {
    let parts: Vec<Part> = check::PARTS.into_iter().chain(MORE).collect();
    part::run(&parts)
}

/// The checks that take too long for every change.
pub(crate) fn weekly() -> Outcome {
    part::run(&WEEKLY)
}

/// Checks that `annulus-compare` and `bench echo` measure the same ratio.
fn compare() -> Outcome {
    let test = "test --release -p annulus-compare -- --ignored --nocapture";
    Step::new("cargo", test).run_tests_once()?;
    Ok(Vec::new())
}

/// A module of the suite of `annulus`, with so many random cases as its variable says.
fn many(module: &str, variable: &str, cases: u32) -> Outcome {
    let test = format!("test --release -p annulus --test suite -- --nocapture {module}::");
    Step::new("cargo", &test).env(variable, &cases.to_string()).run_tests_once()?;
    Ok(Vec::new())
}

/// The test command of the README, and the tests of a feature that changes the hot path, which the other tests leave out.
pub(crate) fn test() -> Outcome {
    Step::new("cargo", "test --workspace --no-fail-fast").run_tests()?;
    Step::new("cargo", "test --workspace --features annulus/tracing --test tracing").run_tests()?;
    Ok(Vec::new())
}

/// The simulated workload with the seeds from 0 on. The test prints how to repeat a failure.
pub(crate) fn sim(arguments: &[String]) -> Outcome {
    let (seeds, surplus) = match arguments {
        [seeds, surplus @ ..] => (seeds.as_str(), surplus.first()),
        [] => ("", None),
    };
    if let Some(extra) = surplus {
        return Err(Failure::Usage(format!("unexpected argument '{extra}': sim takes one number")));
    }
    if seeds.parse::<u64>().is_ok_and(|seeds| seeds > 0) {
        let test = "test --release -p annulus --test suite -- --exact --nocapture sim::chaos sim::chaos_without_a_ring sim::one_seed_is_one_run";
        Step::new("cargo", test).env("ANNULUS_SIM_SEEDS", seeds).run_tests_once()?;
        return Ok(Vec::new());
    }
    let text = format!("'{seeds}' is no number of seeds; give one from 1 on, such as 500");
    Err(Failure::Usage(text))
}
