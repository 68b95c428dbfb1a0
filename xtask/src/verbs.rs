//! What the verbs run. Each returns the steps it had to skip.

use crate::step::{Failure, Outcome, Step, root};
use crate::{instructions, peers};

/// The crates whose unsafe code touches memory that the kernel shares.
const UNSAFE_CRATES: &str = "-p annulus-kernel -p annulus-ring -p annulus-driver -p annulus";

/// The sanitizer needs `--target`, or build scripts and macros would be instrumented too.
const SANITIZER_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Format, lints, documentation; licences and sources where cargo-deny is at hand.
pub(crate) fn check() -> Outcome {
    cargo("fmt --all --check").run()?;
    cargo("clippy --workspace --all-targets -- -D warnings").run()?;
    cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings").run()?;
    deny()
}

/// The test command of the README.
pub(crate) fn test() -> Outcome {
    cargo("test --workspace").run()?;
    Ok(Vec::new())
}

/// Tests under the address sanitizer; skipped where there is no nightly toolchain.
pub(crate) fn asan() -> Outcome {
    if !has_nightly() {
        return Ok(vec!["asan (no nightly toolchain: `rustup toolchain install nightly`)".into()]);
    }
    let tests = format!(
        "run nightly cargo test --no-fail-fast --lib --tests --target {SANITIZER_TARGET} {UNSAFE_CRATES} -- {LEAKING}"
    );
    let known = format!("suppressions={}", root().join("xtask").join("leaks.txt").display());
    let step = Step::new("rustup", &tests).env("RUSTFLAGS", "-Zsanitizer=address");
    step.env("LSAN_OPTIONS", &known).run()?;
    Ok(Vec::new())
}

/// Modules with unsafe code, or handed memory by such, whose unit tests make no system call that Miri does not know.
const PURE: &str =
    "lease:: mail:: shared:: task:: time::heap:: waiters:: fs::aligned:: fs::buf:: fs::places::";

/// Unit tests under Miri, which knows what a compiler may assume of references; skipped where there is none.
pub(crate) fn miri() -> Outcome {
    if Step::new("rustup", "run nightly cargo miri --version").probe().is_none() {
        let hint = "miri (`rustup toolchain install nightly --component miri`)";
        return Ok(vec![hint.into()]);
    }
    let tests = format!("run nightly cargo miri test -p annulus --lib -- {PURE}");
    Step::new("rustup", &tests).run()?;
    Ok(Vec::new())
}

/// The simulated workload for the seeds from 0 on. The test itself prints what replays a failure.
pub(crate) fn sim(arguments: &[String]) -> Outcome {
    let (seeds, surplus) = match arguments {
        [seeds, surplus @ ..] => (seeds.as_str(), surplus.first()),
        [] => ("", None),
    };
    if let Some(extra) = surplus {
        return Err(Failure::Usage(format!("unexpected argument '{extra}': sim takes one number")));
    }
    if seeds.parse::<u64>().is_ok_and(|seeds| seeds > 0) {
        let test =
            "test --release -p annulus --test sim -- --exact --nocapture chaos one_seed_is_one_run";
        cargo(test).env("ANNULUS_SIM_SEEDS", seeds).run()?;
        return Ok(Vec::new());
    }
    let text = format!("'{seeds}' is no number of seeds; give one from 1 on, such as 500");
    Err(Failure::Usage(text))
}

/// Left out under the sanitizer: it leaks on purpose, to see what `mem::forget` does.
const LEAKING: &str = "--skip openvmm_3271_mem_forget_defeats_guards_on_linux";

/// Everything a change must pass.
pub(crate) fn ci() -> Outcome {
    let parts: [fn() -> Outcome; 4] = [test, check, || instructions::run(&[]), peers::quick];
    parts.iter().try_fold(Vec::new(), |mut skipped, part| {
        skipped.extend(part()?);
        Ok(skipped)
    })
}

fn cargo(arguments: &str) -> Step {
    Step::new("cargo", arguments)
}

/// Advisories are left out: a change does not bring them, and their database is one more thing to reach.
fn deny() -> Result<Vec<String>, Failure> {
    if cargo("deny --version").probe().is_none() {
        return Ok(vec!["cargo deny (not installed: `cargo install cargo-deny`)".into()]);
    }
    cargo("deny check bans licenses sources").run()?;
    Ok(Vec::new())
}

fn has_nightly() -> bool {
    let toolchains = Step::new("rustup", "toolchain list").probe().unwrap_or_default();
    toolchains.lines().any(|toolchain| toolchain.starts_with("nightly"))
}
