//! The checks of `crates/compat/`, a workspace of its own: format, lints, documentation, and its tests with the libraries that it
//! adapts to.

use crate::step::{Failure, Outcome, Step, root, target};

const MANIFEST: &str = "crates/compat/Cargo.toml";

/// Checks and tests the workspace.
pub(crate) fn run() -> Outcome {
    let options = "--locked --all-features";
    cargo("fmt", "--check")?;
    cargo("clippy", &format!("--quiet {options} --all-targets -- -D warnings"))?;
    step("doc", &format!("--quiet {options} --no-deps"))
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    step("test", &format!("{options} --no-fail-fast")).run_tests()?;
    Ok(Vec::new())
}

/// Tests the services on the simulated network, with a thousand seeds each.
pub(crate) fn seeds() -> Outcome {
    let test = "--locked --release --test suite -- --exact simulated::http_1 simulated::http_2 simulated::axum";
    let test = step("test", test).env("ANNULUS_SIM_SEEDS", "1000");
    test.run_tests_once()?;
    Ok(Vec::new())
}

fn cargo(verb: &str, arguments: &str) -> Result<(), Failure> {
    step(verb, arguments).run()
}

fn step(verb: &str, arguments: &str) -> Step {
    let step = Step::new("cargo", verb).argument("--manifest-path").argument(root().join(MANIFEST));
    let step = arguments.split_whitespace().fold(step, |step, argument| step.argument(argument));
    // Dependencies of both workspaces are built once.
    step.env("CARGO_TARGET_DIR", &target().display().to_string())
}
