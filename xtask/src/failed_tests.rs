//! What the standard test harness prints of tests that failed, picked from its output while that passes through, to be printed again at
//! the end of a long run.

use std::io::{self, BufRead, Write};

/// Lines that are kept of one run; the output itself has all.
const MOST_LINES: usize = 200;

/// The reports of failed tests.
#[derive(Debug, Default)]
pub(crate) struct FailedTests {
    report: Vec<String>,
    inside: bool,
    omitted: usize,
}

impl FailedTests {
    /// Copies `output` to `copy`, and keeps what it says of failures.
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
        self.inside |= line == "failures:";
        if !self.inside {
            return;
        }
        match self.report.len() < MOST_LINES {
            true => self.report.push(line.to_owned()),
            false => self.omitted += 1,
        }
        self.inside = !line.starts_with("test result: ");
    }

    /// All of them, and how many lines were left out; empty if no test failed.
    pub(crate) fn report(&self) -> String {
        let mut text = self.report.join("\n");
        if self.omitted > 0 {
            text.push_str(&format!(
                "\n({} more lines are in the output of the tests)",
                self.omitted
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nwrong\n\n\
        failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n\nrunning 1 test\ntest c ... ok\n";

    #[test]
    fn failures_are_kept_and_all_is_copied() {
        let mut copy = Vec::new();
        let failed = FailedTests::read(OUTPUT.as_bytes(), &mut copy).unwrap();
        assert_eq!(copy, OUTPUT.as_bytes());
        let report = failed.report();
        assert!(report.starts_with("failures:") && report.ends_with("1 failed"), "{report}");
        assert!(report.contains("---- b stdout ----\nwrong"), "{report}");
        assert!(!report.contains("... ok"), "{report}");
    }

    #[test]
    fn a_long_report_is_cut_and_says_so() {
        let long = format!("failures:\n{}", "a line\n".repeat(MOST_LINES + 9));
        let report = FailedTests::read(long.as_bytes(), io::sink()).unwrap().report();
        assert!(report.ends_with("(10 more lines are in the output of the tests)"), "{report}");
    }

    #[test]
    fn tests_that_pass_leave_nothing() {
        let passed = "test a ... ok\ntest result: ok. 1 passed; 0 failed\n";
        assert_eq!(FailedTests::read(passed.as_bytes(), io::sink()).unwrap().report(), "");
    }
}
