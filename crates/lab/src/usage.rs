//! What cannot be done as it was asked for.

use std::fmt;

/// A value that cannot be used, its limit and the way out, in one line: a command line ends with status 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Checks that nothing is asked for twice; `named` says what an item is.
///
/// # Errors
/// Names the first that is.
pub fn distinct<T: PartialEq>(all: &[T], named: impl Fn(&T) -> String) -> Result<(), UsageError> {
    let twice = all.iter().enumerate().find(|(place, one)| all[..*place].contains(one));
    let error = |one: &T| UsageError(format!("{} is asked for twice: once will do", named(one)));
    twice.map_or(Ok(()), |(_, one)| Err(error(one)))
}
