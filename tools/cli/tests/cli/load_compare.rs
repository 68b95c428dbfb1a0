//! `annulus load compare`.

use crate::common::{Scratch, annulus};
use crate::sample_recordings::{recording, write};
use annulus_load::recording::{Recording, RunInfo};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes five runs, with latencies multiplied by `factor`.
fn runs(directory: &Path, name: &str, factor: f64) -> Vec<PathBuf> {
    let seed = name.bytes().map(u64::from).sum::<u64>();
    let run = |n| write(directory, &format!("{name}{n}.json"), &recording(seed + n, factor));
    (0..5).map(run).collect()
}

fn compare(a: &[PathBuf], b: &[PathBuf], options: &[&str]) -> crate::common::Finished {
    let mut args: Vec<PathBuf> = vec!["load".into(), "compare".into()];
    args.extend_from_slice(a);
    args.push("--with".into());
    args.extend_from_slice(b);
    args.extend(options.iter().map(PathBuf::from));
    annulus(args)
}

#[test]
fn only_runs_that_differ_are_called_different() {
    let directory = Scratch::new("compare");
    let [before, same] = ["before", "same"].map(|name| runs(&directory, name, 1.0));
    let slower = runs(&directory, "slower", 1.1);

    let equal = compare(&before, &same, &["--fail-if", "different"]);
    assert_eq!((equal.code, equal.stderr.as_str()), (Some(0), ""), "{equal:?}");
    assert!(!equal.stdout.contains("B is"), "{equal:?}");

    let different = compare(&before, &slower, &[]);
    assert_eq!(different.code, Some(0), "{different:?}");
    assert!(different.stdout.contains("  worse\n"), "{different:?}");
    assert!(different.stdout.contains("B is worse: p50 10"), "{different:?}");
    assert!(different.stdout.lines().all(|line| line.chars().count() <= 80), "{different:?}");

    let json = compare(&before, &slower, &["--json", "-", "--fail-if", "worse"]);
    json.fails_with(1, &["B is worse than A: p50, p99, p99.9, mean"]);
    let json = json.json();
    assert_eq!(
        (&json["format"], &json["verdict"]),
        (&"annulus-load-comparison".into(), &"worse".into())
    );
    assert_eq!(json["files"][1].as_array().map(Vec::len), Some(5));

    // With the sides swapped, B is better.
    let better = compare(&slower, &before, &["--fail-if", "worse"]);
    assert_eq!(better.code, Some(0), "{better:?}");
}

#[test]
fn different_plans_and_single_runs_are_reported() {
    let directory = Scratch::new("compare-plans");
    let mut other = recording(2, 1.0);
    other.run.connections = 70;
    let files =
        [write(&directory, "a.json", &recording(1, 1.0)), write(&directory, "b.json", &other)];
    let found = annulus(["load".into(), "compare".into()].into_iter().chain(files));
    for part in
        ["≠   connections: 50 | 70", "! A and B: the intervals of one run come from 6 blocks"]
    {
        assert!(found.stdout.contains(part), "{part} is not in {found:?}");
    }
}

#[test]
fn incomparable_recordings_are_refused() {
    let directory = Scratch::new("compare-refused");
    let [good, other] =
        ["good.json", "other.json"].map(|name| write(&directory, name, &recording(1, 1.0)));
    let empty = write(&directory, "empty.json", &Recording::new(RunInfo::default()));
    let text = directory.join("text.json");
    fs::write(&text, "no recording").unwrap();
    let [good, other, empty, text] =
        [good, other, empty, text].map(|path| path.to_str().unwrap().to_owned());
    let refused = |args: &[&str], code, parts: &[&str]| {
        annulus(["load", "compare"].iter().chain(args)).fails_with(code, parts);
    };
    refused(&[&good], 2, &["without --with two recordings", "not 1"]);
    refused(&[&good, &other, &good], 2, &["not 3", "--with"]);
    refused(&[&good, &good, "--with", &other], 2, &["given twice in A"]);
    refused(&[&good, &empty], 2, &["empty.json", "run 1 of B measured nothing"]);
    refused(&[&good, &text], 2, &["text.json", "not a recording of annulus load"]);
    refused(&[&good, "nothing.json"], 2, &["nothing.json", "No such file"]);
    let missing = directory.join("missing/out.json");
    let unwritable = [&good, &other, "--json", missing.to_str().unwrap()];
    refused(&unwritable, 2, &["missing/out.json", "choose another file"]);
    // Every write to it fails. The comparison is still shown.
    let full = annulus(["load", "compare", &good, &other, "--json", "/dev/full"]);
    full.fails_with(2, &["cannot write /dev/full", "No space left"]);
    assert!(full.stdout.contains("The same within 3 %: rate"), "{full:?}");
    refused(
        &[&good, &other, "--margin", "-1"],
        2,
        &["the margin of -1 % is out of range", "use 0 to 1000 %"],
    );
    refused(&[&good, &other, "--json", &other], 2, &["other.json", "write to another file"]);
    assert!(Recording::open(&other).is_ok(), "the input was overwritten");
}
