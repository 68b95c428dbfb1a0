//! Error reporting: one line on standard error, and the exit status.

use crate::output::{StdoutClosed, check_print, note, print_clap};
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::process::ExitCode;

const USAGE_STATUS: u8 = 2;
/// The exit status when standard output has no reader: the one that shells report for a process
/// killed by SIGPIPE (128 + 13).
const SIGPIPE_STATUS: u8 = 141;

/// A usage error found after parsing.
pub(crate) use annulus_lab::UsageError;
use annulus_lab::one_line;
use annulus_load::OptionsError;

pub(crate) fn options_error(error: OptionsError) -> anyhow::Error {
    match error {
        OptionsError::Usage(text) => UsageError(text).into(),
        OptionsError::Failed(text) => anyhow::Error::msg(text),
    }
}

/// Rejects options that have no effect without the option `other`, unless that is `present`. clap's
/// `requires` is not enough: clap ignores it when an argument conflicts with the required one.
pub(crate) fn only_with(
    other: &str,
    present: bool,
    options: &[(&str, bool)],
) -> Result<(), UsageError> {
    match options.iter().find(|(_, given)| *given && !present) {
        Some((option, _)) => Err(UsageError(format!(
            "{option} does nothing without {other}: add that, or leave it out"
        ))),
        None => Ok(()),
    }
}

/// Prints an error as one line and returns its exit status. Prints nothing for [`StdoutClosed`].
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    if error.is::<StdoutClosed>() {
        return ExitCode::from(SIGPIPE_STATUS);
    }
    let text = one_line(format!("{error:#}"));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hint = if hints_at_filter(&text, &status) { SECCOMP_HINT } else { "" };
    note(format_args!("annulus: {text}{hint}"));
    if error.is::<UsageError>() { ExitCode::from(USAGE_STATUS) } else { ExitCode::FAILURE }
}

/// A hint to add to an error that a seccomp filter may have caused.
const SECCOMP_HINT: &str = ": this process runs under a seccomp filter, such as a container's, which may deny the call; allow it";

/// Returns true if a seccomp filter may have caused the error: it is EPERM or ENOSYS, this process
/// has a filter, and the error does not say so already.
fn hints_at_filter(text: &str, status: &str) -> bool {
    let filtered = status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]));
    let denied = ["(os error 1)", "(os error 38)"].iter().any(|error| text.contains(error));
    filtered && denied && !text.contains("seccomp")
}

/// Prints clap's output: help unchanged, an error as one line.
pub(crate) fn report_clap_error(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = check_print(print_clap(error));
            printed.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = print_clap(error);
            ExitCode::from(USAGE_STATUS)
        }
        kind => {
            let text = match kind {
                ErrorKind::InvalidUtf8 => not_utf8(std::env::args_os()),
                _ => condense(&error.to_string()),
            };
            note(format_args!("annulus: {text} (see --help)"));
            ExitCode::from(USAGE_STATUS)
        }
    }
}

/// Names the arguments that are not UTF-8, which clap's error does not. Paths among them may be
/// valid.
fn not_utf8(arguments: impl Iterator<Item = OsString>) -> String {
    let invalid = arguments.filter(|argument| argument.to_str().is_none());
    let names: Vec<_> = invalid.map(|name| format!("'{}'", name.to_string_lossy())).collect();
    format!("only paths need not be UTF-8 text: write {} as UTF-8", names.join(", "))
}

/// Errors of the standard library for numbers, and what to say instead.
const NUMBER_ERRORS: [(&str, &str); 5] = [
    ("invalid digit found in string", "write a whole number without a sign"),
    ("cannot parse integer from empty string", "write a whole number without a sign"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "write a number, such as 0.5"),
    ("cannot parse float from empty string", "write a number, such as 0.5"),
];

/// Returns clap's error as one line, without the usage and the hint at --help.
pub(crate) fn condense(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let kept = text
        .split("\n\n")
        .filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more"));
    let text = one_line(kept.collect::<Vec<_>>().join("; "));
    NUMBER_ERRORS.iter().fold(text, |text, (error, advice)| text.replace(error, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_denied_call_under_a_filter_is_explained_once() {
        let (filtered, free) = ("Name:\tx\nSeccomp:\t2\n", "Seccomp:\t0\n");
        let denied = "accept4: Operation not permitted (os error 1)";
        assert!(hints_at_filter(denied, filtered) && !hints_at_filter(denied, free));
        assert!(!hints_at_filter("bind: Permission denied (os error 13)", filtered));
        assert!(!hints_at_filter(&format!("{denied}: a seccomp filter"), filtered));
    }

    #[test]
    fn arguments_that_are_not_utf8_are_named() {
        let arguments = [b"load".to_vec(), b"a\xff".to_vec()].map(OsString::from_vec);
        let text = not_utf8(arguments.into_iter());
        assert!(text.contains("'a\u{fffd}'") && !text.contains("'load'"), "{text}");
    }

    #[test]
    fn error_for_a_number_says_what_to_write() {
        let text = "error: invalid value 'x' for '--seed <SEED>': invalid digit found in string\n";
        assert_eq!(
            condense(text),
            "invalid value 'x' for '--seed <SEED>': write a whole number without a sign"
        );
    }

    #[test]
    fn a_clap_error_becomes_one_line() {
        let text = "error: invalid value 'x' for '--driver <D>': unknown\n  [possible values: a, b]\n\n  tip: try a\n\nUsage: y\n\nFor more information, try '--help'.\n";
        assert_eq!(
            condense(text),
            "invalid value 'x' for '--driver <D>': unknown [possible values: a, b]; tip: try a"
        );
    }
}
