//! The error of an impossible option value.

/// A value that an option cannot have: in one line the value, its limit, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

pub(crate) fn invalid(text: impl Into<String>) -> InvalidValue {
    InvalidValue(text.into())
}
