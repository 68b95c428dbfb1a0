//! The parts of `check`, `ci` and `weekly`: each has a headline, a time, and a line in the final
//! table.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};

use crate::files::remove;
use crate::step::{Outcome, is_ci, reason_and_report, target};

pub(crate) struct Part {
    /// The name in headlines and in the table.
    name: &'static str,
    /// Whether it must run in CI: being skipped there counts as a failure.
    required: bool,
    run: fn() -> Outcome,
    /// Directories below the target directory that no later part uses. CI removes them, because its
    /// disk is small.
    leaves: &'static [&'static str],
}

impl Part {
    /// Creates a part that CI may not skip.
    pub(crate) const fn required(name: &'static str, run: fn() -> Outcome) -> Self {
        Self { name, required: true, run, leaves: &[] }
    }

    /// Creates a part that is skipped where the machine lacks something.
    pub(crate) const fn wanted(name: &'static str, run: fn() -> Outcome) -> Self {
        Self { required: false, ..Self::required(name, run) }
    }

    /// Makes CI remove these directories below the target directory afterwards.
    pub(crate) const fn leaving(self, leaves: &'static [&'static str]) -> Self {
        Self { leaves, ..self }
    }
}

/// How a part ended.
struct PartResult {
    name: &'static str,
    took: Duration,
    verdict: &'static str,
    /// What was skipped, or the reason of the failure.
    detail: String,
    /// The output of a failure after its reason.
    report: String,
}

const FAILED: &str = "FAILED";

/// Runs every part, even after a failure, so that one run finds all failures; then prints the
/// result of each.
pub(crate) fn run(parts: impl IntoIterator<Item = &'static Part>) -> Outcome {
    let ended: Vec<PartResult> = parts.into_iter().map(|part| attempt(part, is_ci())).collect();
    eprint!("{}\n{}", reports(&ended), table(&ended));
    summary(ended)
}

#[allow(clippy::disallowed_methods)] // The time is only reported.
fn attempt(part: &Part, is_ci: bool) -> PartResult {
    eprintln!("\n== {}", part.name);
    let began = Instant::now();
    let outcome = match (part.run)() {
        Ok(skipped) if part.required && is_ci && !skipped.is_empty() => {
            Err(anyhow!("CI must not skip it; skipped: {}", skipped.join("; ")))
        }
        outcome => outcome,
    };
    let took = began.elapsed();
    let (verdict, detail, report) = match outcome {
        Ok(skipped) if skipped.is_empty() => ("ok", String::new(), String::new()),
        Ok(skipped) => ("skipped", skipped.join("; "), String::new()),
        Err(error) => {
            let (reason, report) = reason_and_report(&error);
            (FAILED, reason, report)
        }
    };
    eprintln!("== {}: {verdict} after {}", part.name, seconds(took));
    if is_ci {
        remove_all(&target(), part.leaves);
    }
    PartResult { name: part.name, took, verdict, detail, report }
}

/// Removes directories, which may be missing.
fn remove_all(above: &Path, directories: &[&str]) {
    for directory in directories {
        if let Err(error) = remove(&above.join(directory)) {
            eprintln!("xtask: {error}");
        }
    }
}

/// Formats the reports of failed parts, each under a headline.
fn reports(ended: &[PartResult]) -> String {
    let failed = ended.iter().filter(|part| !part.report.is_empty());
    failed.map(|part| format!("\n== {} failed\n{}\n", part.name, part.report)).collect()
}

/// Returns everything that was skipped, or an error with everything that failed.
fn summary(ended: Vec<PartResult>) -> Outcome {
    let failed = ended.iter().filter(|part| part.verdict == FAILED);
    let failed: Vec<_> = failed.map(|part| format!("{} ({})", part.name, part.detail)).collect();
    ensure!(failed.is_empty(), failed.join("; "));
    Ok(ended.into_iter().map(|part| part.detail).filter(|detail| !detail.is_empty()).collect())
}

fn table(ended: &[PartResult]) -> String {
    let mut text = String::new();
    for PartResult { name, took, verdict, detail, .. } in ended {
        let line = format!("{name:<14} {verdict:<8} {:>9}  {detail}", seconds(*took));
        _ = writeln!(text, "{}", line.trim_end());
    }
    let total = seconds(ended.iter().map(|part| part.took).sum());
    _ = writeln!(text, "{:<14} {:<8} {total:>9}", "total", "");
    text
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    fn part(required: bool, run: fn() -> Outcome) -> Part {
        Part { required, ..Part::required("a part", run) }
    }

    fn fails() -> Outcome {
        Err(anyhow!("broken"))
    }

    fn skips() -> Outcome {
        Ok(vec!["miri (none here)".into()])
    }

    #[test]
    fn required_part_may_be_skipped_only_outside_ci() {
        assert_eq!(attempt(&part(true, skips), true).verdict, FAILED);
        assert_eq!(attempt(&part(true, skips), false).verdict, "skipped");
        assert_eq!(attempt(&part(false, skips), true).verdict, "skipped");
        assert_eq!(attempt(&part(true, || Ok(Vec::new())), true).verdict, "ok");
    }

    #[test]
    fn only_listed_directories_are_removed() {
        let above = env::temp_dir().join(format!("xtask-part-{}", std::process::id()));
        for name in ["own/below", "shared"] {
            fs::create_dir_all(above.join(name)).unwrap();
        }
        remove_all(&above, &["own", "missing"]);
        assert!(!above.join("own").exists() && above.join("shared").exists());
        remove_all(&above, &["shared"]);
        fs::remove_dir(&above).unwrap();
    }

    #[test]
    fn report_is_printed_once_and_table_and_summary_keep_one_line() {
        let tests = || Err(anyhow!("tests failed\nfailures:\n    one"));
        let ended = vec![attempt(&part(true, tests), false), attempt(&part(false, fails), false)];
        assert_eq!(reports(&ended), "\n== a part failed\nfailures:\n    one\n");
        assert!(table(&ended).lines().next().is_some_and(|line| line.ends_with("tests failed")));
        assert_eq!(
            summary(ended).unwrap_err().to_string(),
            "a part (tests failed); a part (broken)"
        );
    }

    #[test]
    fn parts_after_a_failure_run_and_all_are_reported() {
        let all = [part(false, fails), part(false, skips), part(false, || Ok(Vec::new()))];
        let ended: Vec<PartResult> = all.iter().map(|part| attempt(part, false)).collect();
        let table = table(&ended);
        let lines: Vec<&str> = table.lines().collect();
        let [failed, skipped, passed, total] = lines[..] else { panic!("{table}") };
        assert!(failed.contains("FAILED") && failed.ends_with("broken"), "{table}");
        assert!(skipped.contains("skipped") && skipped.ends_with("miri (none here)"), "{table}");
        assert!(passed.contains(" ok ") && total.starts_with("total"), "{table}");
        assert_eq!(summary(ended).unwrap_err().to_string(), "a part (broken)");
    }
}
