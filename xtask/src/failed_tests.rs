//! Collects what the standard test harness prints about failed tests while passing its output
//! through. The reports are repeated at the end of a long run, and failed tests are run again
//! alone.

use std::io::{self, BufRead, Write};
use std::sync::Mutex;

/// The maximum number of report lines kept from one run.
const MAX_REPORT_LINES: usize = 200;
/// The maximum number of failed tests that are repeated: if more fail, it is not by chance.
const MAX_REPEATED_TESTS: usize = 5;

/// What the harness prints after the name of a test that takes long.
const SLOW: &str = " has been running for over 60 seconds";

/// Reports of tests that failed among others but passed alone.
static FLAKY_REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The tests of one run: which failed, with their reports, and which passed.
#[derive(Debug, Default)]
pub(crate) struct FailedTests {
    report: Vec<String>,
    in_report: bool,
    failed: Vec<String>,
    passed: Vec<String>,
    /// Tests that the harness reported as running for over a minute.
    slow: Vec<String>,
    /// The number of failures that the harness reported. A name can be lost if a test writes in the
    /// middle of its line.
    counted_failed: usize,
    /// The number of passed tests that the harness reported.
    counted_passed: usize,
    /// The number of test programs that started without ending with a result.
    unfinished: isize,
}

impl FailedTests {
    /// Copies `output` to `copy`, and keeps the reports of failures.
    pub(crate) fn read(output: impl BufRead, mut copy: impl Write) -> io::Result<Self> {
        let mut failed = Self::default();
        for line in output.split(b'\n') {
            let line = line?;
            copy.write_all(&line)?;
            copy.write_all(b"\n")?;
            failed.add(&String::from_utf8_lossy(&line));
        }
        Ok(failed)
    }

    fn add(&mut self, line: &str) {
        self.count(line);
        self.in_report |= line == "failures:";
        if !self.in_report {
            return;
        }
        self.report.push(line.to_owned());
        self.in_report = !line.starts_with("test result: ");
    }

    fn count(&mut self, line: &str) {
        let test = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "));
        match test {
            Some((name, "ok")) => self.passed.push(name.to_owned()),
            Some((name, "FAILED")) => self.failed.push(name.to_owned()),
            _ if line.ends_with(SLOW) => {
                let name = line.trim_start_matches("test ").trim_end_matches(SLOW);
                self.slow.push(name.to_owned());
            }
            _ if line.starts_with("running ") && line.contains(" test") => self.unfinished += 1,
            _ if line.starts_with("test result: ") && line.contains("; finished in ") => {
                self.unfinished -= 1;
                self.counted_failed += counted(line, " failed");
                self.counted_passed += counted(line, " passed");
            }
            _ => {}
        }
    }

    /// Returns the failed tests if they can be repeated: there are few, all programs ended by
    /// themselves, and the harness accepts their names, which it does not for doctests. Otherwise
    /// returns none.
    pub(crate) fn repeatable(&self) -> &[String] {
        let named = self.failed.iter().all(|name| !name.contains(' '));
        let complete = self.unfinished == 0 && self.failed.len() == self.counted_failed;
        let repeatable = complete && named && self.failed.len() <= MAX_REPEATED_TESTS;
        if repeatable { &self.failed } else { &[] }
    }

    /// Returns true if all of these ran and none failed.
    pub(crate) fn have_passed(&self, names: &[String]) -> bool {
        self.counted_failed == 0
            && self.failed.is_empty()
            && names.iter().all(|name| self.passed.contains(name))
    }

    /// Returns true if no test passed. A filter that matches nothing also succeeds.
    pub(crate) fn none_passed(&self) -> bool {
        self.counted_passed == 0
    }

    /// Keeps the report of tests that passed when repeated alone, for the end of the run.
    pub(crate) fn keep_as_flaky(&self) {
        FLAKY_REPORTS.lock().expect("a thread panicked with the lock").push(self.report());
    }

    /// Returns the slow tests that neither passed nor failed: they were still running when the tests
    /// were stopped.
    pub(crate) fn hanging(&self) -> Vec<&str> {
        let ended = |name| self.passed.contains(name) || self.failed.contains(name);
        self.slow.iter().filter(|name| !ended(name)).map(String::as_str).collect()
    }

    /// Returns the report, with the number of omitted lines. Empty if no test failed.
    pub(crate) fn report(&self) -> String {
        let omitted = self.report.len().saturating_sub(MAX_REPORT_LINES);
        let mut text = self.report[..self.report.len() - omitted].join("\n");
        if omitted > 0 {
            text += &format!("\n({omitted} more lines are in the output of the tests)");
        }
        text
    }
}

/// Returns the number before `end` in a result line: `test result: ok. 2 passed; 0 failed; ...`.
fn counted(result: &str, end: &str) -> usize {
    let mut counts = result.split([';', '.']).map(str::trim);
    let count = counts.find_map(|part| part.strip_suffix(end));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Returns the report on tests that failed among others but passed alone, or an empty string.
pub(crate) fn flaky_report() -> String {
    let reports = FLAKY_REPORTS.lock().expect("a thread panicked with the lock").join("\n");
    if reports.is_empty() {
        return reports;
    }
    format!("\n== tests that failed among others but passed alone: fix them\n{reports}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nwrong\n\n\
        failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; finished in 0s\n\nrunning 1 test\ntest c ... ok\n\ntest result: ok. 1 passed; 0 failed; finished in 0s\n";

    #[test]
    fn failures_are_kept_and_the_whole_output_is_copied() {
        let mut copy = Vec::new();
        let failed = FailedTests::read(OUTPUT.as_bytes(), &mut copy).unwrap();
        assert_eq!(copy, OUTPUT.as_bytes());
        let report = failed.report();
        assert!(
            report.starts_with("failures:") && report.ends_with("; finished in 0s"),
            "{report}"
        );
        assert!(report.contains("---- b stdout ----\nwrong"), "{report}");
        assert!(!report.contains("... ok"), "{report}");
    }

    #[test]
    fn long_report_is_truncated_and_says_so() {
        let long = format!("failures:\n{}", "a line\n".repeat(MAX_REPORT_LINES + 9));
        let report = FailedTests::read(long.as_bytes(), io::sink()).unwrap().report();
        assert!(report.ends_with("(10 more lines are in the output of the tests)"), "{report}");
    }

    #[test]
    fn passing_tests_have_no_report() {
        let passed = "test a ... ok\ntest result: ok. 1 passed; 0 failed; finished in 0s\n";
        assert_eq!(FailedTests::read(passed.as_bytes(), io::sink()).unwrap().report(), "");
    }

    #[test]
    fn filter_that_matches_nothing_has_no_passed_test() {
        let filtered = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 2773 filtered out\n";
        assert!(read(filtered).none_passed());
        assert!(!read(&format!("{filtered}{OUTPUT}")).none_passed());
        assert_eq!(read(OUTPUT).counted_passed, 2);
    }

    fn read(output: &str) -> FailedTests {
        FailedTests::read(output.as_bytes(), io::sink()).unwrap()
    }

    #[test]
    fn few_failed_tests_are_repeated_and_must_run_and_pass() {
        let failed = read(OUTPUT);
        assert_eq!(failed.repeatable(), ["b"]);
        let alone =
            read("running 1 test\ntest b ... ok\n\ntest result: ok. 1 passed; finished in 0s\n");
        assert!(alone.have_passed(failed.repeatable()));
        assert!(!failed.have_passed(failed.repeatable()));
        assert_eq!(flaky_report(), "");
        failed.keep_as_flaky();
        assert!(flaky_report().contains("passed alone: fix them\nfailures:\n"));
        assert!(
            !read("running 0 tests\n\ntest result: ok. 0 passed; finished in 0s\n")
                .have_passed(failed.repeatable())
        );
    }

    #[test]
    fn slow_tests_that_did_not_end_are_hanging() {
        let slow = |name| format!("test {name}{SLOW}\n");
        let output = slow("a") + &slow("b") + "test a ... ok\ntest c ... ok\n";
        assert_eq!(read(&output).hanging(), ["b"]);
    }

    #[test]
    fn many_incomplete_or_unnamed_failures_are_not_repeated() {
        let result =
            |failed| format!("test result: FAILED. 0 passed; {failed} failed; finished in 0s\n");
        let output = |names: &[&str], failed| {
            let lines: String =
                names.iter().map(|name| format!("test {name} ... FAILED\n")).collect();
            read(&format!("running 9 tests\n{lines}{}", result(failed)))
        };
        assert_eq!(output(&["a", "b"], 2).repeatable(), ["a", "b"]);
        assert!(
            output(&["a"; MAX_REPEATED_TESTS + 1], MAX_REPEATED_TESTS + 1).repeatable().is_empty()
        );
        assert!(output(&["a"], 2).repeatable().is_empty(), "a name was lost");
        let killed = format!("{OUTPUT}running 3 tests\ntest d ... ok\n");
        assert!(read(&killed).repeatable().is_empty());
        let printed = format!("{OUTPUT}test result: ok. 1 passed; 0 failed\n");
        assert_eq!(read(&printed).repeatable(), ["b"], "a line that a test printed");
        assert!(output(&["src/lib.rs - a (line 3)"], 1).repeatable().is_empty());
    }
}
