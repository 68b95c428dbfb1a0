//! The checks of `compat/`, a workspace of its own: format, lints, and its tests with the libraries that it adapts to.

use crate::step::{Failure, Outcome, Step, root, target};

/// Checks and tests it.
pub(crate) fn run() -> Outcome {
    let options = "--locked --all-features";
    cargo("fmt", "--check")?;
    cargo("clippy", &format!("--quiet {options} --all-targets -- -D warnings"))?;
    cargo("test", options)?;
    Ok(Vec::new())
}

fn cargo(verb: &str, arguments: &str) -> Result<(), Failure> {
    let step = Step::new("cargo", verb).argument("--manifest-path");
    let step = step.argument(root().join("compat/Cargo.toml"));
    let step = arguments.split_whitespace().fold(step, |step, argument| step.argument(argument));
    step.env("CARGO_TARGET_DIR", &target().join("compat").display().to_string()).run()
}
