//! Runs that see what a test cannot: AddressSanitizer and Miri, both with a nightly toolchain.

use crate::step::{Outcome, Step, root};

/// The crates whose unsafe code touches memory that the kernel shares.
const UNSAFE_CRATES: &str = "-p annulus-kernel -p annulus-ring -p annulus-driver -p annulus";

/// The sanitizer needs `--target`, or build scripts and macros would be instrumented too.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Left out under the sanitizer: it leaks on purpose, to see what `mem::forget` does.
const LEAKING: &str = "--skip openvmm_3271_mem_forget_defeats_guards_on_linux";

/// Modules with unsafe code, or handed memory by such, whose unit tests make no system call that Miri does not know.
const PURE: &str =
    "lease:: mail:: shared:: task:: time::heap:: waiters:: fs::aligned:: fs::buf:: fs::places::";

/// Tests under the address sanitizer; skipped if there is no nightly toolchain.
pub(crate) fn asan() -> Outcome {
    if !has_nightly() {
        return Ok(vec!["asan (no nightly toolchain: `rustup toolchain install nightly`)".into()]);
    }
    let tests = format!(
        "run nightly cargo test --no-fail-fast --lib --tests --target {TARGET} {UNSAFE_CRATES} -- {LEAKING}"
    );
    let known = format!("suppressions={}", root().join("xtask").join("leaks.txt").display());
    let step = Step::new("rustup", &tests).env("RUSTFLAGS", "-Zsanitizer=address");
    step.env("LSAN_OPTIONS", &known).run()?;
    Ok(Vec::new())
}

/// Unit tests under Miri, which knows what a compiler may assume of references; skipped if there is none.
pub(crate) fn miri() -> Outcome {
    if Step::new("rustup", "run nightly cargo miri --version").probe().is_none() {
        let hint = "miri (`rustup toolchain install nightly --component miri`)";
        return Ok(vec![hint.into()]);
    }
    let tests = format!("run nightly cargo miri test -p annulus --lib -- {PURE}");
    Step::new("rustup", &tests).run()?;
    Ok(Vec::new())
}

/// Whether rustup has a nightly toolchain.
pub(crate) fn has_nightly() -> bool {
    let toolchains = Step::new("rustup", "toolchain list").probe().unwrap_or_default();
    toolchains.lines().any(|toolchain| toolchain.starts_with("nightly"))
}
