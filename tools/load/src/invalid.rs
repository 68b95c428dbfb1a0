//! The error for invalid values in a plan.

/// An invalid value. The text names the value, its limit and a remedy in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

/// Returns a number with its noun, which has a plural with `s`: `1 request`, `2 requests`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

pub(crate) fn invalid(text: impl Into<String>) -> InvalidValue {
    InvalidValue(text.into())
}
