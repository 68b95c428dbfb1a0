//! The checks of `arena/`, whose entries are packages of their own: format, lints, tests, and the
//! requests of HttpArena to each server.

use anyhow::ensure;

use crate::step::{Outcome, Step, is_ci, target};

/// The directories of the entries, each with a package `httparena-…`.
const ENTRIES: [&str; 3] = ["annulus", "annulus-hyper", "annulus-axum"];
/// The entry that has tests of its own; the others are only adapters.
const TESTED_ENTRY: &str = "annulus";

/// Builds and checks all entries.
pub(crate) fn run() -> Outcome {
    for name in ENTRIES {
        step(name, "fmt", "--check").run()?;
        step(name, "clippy", "--quiet --locked --all-targets -- -D warnings").run()?;
        step(name, "build", "--quiet --locked").run()?;
    }
    step(TESTED_ENTRY, "test", "--locked").run_tests()?;
    if Step::new("python3", "--version").probe().is_none() {
        ensure!(!is_ci(), "the arena's requests require python3, and CI must not skip them");
        return Ok(vec!["arena's requests (no python3)".into()]);
    }
    let program = |name: &str| target().join("debug").join(format!("httparena-{name}"));
    let check = Step::new("python3", "tools/peers/check_arena.py");
    ENTRIES.iter().fold(check, |check, name| check.argument(program(name))).run()
}

fn step(name: &str, verb: &str, arguments: &str) -> Step {
    let line = format!("{verb} --manifest-path arena/{name}/Cargo.toml {arguments}");
    // All workspaces share a target directory, so common dependencies are built once.
    Step::new("cargo", &line).env("CARGO_TARGET_DIR", &target().display().to_string())
}
