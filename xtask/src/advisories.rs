//! Checks dependencies against `deny.toml`: licences, sources, banned packages, and security
//! advisories.

use crate::step::{Outcome, Step};

/// Runs the checks of cargo-deny that need no network. Skipped if it is not installed.
pub(crate) fn licences() -> Outcome {
    if deny("--version").probe().is_none() {
        return Ok(vec!["licences (no cargo-deny: `cargo install cargo-deny`)".into()]);
    }
    deny("--all-features check bans licenses sources").run()
}

/// Runs the checks of [`licences`], and then checks security advisories, unless their database, a
/// separate repository, cannot be fetched.
pub(crate) fn all() -> Outcome {
    let skipped = licences()?;
    if !skipped.is_empty() {
        return Ok(skipped);
    }
    if deny("fetch db").probe().is_none() {
        return Ok(vec!["advisories (their database cannot be fetched)".into()]);
    }
    deny("--all-features check --disable-fetch advisories").run()
}

fn deny(arguments: &str) -> Step {
    Step::new("cargo", &format!("deny {arguments}"))
}
