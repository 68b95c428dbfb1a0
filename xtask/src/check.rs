//! The quick checks that every change must pass: style, format, lints, documentation, licences, the page of results,
//! the book.

use crate::part::{self, Part};
use crate::step::{Outcome, Step};
use crate::{advisories, book, results, style};

/// The parts, quick ones first.
pub(crate) const PARTS: [Part; 7] = [
    Part::required("style", style::check),
    Part::required("format", format),
    Part::wanted("licences", advisories::licences),
    Part::required("results", results::check),
    Part::required("clippy", clippy),
    Part::required("doc", doc),
    Part::wanted("book", book::build),
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

/// rustdoc of the workspace, whose pages of `annulus` are part of the book.
pub(crate) fn doc() -> Outcome {
    let step = Step::new("cargo", "doc --workspace --no-deps --all-features");
    step.env("RUSTDOCFLAGS", "-D warnings").run()?;
    Ok(Vec::new())
}
