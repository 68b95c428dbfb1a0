//! Checks that every `Cargo.lock` matches its package. Those of the peers and entries are used with
//! `--locked`, and most of them are not built here: a dependency added to a crate of the workspace
//! would leave them out of date, and the next user could not build them.

use std::path::Path;

use anyhow::ensure;

use crate::files::{below, name};
use crate::step::{Outcome, Step, root};

/// Directories without a package of ours: build outputs, and the repository itself.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// Resolves each package with its lock file. Needs the registry's index, but downloads no crate.
pub(crate) fn run() -> Outcome {
    let (mut stale, mut skipped) = (Vec::new(), Vec::new());
    let left_out = |path: &Path| LEFT_OUT.contains(&name(path).as_str());
    for lock in below(&root(), &left_out)?.iter().filter(|path| name(path) == "Cargo.lock") {
        let manifest = lock.with_file_name("Cargo.toml");
        let step = Step::new("cargo", "update --quiet --workspace --locked --manifest-path");
        let (status, errors) = step.argument(manifest).run_keeping_stderr()?;
        let path = lock.strip_prefix(root()).unwrap_or(lock).display().to_string();
        match (status.success(), errors.contains("--locked")) {
            (true, _) => {}
            (false, true) => stale.push(path),
            (false, false) => skipped.push(format!("{path} (cannot be resolved here)")),
        }
    }
    ensure!(
        stale.is_empty(),
        "out of date: {}: run `cargo update --workspace` in their directories",
        stale.join(", ")
    );
    Ok(skipped)
}
