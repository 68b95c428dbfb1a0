//! Tests that were skipped because the machine lacks something.
//!
//! Tests report themselves (`tools/skip`), and a run lists them at its end. In CI, a skipped test
//! fails the run unless `xtask/skips.txt` says why CI may skip it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::step::{is_ci, target};

/// The environment variable of `tools/skip`.
pub(crate) const FILE_VARIABLE: &str = "ANNULUS_SKIPPED_TESTS";

/// Why CI may skip a test: `REASON => WHY`.
const LISTED: &str = include_str!("../skips.txt");

/// Skipped tests of all steps so far.
static SKIPPED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns a new file for the tests that one command skips. The command may run in another
/// directory, so the path is absolute.
pub(crate) fn new_file() -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(target())?;
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = target().canonicalize()?.join(format!("skipped-{process}-{number}.txt"));
    fs::write(&path, "").with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

/// Reads and removes the file of a command that has ended.
///
/// # Errors
/// Fails in CI if a test was skipped that is not listed.
pub(crate) fn collect(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path)?;
    if let Err(error) = fs::remove_file(path).or_else(ignore_missing) {
        eprintln!("xtask: {}: {error}", path.display());
    }
    let lines: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let unlisted: Vec<_> = lines.iter().filter(|line| !is_listed(LISTED, line)).cloned().collect();
    SKIPPED.lock().expect("a thread panicked with the lock").extend(lines);
    ensure!(
        unlisted.is_empty() || !is_ci(),
        "CI skipped tests: let it run them, or say in xtask/skips.txt why it may skip them\n{}",
        unlisted.join("\n")
    );
    Ok(())
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Returns true if a line contains a reason of the list.
fn is_listed(list: &str, line: &str) -> bool {
    entries(list).any(|(reason, _)| line.contains(reason))
}

/// Returns the reasons in the list, each with why CI may skip a test for it.
fn entries(list: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(" => ").unwrap_or((line, "")))
}

/// Returns a list of the tests that were skipped, or an empty string.
pub(crate) fn report() -> String {
    let skipped = SKIPPED.lock().expect("a thread panicked with the lock");
    if skipped.is_empty() {
        return String::new();
    }
    let lines: String = skipped.iter().map(|line| format!("{line}\n")).collect();
    format!("\n== tests skipped on this machine, or in parts\n{lines}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_may_be_skipped_for_listed_reasons_only() {
        let list = "# no ring => commented out\nno disk => CI has none\n";
        assert!(is_listed(list, "files::a: no disk: attach one"));
        assert!(!is_listed(list, "files::a: no ring"));
    }

    #[test]
    fn each_reason_has_an_explanation() {
        for (reason, why) in entries(LISTED) {
            assert!(reason.len() > 3 && why.len() > 10, "'{reason}' => '{why}'");
        }
    }
}
