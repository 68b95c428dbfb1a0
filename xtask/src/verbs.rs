//! The lists of parts, and the verbs that are one command. Each returns the steps that were skipped.

use crate::instructions::InstructionsArgs;
use crate::part::Part;
use crate::step::{Outcome, Step, is_ci};
use crate::{
    advisories, api, book, compat, features, fuzz, instructions, kernels, package, peers, results,
    sanitizers, static_program, style,
};

/// The quick checks that every change must pass, quickest first.
pub(crate) const CHECK_PARTS: &[Part] = &[
    Part::required("style", || style::list(&[])),
    Part::required("format", || Step::new("cargo", "fmt --all --check").run()),
    Part::wanted("licences", advisories::licences),
    Part::required("results", || results::run(false)),
    Part::required("clippy", clippy),
    Part::required("doc", doc),
    Part::wanted("book", book::build),
];

/// The rest of what CI runs, quick parts first.
pub(crate) const CI_PARTS: &[Part] = &[
    Part::required("build ahead", instructions::build_ahead),
    Part::required("features", features::none_and_all),
    Part::wanted("msrv", features::msrv),
    Part::required("package", package::unbuilt).leaving(&["package"]),
    Part::required("api", || api::run(false)),
    Part::wanted("peers", peers::quick).leaving(&["peers", "release"]),
    Part::wanted("instructions", || instructions::run(&InstructionsArgs::default()))
        .leaving(&["dist"]),
    Part::required("test", test),
    Part::wanted("compat", compat::run),
    Part::wanted("asan", sanitizers::asan_quick).leaving(&["asan"]),
];

/// Proofs that take long and seldom find what the others do not.
pub(crate) const WEEKLY_PARTS: &[Part] = &[
    Part::wanted("advisories", advisories::all),
    Part::required("features", features::all_targets),
    Part::wanted("msrv", features::msrv_of_all),
    Part::wanted("peers", || peers::run(&[])).leaving(&["peers", "release"]),
    Part::required("package", package::all).leaving(&["package", "compat"]),
    Part::wanted("static", || static_program::run(false)).leaving(&["x86_64-unknown-linux-musl"]),
    Part::wanted("miri", sanitizers::miri).leaving(&["miri"]),
    // From the kept inputs, a short time is enough.
    Part::wanted("fuzz", || fuzz::run(&[], 10, false)).leaving(&["fuzz"]),
    Part::wanted("kernels", kernels::quick).leaving(&["kernels", "kernel-images"]),
    Part::wanted("asan", sanitizers::asan).leaving(&["asan"]),
    Part::required("compare", compare).leaving(&["release"]),
    Part::required("seeds", || sim(10_000)).leaving(&["release"]),
    Part::required("compat-weekly", compat::weekly).leaving(&["release"]),
    Part::wanted("beside tokio", instructions::beside_tokio).leaving(&["release"]),
    Part::required("models", models).leaving(&["release"]),
    Part::required("console", compat::console).leaving(&["console"]),
];

fn clippy() -> Outcome {
    Step::new("cargo", "clippy --workspace --all-targets -- -D warnings").run()
}

/// rustdoc of the workspace, whose pages of `annulus` are part of the book.
pub(crate) fn doc() -> Outcome {
    let step = Step::new("cargo", "doc --workspace --no-deps --all-features");
    step.env("RUSTDOCFLAGS", "-D warnings").run()
}

/// Checks that `annulus-compare` and `bench echo` measure the same ratio, and the texts of the compiler's errors.
fn compare() -> Outcome {
    let test = "test --release -p annulus-compare -- --ignored --nocapture";
    Step::new("cargo", test).run_tests_once()
}

/// The suite of `annulus` against its models, with many random cases each.
fn models() -> Outcome {
    Step::run_each(&["resets", "files::model", "stream_model", "datagram_model"], |module| {
        let test = format!("test --release -p annulus --test suite -- --nocapture {module}::");
        let step = Step::new("cargo", &test).env("ANNULUS_RESETS", "1000000");
        let step = step.env("ANNULUS_FILE_SEQUENCES", "4000");
        let step = step.env("ANNULUS_STREAM_SEQUENCES", "34000");
        step.env("ANNULUS_DATAGRAM_SEQUENCES", "34000")
    })
}

/// The tests of a feature that changes the hot path, which the other tests leave out, and the test command of the README.
pub(crate) fn test() -> Outcome {
    Step::new("cargo", "test --workspace --features annulus/tracing --test tracing").run_tests()?;
    let mut tests = Step::new("cargo", "test --workspace --no-fail-fast");
    if is_ci() {
        tests = tests.start_with_tests(sanitizers::asan_ahead()).start_with_tests(compat::ahead());
    }
    tests.run_tests()
}

/// The simulated workload, and a graceful shutdown, with the seeds from 0 on. A test prints how to repeat a failure.
pub(crate) fn sim(seeds: u64) -> Outcome {
    let shutdown = "network::signals::a_graceful_shutdown_loses_no_line_under_faults";
    let names = ["sim::chaos", "sim::chaos_without_a_ring", "sim::one_seed_is_one_run", shutdown];
    Step::run_each(&names, |name| {
        let test = format!("test --release -p annulus --test suite -- --exact --nocapture {name}");
        Step::new("cargo", &test).env("ANNULUS_SIM_SEEDS", &seeds.to_string())
    })
}
