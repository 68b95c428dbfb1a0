//! Error reporting: one line on standard error, and the exit status.

use crate::output::{StdoutClosed, check_print, note, print_clap};
use clap::error::ErrorKind;
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
    let text = one_line(&format!("{error:#}"));
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
        _ => {
            note(format_args!("annulus: {} (see --help)", condense(&error.to_string())));
            ExitCode::from(USAGE_STATUS)
        }
    }
}

/// Returns clap's error as one line, without the usage and the hint at --help.
pub(crate) fn condense(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let kept = text
        .split("\n\n")
        .filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more"));
    one_line(&kept.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_call_under_a_filter_is_explained_once() {
        let (filtered, free) = ("Name:\tx\nSeccomp:\t2\n", "Seccomp:\t0\n");
        let denied = "accept4: Operation not permitted (os error 1)";
        assert!(hints_at_filter(denied, filtered) && !hints_at_filter(denied, free));
        assert!(!hints_at_filter("bind: Permission denied (os error 13)", filtered));
        assert!(!hints_at_filter(&format!("{denied}: a seccomp filter"), filtered));
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
