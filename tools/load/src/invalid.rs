//! What cannot be.

/// A value that cannot be: in one line the value, its limit, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

pub(crate) fn invalid(text: impl Into<String>) -> Invalid {
    Invalid(text.into())
}
