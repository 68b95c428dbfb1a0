//! Usage errors.

/// An invalid value with its limit and the fix, in one line. The command then exits with status 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Returns the value with this name.
pub(crate) fn find_own<T: Copy>(all: &[(&str, T)], name: &str) -> Result<T, UsageError> {
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, one)| *one);
    found.ok_or_else(|| UsageError(format!("unknown name '{name}'; known names: {}", names())))
}

/// Checks that no value occurs twice. `named` describes a value.
///
/// # Errors
/// If a value occurs twice; the error contains its description.
pub fn distinct<T: PartialEq>(all: &[T], named: impl Fn(&T) -> String) -> Result<(), UsageError> {
    let twice = all.iter().enumerate().find(|(index, one)| all[..*index].contains(one));
    let error = |one: &T| UsageError(format!("{} is given twice: remove one", named(one)));
    twice.map_or(Ok(()), |(_, one)| Err(error(one)))
}

/// Returns the text with every run of white space replaced by a single space.
pub fn one_line(text: impl ToString) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
