//! What every change must pass and is quickly checked: style, format, lints, documentation, licences, the table of results.

use crate::part::{self, Part};
use crate::step::{Outcome, Step};
use crate::{advisories, results, style};

/// The parts, quick ones first.
pub(crate) const PARTS: [Part; 6] = [
    Part::required("style", style::check),
    Part::required("format", format),
    Part::wanted("licences", advisories::licences),
    Part::required("results", results::check),
    Part::required("clippy", clippy),
    Part::required("doc", doc),
];

/// Runs the parts.
pub(crate) fn run() -> Outcome {
    part::run(&PARTS)
}

fn format() -> Outcome {
    Step::new("cargo", "fmt --all --check").run()?;
    Ok(Vec::new())
}

fn clippy() -> Outcome {
    Step::new("cargo", "clippy --workspace --all-targets -- -D warnings").run()?;
    Ok(Vec::new())
}

fn doc() -> Outcome {
    let step = Step::new("cargo", "doc --workspace --no-deps --all-features");
    step.env("RUSTDOCFLAGS", "-D warnings").run()?;
    Ok(Vec::new())
}
