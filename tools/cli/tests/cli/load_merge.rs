//! `annulus load merge`.

use crate::common::{Finished, annulus};
use annulus_load::recording::{Interval, Latencies, Machine, Recording, RunInfo};
use serde_json::Value;
use std::fs::{self, File};
use std::path::PathBuf;

/// A directory for the files of a test; removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind if a test has failed to remove it, which is no failure of the code.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The latencies of a rank in a second, in ns.
fn latencies(rank: u64, second: u64) -> impl Iterator<Item = u64> {
    (1..=500).map(move |n| (n * 7919 + rank * 104_729 + second * 1_299_709) % 50_000_000)
}

/// What a rank has recorded.
fn recording(rank: u64) -> Recording {
    let run = RunInfo {
        machine: Machine {
            host: format!("host{rank}"),
            boot: rank.to_string(),
            ..Machine::default()
        },
        started: 1_700_000_000.0,
        address: "192.0.2.1:7000".into(),
        protocol: "echo".into(),
        clients: 25,
        threads: 2,
        interval: 1.0,
        ..RunInfo::default()
    };
    let interval = |second: u64| {
        let response = Latencies::from_iter(latencies(rank, second));
        Interval { answered: 500, sent: 500, response, ..Interval::new(second as f64, 1.0) }
    };
    Recording {
        seconds: 3.0,
        cpu_seconds: 1.5,
        intervals: (0..3).map(interval).collect(),
        ..Recording::new(run)
    }
}

/// Writes the recordings of these ranks; returns their paths.
fn written(scratch: &Scratch, ranks: std::ops::Range<u64>) -> Vec<String> {
    let write = |rank| {
        let path = scratch.path(&format!("rank{rank}.json"));
        recording(rank).write(File::create(&path).unwrap()).unwrap();
        path
    };
    ranks.map(write).collect()
}

fn merge(files: &[String], more: &[&str]) -> Finished {
    let files = files.iter().map(String::as_str);
    annulus(["load", "merge"].into_iter().chain(files).chain(more.iter().copied()))
}

#[test]
fn four_ranks_are_one_recording_of_all_samples() {
    let scratch = Scratch::new("merge-four");
    let (files, all) = (written(&scratch, 0..4), scratch.path("all.json"));
    let finished = merge(&files, &["-o", &all]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let merged = Recording::open(&all).unwrap();
    for (second, interval) in (0..3).zip(&merged.intervals) {
        let samples = (0..4).flat_map(|rank| latencies(rank, second));
        assert_eq!(interval.response, Latencies::from_iter(samples), "second {second}");
    }
    assert_eq!((merged.run.clients, merged.seconds, merged.parts.len()), (100, 3.0, 4));
    assert_eq!(merged.doubts, [""; 0]);
    for part in [
        "100 clients",
        "6,000 in 3.000 s",
        "2,000",
        "p99 ",
        "6,000: too few for p99.9",
        "200.0 % of a core",
    ] {
        assert!(finished.stdout.contains(part), "'{part}' is not in:\n{}", finished.stdout);
    }
    let text: String = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("clocks each machine's own"), "{text}");
    assert!(finished.stdout.lines().all(|line| line.chars().count() <= 80), "{}", finished.stdout);
}

#[test]
fn the_sum_goes_to_standard_output_and_into_logs() {
    let scratch = Scratch::new("merge-logs");
    let (files, hdr) = (written(&scratch, 0..2), scratch.path("a.hdr"));
    let finished = merge(&files, &["-o", "-", "--hdr", &hdr, "--label", "both"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let json: Value = finished.json();
    assert_eq!((&json["responses"], &json["run"]["label"]), (&3000.into(), &"both".into()));
    let log = fs::read_to_string(&hdr).unwrap();
    assert!(log.starts_with("#[Histogram log format version 1.3]\n"), "{log}");
    assert!(log.contains("#[BaseTime: 1700000000.000 ") && log.contains("\n2.000,1.000,"), "{log}");
}

#[test]
fn files_that_are_no_recordings_are_named_with_what_they_are() {
    let scratch = Scratch::new("merge-wrong");
    let good = written(&scratch, 0..1).remove(0);
    let text = fs::read_to_string(&good).unwrap();
    let file = |name: &str, text: &str| {
        let path = scratch.path(name);
        fs::write(&path, text).unwrap();
        path
    };
    let other_version = text.replace("\"version\": 1", "\"version\": 7");
    for (path, part) in [
        (scratch.path("none.json"), "No such file"),
        (file("text.json", "requests/s 100\n"), "no recording of annulus load"),
        (file("empty.json", ""), "it is empty"),
        (file("cut.json", &text[..text.len() / 2]), "ends in the middle"),
        (file("version.json", &other_version), "version 7 of the format"),
        (
            file("wrong.json", &text.replace("\"length\":1.0", "\"length\":-1")),
            "interval 0 of -1 s",
        ),
        (scratch.0.to_str().unwrap().to_owned(), "directory"),
    ] {
        let finished = merge(&[good.clone(), path.clone()], &[]);
        assert_eq!(finished.stderr.matches(part).count(), 1, "said once: {finished:?}");
        finished.fails_with(1, &[&path, part]);
    }
}

#[test]
fn what_cannot_be_merged_is_refused() {
    let scratch = Scratch::new("merge-refused");
    let files = written(&scratch, 0..1);
    merge(&[files[0].clone(), files[0].clone()], &[])
        .fails_with(1, &["cannot merge", "the same recording"]);
    merge(&[], &[]).fails_with(2, &["RECORDING"]);
    let mut late = recording(1);
    late.run.started += 3600.0;
    let path = scratch.path("late.json");
    late.write(File::create(&path).unwrap()).unwrap();
    let both = [files[0].clone(), path];
    merge(&both, &[]).fails_with(1, &["began 3597.000 s after", "--ignore-clocks"]);
    assert_eq!(merge(&both, &["--ignore-clocks"]).code, Some(0));
}

#[test]
fn a_recording_is_not_written_over_by_its_sum() {
    let scratch = Scratch::new("merge-over");
    let files = written(&scratch, 0..2);
    let before = fs::read(&files[1]).unwrap();
    let link = scratch.path("link.json");
    std::os::unix::fs::symlink(&files[1], &link).unwrap();
    for (option, path) in [("--output", &files[1]), ("--hdr", &files[1]), ("--hdr", &link)] {
        let parts = [path, "a recording that is read: write to another file"];
        merge(&files, &[option, path]).fails_with(2, &parts);
        assert_eq!(fs::read(&files[1]).unwrap(), before, "{option}");
    }
}

/// Every write to the device fails.
#[test]
fn a_full_disk_is_a_failure() {
    let scratch = Scratch::new("merge-full");
    let files = written(&scratch, 0..2);
    merge(&files, &["-o", "/dev/full"]).fails_with(1, &["cannot write /dev/full", "No space left"]);
    let finished = merge(&files, &["--hdr", "/dev/full"]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.stderr.contains("/dev/full lacks 3 of 3 intervals"), "{finished:?}");
    assert!(finished.stdout.contains("requests/s"), "{finished:?}");
}
