//! Checks each feature alone, none, and all together, and the oldest supported Rust.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::step::{Outcome, Step};

/// Checks each library that has features without them and with all of them.
pub(crate) fn none_and_all() -> Outcome {
    each("check --quiet", "--lib", "", false)
}

/// Lints each library that has features without them and with each alone, and all targets of its
/// package with all of them.
pub(crate) fn all_targets() -> Outcome {
    each("clippy --quiet", "--all-targets", " -- -D warnings", true)
}

fn each(verb: &str, targets: &str, flags: &str, each_alone: bool) -> Outcome {
    let metadata = metadata("--no-deps")?;
    for (package, features) in featured(&metadata) {
        let alone = features.iter().filter(|_| each_alone);
        let alone = alone.map(|feature| format!("--no-default-features --features {feature}"));
        let choices = std::iter::once("--no-default-features".to_owned()).chain(alone);
        for choice in choices {
            Step::new("cargo", &format!("{verb} -p {package} --lib {choice}{flags}")).run()?;
        }
        let all = format!("{verb} -p {package} {targets} --all-features{flags}");
        Step::new("cargo", &all).run()?;
    }
    Ok(Vec::new())
}

/// Checks `annulus` and `annulus-tokio` with the oldest Rust in `Cargo.toml`. Skipped if rustup
/// does not have it.
pub(crate) fn msrv() -> Outcome {
    msrv_of("-p annulus -p annulus-tokio --all-features --lib")
}

/// Like [`msrv`], but for the libraries and programs of all packages, with their default features.
pub(crate) fn msrv_of_all() -> Outcome {
    msrv_of("--workspace --lib --bins")
}

fn msrv_of(what: &str) -> Outcome {
    let version = env!("CARGO_PKG_RUST_VERSION");
    if Step::new("rustup", &format!("run {version} cargo --version")).probe().is_none() {
        let hint = format!("msrv (`rustup toolchain install {version} --profile minimal`)");
        return Ok(vec![hint]);
    }
    Step::new("rustup", &format!("run {version} cargo check {what} --locked")).run()
}

/// Runs `cargo metadata`.
pub(crate) fn metadata(arguments: &str) -> Result<Value> {
    let line = format!("metadata --format-version 1 --locked {arguments}");
    let (status, text) = Step::new("cargo", &line).capture()?;
    ensure!(status.success(), "`cargo {line}` ended with {status}");
    Ok(serde_json::from_str(&text)?)
}

/// Returns the entries of a list in a JSON object.
pub(crate) fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

/// Returns the packages with features, each with its features except `default`.
fn featured(metadata: &Value) -> Vec<(String, Vec<String>)> {
    let package = |package: &Value| {
        let features = package["features"].as_object()?.keys();
        let features: Vec<String> = features.filter(|name| *name != "default").cloned().collect();
        (!features.is_empty()).then_some((package["name"].as_str()?.to_owned(), features))
    };
    list(metadata, "packages").filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_without_features_are_left_out() {
        let text = r#"{"packages": [
            {"name": "a", "features": {"default": ["x"], "x": [], "y": ["x"]}},
            {"name": "b", "features": {}}]}"#;
        let found = featured(&serde_json::from_str(text).unwrap());
        assert_eq!(found, [("a".to_owned(), vec!["x".to_owned(), "y".to_owned()])]);
    }
}
