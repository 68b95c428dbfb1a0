//! The error for invalid values in a plan.

/// An invalid value. The text names the value, its limit and a remedy in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

pub(crate) fn invalid(text: impl Into<String>) -> InvalidValue {
    InvalidValue(text.into())
}
