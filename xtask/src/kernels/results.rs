//! The results of a plan on one kernel, read from the files that `run.sh` writes.

use std::collections::BTreeSet;
use std::path::Path;

use fs_err as fs;

use super::plan::Plan;
use serde_json::Value;

/// The exit status of a check that does not apply to this kernel.
const NOT_HERE_STATUS: i32 = 77;

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Passed, with the number of tests if it is a test program.
    Passed(Option<Passed>),
    /// Failed, with the failed tests, if they are known.
    Failed(Vec<String>),
    /// The check requires a feature that this kernel lacks.
    NotHere,
    /// The machine ended before the check was run.
    NotRun,
}

/// The tests of a passed check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) run: u32,
    /// Tests that printed that they were skipped.
    pub(super) skipped: u32,
}

/// The results of one kernel.
pub(super) struct Results {
    pub(super) kernel: String,
    /// One verdict per check, in the order of the plan.
    pub(super) checks: Vec<Verdict>,
    /// The output of `annulus doctor --json`, or null if it did not run.
    pub(super) doctor: Value,
}

impl Results {
    /// Reads the files that a run has written.
    pub(super) fn read(kernel: &str, plan: &Plan, directory: &Path) -> Self {
        let outcomes = text(&directory.join("outcomes"));
        let checks = plan.checks.iter().map(|check| {
            let log = text(&directory.join(format!("{}.log", check.name)));
            Verdict::of(outcomes.lines().find_map(|line| outcome(line, &check.name)), &log)
        });
        let checks = checks.collect();
        let doctor = serde_json::from_str(&text(&directory.join("doctor.json")));
        Self { kernel: kernel.into(), checks, doctor: doctor.unwrap_or_default() }
    }

    /// Makes the doctor's check fail unless this driver was chosen.
    pub(super) fn expect_driver(&mut self, driver: &str) {
        let chosen = self.doctor["driver"]["kind"].as_str().unwrap_or("none");
        if let Some(doctor) = self.checks.first_mut().filter(|_| chosen != driver) {
            *doctor = Verdict::Failed(vec![format!("chose {chosen} instead of {driver}")]);
        }
    }

    /// Returns the names of the checks that failed or were not run.
    pub(super) fn bad<'a>(&self, plan: &'a Plan) -> impl Iterator<Item = &'a str> {
        let pairs = plan.checks.iter().zip(&self.checks);
        pairs.filter(|(_, verdict)| verdict.is_bad()).map(|(check, _)| check.name.as_str())
    }

    /// Returns the names of [`bad`](Self::bad), each with the name of the kernel.
    pub(super) fn failed(&self, plan: &Plan) -> Vec<String> {
        self.bad(plan).map(|name| format!("{name} on {}", self.kernel)).collect()
    }
}

impl Verdict {
    fn of(status: Option<i32>, log: &str) -> Self {
        match status {
            None => Self::NotRun,
            Some(0) => Self::Passed(passed(log)),
            Some(NOT_HERE_STATUS) => Self::NotHere,
            Some(_) => {
                // A set, because a test that runs itself in another process is listed twice.
                let failed: BTreeSet<_> = log
                    .lines()
                    .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
                    .collect();
                Self::Failed(failed.into_iter().map(str::to_owned).collect())
            }
        }
    }

    pub(super) fn is_bad(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::NotRun)
    }

    /// Describes the outcome in a few words.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Passed(None) => "passed".into(),
            Self::Passed(Some(Passed { run, skipped: 0 })) => format!("{run} passed"),
            Self::Passed(Some(Passed { run, skipped })) => {
                format!("{run} passed, {skipped} skipped")
            }
            Self::Failed(tests) if tests.is_empty() => "FAILED".into(),
            Self::Failed(tests) => format!("{} FAILED", tests.len()),
            Self::NotHere => "not here".into(),
            Self::NotRun => "NOT RUN".into(),
        }
    }
}

/// Returns the exit status in a line of `outcomes` if it has this name.
fn outcome(line: &str, name: &str) -> Option<i32> {
    let mut fields = line.split('\t');
    fields.next().filter(|first| *first == name)?;
    fields.next()?.parse().ok()
}

/// Counts passed and skipped tests in the output of the test harness. With `--show-output` it
/// contains what each test printed.
fn passed(log: &str) -> Option<Passed> {
    let line = log.lines().rev().find_map(|line| line.strip_prefix("test result: ok. "))?;
    let passed: u32 = line.split_whitespace().next()?.parse().ok()?;
    let outputs = log.split("\n---- ").skip(1);
    let is_skipped = |output: &&str| output.lines().any(|line| line.starts_with("skipped"));
    let skipped = outputs.filter(is_skipped).count() as u32;
    Some(Passed { run: passed.saturating_sub(skipped), skipped })
}

/// Reads a file; a file that cannot be read counts as empty.
fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_distinguished() {
        let failed = "test b::c ... FAILED\n";
        let log = format!("test a ... ok\n{failed}{failed}test result: FAILED. 1 passed; 1 failed");
        assert_eq!(Verdict::of(Some(101), &log), Verdict::Failed(vec!["b::c".into()]));
        assert_eq!(
            Verdict::of(Some(0), "test result: ok. 58 passed; 0"),
            Verdict::Passed(Some(Passed { run: 58, skipped: 0 }))
        );
        let said = "successes:\n\n---- a stdout ----\nskipped: no ring\n\n---- b stdout ----\nall well\n\nsuccesses:\n    a\n    b\n";
        let log = format!("test a ... ok\ntest b ... ok\n\n{said}\ntest result: ok. 2 passed; 0");
        let verdict = Verdict::of(Some(0), &log);
        assert_eq!(verdict, Verdict::Passed(Some(Passed { run: 1, skipped: 1 })));
        assert_eq!(verdict.words(), "1 passed, 1 skipped");
        assert_eq!(Verdict::of(Some(77), ""), Verdict::NotHere);
        assert!(Verdict::of(None, "").is_bad() && Verdict::of(Some(124), "").is_bad());
        assert_eq!(outcome("doctor\t0\t3", "doctor"), Some(0));
        assert_eq!(outcome("doctor\t0\t3", "doc"), None);
    }

    #[test]
    fn unexpected_driver_fails_the_doctor() {
        let doctor = serde_json::json!({ "driver": { "kind": "epoll" } });
        let checks = vec![Verdict::Passed(None)];
        let mut results = Results { kernel: "6.1".into(), checks, doctor };
        results.expect_driver("epoll");
        assert_eq!(results.checks[0], Verdict::Passed(None));
        results.expect_driver("uring");
        assert!(results.checks[0].is_bad());
    }
}
