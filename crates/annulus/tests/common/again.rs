//! A test of this program that runs again in a process of its own, for what belongs to the process: descriptors, signals, limits.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test file takes what it needs")]

use std::process::{Command, Output};

/// The command that runs a test of this module, given by its function: a name that is gone does not compile.
macro_rules! again {
    ($test:ident) => {{
        let _: fn() = $test;
        $crate::common::again::command(concat!(module_path!(), "::", stringify!($test)))
    }};
}
pub(crate) use again;

/// The command that runs the test of this path, which begins with the name of the program. Prefer [`again!`].
pub(crate) fn command(path: &str) -> Command {
    let (_program, name) = path.split_once("::").expect("a path of two names or more");
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Runs such a command, and panics with what it printed unless the one test ran and passed: a filter that matches nothing
/// succeeds as well.
pub(crate) fn assert_passes(command: &mut Command) {
    assert_passed(&command.output().expect("the test program starts"));
}

/// As [`assert_passes`], of a command that has ended.
pub(crate) fn assert_passed(output: &Output) {
    let Output { status, stdout, stderr } = output;
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
    assert!(status.success() && text.contains("test result: ok. 1 passed"), "{status}: {text}");
}

/// Whether this process runs this test and no other. If not, such a process was started, and the test has passed there.
pub(crate) fn is_alone(mut test: Command) -> bool {
    const ALONE: &str = "ANNULUS_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        assert_passes(test.env(ALONE, "1"));
        return false;
    }
    true
}
