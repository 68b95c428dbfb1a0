//! The error for invalid values in a plan.

use std::fmt::Display;

/// An invalid value. The text names the value, its limit and a remedy in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

/// Returns a number with its noun, which has a plural with `s`: `1 request`, `2 requests`.
#[doc(hidden)]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

pub(crate) fn invalid(text: impl Into<String>) -> InvalidValue {
    InvalidValue(text.into())
}
