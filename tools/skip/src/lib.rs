//! Reports tests that are skipped because the machine lacks something they need.
//!
//! `cargo xtask test` lists the skipped tests at its end. In CI, a skipped test fails the run
//! unless `xtask/skips.txt` says why CI may skip it, so that no test is lost unnoticed.

use std::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// The environment variable with the path of a file that collects the skipped tests, one line each:
/// `TEST: REASON`.
pub const FILE_VARIABLE: &str = "ANNULUS_SKIPPED_TESTS";

/// Reports that the current test, or a part of it, is skipped. Takes the reason, formatted like
/// [`format!`], which says what is missing and how to get it.
///
/// The macro does not end the test: the caller returns, or continues without the skipped part.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => { $crate::report(format_args!($($reason)+)) };
}

/// Reports the current test with the reason why it is skipped; see [`skip!`].
///
/// # Panics
/// Panics if the file of [`FILE_VARIABLE`] cannot be written.
pub fn report(reason: Arguments<'_>) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main");
    // Write to stderr directly, because the harness hides what `eprintln!` prints in tests that
    // pass.
    _ = writeln!(io::stderr(), "skipped: {test}: {reason}");
    let Some(path) = std::env::var_os(FILE_VARIABLE) else { return };
    let line = format!("{test}: {reason}\n").replace('\n', " ").trim_end().to_owned() + "\n";
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // One write, so that lines of concurrent tests do not mix.
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: cannot be written: {error}", path.display()));
}
