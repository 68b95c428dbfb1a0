//! Tests that were skipped because the machine lacks something.
//!
//! Tests report themselves (`tools/skip`), and a run lists them at its end. In CI, a skipped test
//! fails the run unless `xtask/skips.txt` says why CI cannot run it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result, ensure};

use crate::step::{is_ci, target};

/// The environment variable of `tools/skip`.
pub(crate) const FILE_VARIABLE: &str = "ANNULUS_SKIPPED_TESTS";

/// The tests that CI may skip: `TEST: WHY`.
const LISTED: &str = include_str!("../skips.txt");

/// Skipped tests of all steps so far.
static SKIPPED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns a new file for the tests that one command skips. The command may run in another
/// directory, so the path is absolute.
pub(crate) fn new_file() -> Result<PathBuf> {
    fs::create_dir_all(target())?;
    let path = target().canonicalize()?.join(format!("skipped-{}.txt", std::process::id()));
    fs::write(&path, "").with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

/// Reads and removes the file of a command that has ended.
///
/// # Errors
/// In CI, if a test was skipped that is not listed.
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
        "CI skipped tests: let it run them, or say why it cannot in xtask/skips.txt\n{}",
        unlisted.join("\n")
    );
    Ok(())
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Returns true if the list has the test of a line.
fn is_listed(list: &str, line: &str) -> bool {
    let test = test_of(line);
    list.lines().filter(|line| !line.starts_with('#')).any(|listed| test_of(listed) == test)
}

/// Returns the name in `TEST: REASON`. Names contain `::`, but no space.
fn test_of(line: &str) -> &str {
    line.split_once(": ").map_or(line, |(test, _)| test)
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
    fn only_listed_tests_may_be_skipped() {
        let list = "# files::a: is commented out\nfiles::b: CI has no such disk\n";
        assert!(is_listed(list, "files::b: no disk: attach one"));
        assert!(!is_listed(list, "files::a: no disk"));
        assert!(!is_listed(list, "files::bc: no disk"));
    }

    #[test]
    fn list_says_why_for_each_test() {
        for line in LISTED.lines().filter(|line| !line.starts_with('#')) {
            let why = line.split_once(": ").map(|(_, why)| why.trim());
            assert!(why.is_some_and(|why| why.len() > 10), "{line}: `TEST: WHY`");
        }
    }
}
