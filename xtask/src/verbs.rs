//! The lists of parts, and the verbs that only run cargo.

use crate::instructions::InstructionsArgs;
use crate::part::Part;
use crate::step::{Outcome, Step, is_ci};
use crate::{
    advisories, api, arena, book, compat, features, fuzz, instructions, kernels, locks, package,
    peers, results, sanitizers, static_program, style,
};

/// The quick checks that every change must pass.
pub(crate) const CHECK_PARTS: &[Part] = &[
    Part::required("style", || style::list(&[])),
    Part::required("format", || Step::new("cargo", "fmt --all --check").run()),
    Part::wanted("licences", advisories::licences),
    Part::required("results", || results::run(false)),
    Part::required("clippy", clippy),
    Part::required("doc", doc),
    Part::wanted("book", book::build),
];

/// The parts that CI runs after [`CHECK_PARTS`].
pub(crate) const CI_PARTS: &[Part] = &[
    Part::required("build ahead", instructions::build_ahead),
    Part::required("features", features::none_and_all),
    Part::wanted("msrv", features::msrv),
    Part::wanted("lock files", locks::run),
    Part::required("package", package::unbuilt).leaving(&["package"]),
    Part::required("api", || api::run(false)),
    Part::wanted("peers", peers::quick).leaving(&["peers", "release"]),
    Part::wanted("instructions", || instructions::run(&InstructionsArgs::default()))
        .leaving(&["dist"]),
    Part::required("test", test),
    Part::wanted("compat", compat::run),
    Part::wanted("arena", arena::run),
    Part::wanted("asan", sanitizers::asan_quick).leaving(&["asan"]),
];

/// The slow checks, which rarely find what the other parts miss.
pub(crate) const WEEKLY_PARTS: &[Part] = &[
    Part::wanted("advisories", advisories::all),
    Part::required("features", features::all_targets),
    Part::wanted("msrv", features::msrv_of_all),
    Part::wanted("peers", || peers::run(&[])).leaving(&["peers", "release"]),
    Part::required("package", package::all).leaving(&["package", "compat"]),
    Part::wanted("static", || static_program::run(false)).leaving(&["x86_64-unknown-linux-musl"]),
    Part::wanted("miri", sanitizers::miri).leaving(&["miri"]),
    // Starting from the kept inputs, a short time is enough.
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

/// Builds rustdoc of the workspace. The pages of `annulus` become part of the book.
pub(crate) fn doc() -> Outcome {
    let step = Step::new("cargo", "doc --workspace --no-deps --all-features");
    step.env("RUSTDOCFLAGS", "-D warnings").run()
}

/// Checks that `annulus-compare` and `bench echo` measure the same ratio, and checks the compiler's
/// error messages.
fn compare() -> Outcome {
    let test = "test --release -p annulus-compare -- --ignored --nocapture";
    Step::new("cargo", test).run_tests_once()
}

/// Tests the suite of `annulus` against its models, with many random cases each.
fn models() -> Outcome {
    Step::run_each(&["resets", "files::model", "stream_model", "datagram_model"], |module| {
        let test = format!("test --release -p annulus --test suite -- --nocapture {module}::");
        let step = Step::new("cargo", &test).env("ANNULUS_RESETS", "1000000");
        let step = step.env("ANNULUS_FILE_SEQUENCES", "4000");
        let step = step.env("ANNULUS_STREAM_SEQUENCES", "34000");
        step.env("ANNULUS_DATAGRAM_SEQUENCES", "34000")
    })
}

/// Runs the tests of the `tracing` feature, which changes the hot path and is off in the other
/// tests, and then all tests of the workspace.
pub(crate) fn test() -> Outcome {
    Step::new("cargo", "test --workspace --features annulus/tracing --test tracing").run_tests()?;
    // `otlp` is off by default. The `features` part checks the command without it.
    let mut tests =
        Step::new("cargo", "test --workspace --no-fail-fast --features annulus-cli/otlp");
    if is_ci() {
        tests = tests.start_with_tests(sanitizers::asan_ahead()).start_with_tests(compat::ahead());
    }
    tests.run_tests()
}

/// Runs the simulated workload, a graceful shutdown, and the example `log` under power cuts with
/// this many seeds, starting at 0. A failed test prints how to repeat it.
pub(crate) fn sim(seeds: u64) -> Outcome {
    let shutdown = "network::signals::a_graceful_shutdown_loses_no_line_under_faults";
    let power_cuts = "log::the_log_survives_power_cuts_and_failing_disks";
    let names = [
        "sim::chaos",
        "sim::chaos_without_a_ring",
        "sim::one_seed_is_one_run",
        shutdown,
        power_cuts,
    ];
    Step::run_each(&names, |name| {
        // The broker reports each fault, which is too much to print for many seeds.
        let (program, how) =
            if name == power_cuts { ("power_cuts", "") } else { ("suite", "--nocapture ") };
        let test = format!("test --release -p annulus --test {program} -- --exact {how}{name}");
        Step::new("cargo", &test).env("ANNULUS_SIM_SEEDS", &seeds.to_string())
    })
}
