//! The checks of `crates/compat/`, which is a separate workspace: format, lints, documentation, and
//! tests with the libraries that it adapts.

use crate::step::{Outcome, Step, target};

const OPTIONS: &str = "--locked --all-features";

/// Checks and tests the workspace.
pub(crate) fn run() -> Outcome {
    step("fmt", "--check").run()?;
    step("clippy", &format!("--quiet {OPTIONS} --all-targets -- -D warnings")).run()?;
    let doc = step("doc", &format!("--quiet {OPTIONS} --no-deps"));
    doc.env("RUSTDOCFLAGS", "-D warnings").run()?;
    step("test", &format!("{OPTIONS} --no-fail-fast")).run_tests()
}

/// Returns the step that builds the tests before they are run.
pub(crate) fn ahead() -> Step {
    step("test", &format!("{OPTIONS} --no-run"))
}

/// Runs the tests on the simulated network with many seeds, and the tests of crates that take long
/// to compile.
pub(crate) fn weekly() -> Outcome {
    let services = ["simulated::http_1", "simulated::http_2", "simulated::axum"];
    let names = [&services[..], &["simulated::shutdown", "with_tokio::sqlx_too"]].concat();
    Step::run_each(&names, |name| {
        let seeds = if name == "simulated::shutdown" { "10000" } else { "1000" };
        let test = step("test", &format!("--locked --release --test suite -- {name}"));
        test.env("RUSTFLAGS", "--cfg annulus_weekly").env("ANNULUS_SIM_SEEDS", seeds)
    })
}

/// Tests that tokio-console sees the tasks of annulus. Uses its own target directory, because the
/// flag applies to everything that is built.
pub(crate) fn console() -> Outcome {
    let test = "test --locked --manifest-path crates/compat/tests/console/Cargo.toml";
    let step = Step::new("cargo", test).env("RUSTFLAGS", "--cfg console_without_tokio_unstable");
    step.env("CARGO_TARGET_DIR", &target().join("console").display().to_string()).run_tests_once()
}

fn step(verb: &str, arguments: &str) -> Step {
    let line = format!("{verb} --manifest-path crates/compat/Cargo.toml {arguments}");
    // Both workspaces share a target directory, so common dependencies are built once. Examples of
    // the same name would overwrite each other there, so all names differ.
    Step::new("cargo", &line).env("CARGO_TARGET_DIR", &target().display().to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::files::entries;
    use crate::step::root;

    #[test]
    fn example_names_of_both_workspaces_are_distinct() {
        let names = |package: &str| -> HashSet<String> {
            let examples = entries(&root().join(format!("crates/{package}/examples"))).unwrap();
            let programs = examples.iter().filter(|path| {
                path.join("main.rs").is_file() || path.extension().is_some_and(|end| end == "rs")
            });
            programs.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
        };
        let (ours, adapted) = (names("annulus"), names("compat"));
        assert!(ours.contains("echo") && adapted.contains("grpc"));
        assert_eq!(ours.intersection(&adapted).collect::<Vec<_>>(), [""; 0]);
    }
}
