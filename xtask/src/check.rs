//! What every change must pass and is quickly checked: style, format, lints, documentation, licences, the table of results.

use crate::part::{self, Part};
use crate::step::{Outcome, Step};
use crate::{advisories, results, style};

/// The parts, quick ones first.
pub(crate) const PARTS: [Part; 6] = [
    Part { name: "style", required: true, run: style::check, leaves: &[] },
    Part { name: "format", required: true, run: format, leaves: &[] },
    Part { name: "licences", required: false, run: advisories::licences, leaves: &[] },
    Part { name: "results", required: true, run: results::check, leaves: &[] },
    Part { name: "clippy", required: true, run: clippy, leaves: &[] },
    Part { name: "doc", required: true, run: doc, leaves: &[] },
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
