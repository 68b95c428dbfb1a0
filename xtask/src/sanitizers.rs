//! AddressSanitizer and Miri, both with a nightly toolchain.

use crate::step::{Outcome, Step, root, target};

/// The crates with unsafe code.
const UNSAFE_CRATES: [&str; 6] =
    ["annulus-kernel", "annulus-ring", "annulus-sim", "annulus-driver", "annulus", "annulus-lab"];

/// The target for sanitised builds. Without `--target`, build scripts and macros would also be
/// instrumented.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The test targets of [`asan_quick`].
const QUICK_TARGETS: &str = "--lib --test lent";

/// Tests that are not run under the sanitizer, because they call Cargo to build the examples, which
/// would use the sanitizer's flags.
const EXAMPLE_TESTS: &str = "programs::";

/// A test that is not run under the sanitizer, because it leaks on purpose to test `mem::forget`.
const LEAKING_TEST: &str = "openvmm_3271_mem_forget_defeats_guards_on_linux";

/// Modules with unsafe code, or that use memory of such modules, whose unit tests only make system
/// calls that Miri supports.
const MIRI_MODULES: &str = "bytes::lease:: slots::datagrams:: bytes::shared:: tasks:: timers:: fs::aligned:: bytes::buf:: bytes::foreign:: bytes::owned::";

/// Runs the tests of the crates with unsafe code under AddressSanitizer. Skipped without a nightly
/// toolchain.
pub(crate) fn asan() -> Outcome {
    asan_of("--lib --tests", &UNSAFE_CRATES)
}

/// Runs the tests of the runtime that most use memory shared with the kernel: the unit tests and
/// the test `lent`.
pub(crate) fn asan_quick() -> Outcome {
    asan_of(QUICK_TARGETS, &["annulus"])
}

/// Returns the step that builds the tests of [`asan_quick`] before they are run.
pub(crate) fn asan_ahead() -> Step {
    instrumented(&format!("--no-run {QUICK_TARGETS}"), &["annulus"], "")
}

fn asan_of(targets: &str, crates: &[&str]) -> Outcome {
    if !has_nightly() {
        return Ok(vec!["asan (no nightly toolchain: `rustup toolchain install nightly`)".into()]);
    }
    let skipped = format!(" -- --skip {LEAKING_TEST} --skip {EXAMPLE_TESTS}");
    instrumented(&format!("--no-fail-fast {targets}"), crates, &skipped).run_tests()
}

fn instrumented(options: &str, crates: &[&str], rest: &str) -> Step {
    let crates: String = crates.iter().map(|name| format!(" -p {name}")).collect();
    let test = format!("run nightly cargo test {options} --target {TARGET}{crates}{rest}");
    let known = format!("suppressions={}", root().join("xtask").join("leaks.txt").display());
    let step = Step::new("rustup", &test).env("RUSTFLAGS", "-Zsanitizer=address");
    let step = step.env("CARGO_TARGET_DIR", &target().join("asan").display().to_string());
    // Like the system's allocator, return null instead of aborting when memory is exhausted.
    let step = step.env("ASAN_OPTIONS", "allocator_may_return_null=1");
    step.env("LSAN_OPTIONS", &known)
}

/// The test of memory that operations in flight refer to.
const IN_FLIGHT: &str = "in_flight";

/// Miri flags for each aliasing model: stacked borrows, which is the default, and tree borrows.
const MODELS: [&str; 2] = ["", " -Zmiri-tree-borrows"];

/// Runs tests under Miri, which checks the aliasing rules of references. Skipped without Miri.
///
/// The tests of operations in flight run with both aliasing models, because each finds a different
/// mistake while the kernel uses an address in a box: stacked borrows finds that the box is moved,
/// and tree borrows that it is used after the kernel has written to it. Ring entries hold addresses
/// as numbers, which requires permissive provenance.
pub(crate) fn miri() -> Outcome {
    if Step::new("rustup", "run nightly cargo miri --version").probe().is_none() {
        let hint = "miri (`rustup toolchain install nightly --component miri`)";
        return Ok(vec![hint.into()]);
    }
    let tests =
        format!("run nightly cargo miri test -p annulus --features bytes --lib -- {MIRI_MODULES}");
    let mut skipped = Step::new("rustup", &tests).run_tests()?;
    for model in MODELS {
        let tests = format!("run nightly cargo miri test -p annulus --test {IN_FLIGHT}");
        let flags = format!("-Zmiri-disable-isolation -Zmiri-permissive-provenance{model}");
        skipped.extend(Step::new("rustup", &tests).env("MIRIFLAGS", &flags).run_tests()?);
    }
    Ok(skipped)
}

/// Returns true if rustup has a nightly toolchain.
pub(crate) fn has_nightly() -> bool {
    let toolchains = Step::new("rustup", "toolchain list").probe().unwrap_or_default();
    toolchains.lines().any(|toolchain| toolchain.starts_with("nightly"))
}

/// Checks that all names exist, because a filter that matches nothing would pass.
#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Returns every Rust file below a directory.
    fn sources(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let below = entries.flat_map(|entry| match entry.path() {
            path if path.is_dir() => sources(&path),
            path => vec![path],
        });
        below.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
    }

    fn any_has(sources: &[PathBuf], text: &str) -> bool {
        sources
            .iter()
            .any(|path| fs::read_to_string(path).is_ok_and(|source| source.contains(text)))
    }

    #[test]
    fn modules_for_miri_exist_and_have_tests() {
        for module in MIRI_MODULES.split(' ').map(|module| module.trim_end_matches("::")) {
            let path = root().join("crates/annulus/src").join(module.replace("::", "/"));
            let mut files = sources(&path);
            files.push(path.with_extension("rs"));
            assert!(any_has(&files, "#[test]"), "{module} has no tests, or does not exist");
        }
    }

    #[test]
    fn tests_of_operations_in_flight_exist() {
        let path = root().join(format!("crates/annulus/tests/{IN_FLIGHT}.rs"));
        assert!(any_has(&[path], "#[test]"));
    }

    #[test]
    fn every_crate_with_unsafe_code_runs_under_the_sanitizer() {
        for entry in fs::read_dir(root().join("crates")).unwrap().flatten() {
            let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
            // Crates that are separate workspaces have their unsafe code in one wrapper, which has
            // its own tests.
            if manifest.contains("[workspace]") {
                continue;
            }
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
            let is_unsafe = any_has(&sources(&entry.path().join("src")), "allow(unsafe_code");
            let runs = UNSAFE_CRATES.contains(&name.trim_matches('"'));
            assert_eq!(is_unsafe, runs, "{name}");
        }
    }

    #[test]
    fn leaking_test_exists() {
        let tests = sources(&root().join("crates/annulus/tests"));
        assert!(any_has(&tests, &format!("fn {LEAKING_TEST}")), "{LEAKING_TEST}");
    }

    /// A line of `leaks.txt` for a test that was renamed would suppress nothing.
    #[test]
    fn tests_in_the_leak_list_exist() {
        let known = fs::read_to_string(root().join("xtask/leaks.txt")).unwrap();
        let names = known.lines().filter_map(|line| line.strip_prefix("leak:"));
        let tests = ["annulus", "sim"].map(|name| root().join("crates").join(name));
        let sources: Vec<PathBuf> = tests.iter().flat_map(|path| sources(path)).collect();
        // `generator` is a crate that the model checker uses.
        for name in names.filter(|name| *name != "generator::") {
            let module = name.trim_end_matches("::").trim_end_matches("::tests");
            let file = format!("/{}.rs", module.replace("::", "/"));
            let is_module = sources.iter().any(|path| path.to_string_lossy().ends_with(&file));
            let is_item = name.starts_with("annulus_driver::");
            assert!(is_item || is_module || any_has(&sources, &format!("fn {name}(")), "{name}");
        }
    }
}
