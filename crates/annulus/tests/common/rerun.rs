//! Runs a test of this program again in a separate process, for process-wide state: descriptors,
//! signals and limits.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test file uses only some of it")]

use std::process::{Command, Output};

/// Creates the command that runs a test of this module. The test is given as a function, so a
/// missing one does not compile.
macro_rules! rerun {
    ($test:ident) => {{
        let _: fn() = $test;
        $crate::common::rerun::command(concat!(module_path!(), "::", stringify!($test)))
    }};
}
pub(crate) use rerun;

/// Creates the command that runs the test at this path, which starts with the name of the program.
/// Prefer [`rerun!`].
pub(crate) fn command(path: &str) -> Command {
    let (_program, name) = path.split_once("::").expect("the path has only one name");
    let mut command = Command::new(std::env::current_exe().expect("the program has no path"));
    command.args([name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Runs a command from [`rerun!`], and panics with its output unless exactly one test ran and
/// passed. The command also succeeds if its filter matches no test, so the output is checked.
pub(crate) fn assert_passes(command: &mut Command) {
    assert_passed(&command.output().expect("the test program does not start"));
}

/// Like [`assert_passes`], but for a command that has ended.
pub(crate) fn assert_passed(output: &Output) {
    let Output { status, stdout, stderr } = output;
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
    assert!(status.success() && text.contains("test result: ok. 1 passed"), "{status}: {text}");
}

/// Returns true if this process runs only this test. Otherwise runs the test in a process of its
/// own, where it must pass.
pub(crate) fn is_alone(mut test: Command) -> bool {
    const ALONE: &str = "ANNULUS_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        assert_passes(test.env(ALONE, "1"));
        return false;
    }
    true
}
