//! The violations of the code, counted by rule, on record in `xtask/style/ratchet.txt`: a count may only fall.

use std::fs;
use std::path::PathBuf;

use crate::step::{Failure, root};

/// A rule's name and a count.
pub(super) type Count = (&'static str, usize);

const HEAD: &str = "\
# What the workspace still violates, by rule of `cargo xtask check`: more fails. `cargo xtask check --lower` writes this
# file anew once there is less; nothing raises a number.
";

/// The comparison of counts with those on record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Rules with more than on record: the count, and the one on record.
    pub(super) above: Vec<(Count, usize)>,
    /// Rules with less than on record, likewise.
    pub(super) below: Vec<(Count, usize)>,
}

/// The counts on record. A rule that is not listed allows none.
pub(super) fn read() -> Result<Vec<(String, usize)>, Failure> {
    let text = fs::read_to_string(path()).map_err(|error| failure(&error.to_string()))?;
    parse(&text).map_err(|why| failure(&why))
}

/// Writes these counts.
pub(super) fn write(counts: &[Count]) -> Result<(), Failure> {
    let lines: String = counts.iter().map(|(rule, count)| format!("{rule} {count}\n")).collect();
    fs::write(path(), format!("{HEAD}{lines}")).map_err(|error| failure(&error.to_string()))
}

/// Compares counts with those on record.
pub(super) fn compare(counts: &[Count], known: &[(String, usize)]) -> Verdict {
    let mut verdict = Verdict::default();
    for &(rule, count) in counts {
        let on_record = known.iter().find(|(name, _)| name == rule).map_or(0, |(_, count)| *count);
        match count.cmp(&on_record) {
            std::cmp::Ordering::Greater => verdict.above.push(((rule, count), on_record)),
            std::cmp::Ordering::Less => verdict.below.push(((rule, count), on_record)),
            std::cmp::Ordering::Equal => {}
        }
    }
    verdict
}

fn path() -> PathBuf {
    root().join("xtask").join("style").join("ratchet.txt")
}

fn failure(why: &str) -> Failure {
    Failure::Failed(format!("xtask/style/ratchet.txt: {why}"))
}

fn parse(text: &str) -> Result<Vec<(String, usize)>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let count = |line: &str| {
        let fields = line.split_once(' ');
        let count = fields.and_then(|(rule, count)| Some((rule.to_owned(), count.parse().ok()?)));
        count.ok_or_else(|| format!("'{line}' is not: RULE COUNT"))
    };
    lines.map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_and_less_are_told_apart() {
        let known = parse("# a comment\n\nfiles 2\nwords 10\ncycle 4\n").unwrap();
        let counts =
            [("files", 3), ("words", 9), ("cycle", 4), ("references", 1), ("functions", 0)];
        let verdict = compare(&counts, &known);
        assert_eq!(verdict.above, [(("files", 3), 2), (("references", 1), 0)]);
        assert_eq!(verdict.below, [(("words", 9), 10)]);
    }

    #[test]
    fn a_line_that_is_no_count_is_named() {
        assert_eq!(parse("files two").unwrap_err(), "'files two' is not: RULE COUNT");
    }

    #[test]
    fn what_is_on_record_is_read() {
        assert!(read().ok().is_some_and(|known| known.iter().any(|(rule, _)| rule == "words")));
    }
}
