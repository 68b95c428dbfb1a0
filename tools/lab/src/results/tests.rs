use std::cell::Cell as Counter;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::rc::Rc;

use super::*;
use crate::bench::tests::StopAfter;
use crate::bench::{Measure, Outcome, Prepared, Rounds, Sample};
use crate::proc::Memory;
use crate::scratch::tests::directory;

const NAMES: [&str; 2] = ["a", "b"];

/// Counts slices, and fails those of contender 1 in round 1.
struct Counting(Rc<Counter<usize>>);

impl Measure for Counting {
    fn measure(&mut self, slice: Slice) -> Outcome {
        self.0.set(self.0.get() + 1);
        match slice {
            Slice { round: 1, contender: 1, .. } => Err("reset by the \"peer\"\n".into()),
            Slice { round, contender, .. } => {
                Ok(crate::bench::tests::sample(2.1 + (round * contender) as f64 / 7.0))
            }
        }
    }

    fn memory(&self) -> Vec<Option<Memory>> {
        vec![Some(Memory { resident_bytes: 1, virtual_bytes: 2 }), None, None]
    }
}

/// Measures `rounds` rounds until `until` slices are done. The first contender's arguments contain
/// the directory of the run and a port. Returns the results, and how many slices were measured.
fn run(path: &Path, rounds: usize, until: usize) -> anyhow::Result<(Results, usize)> {
    let scratch = directory();
    let mut bench = crate::bench::tests::bench(&NAMES);
    bench.plan.rounds = Rounds::fixed(rounds);
    let words = format!("--dir={}/x 127.0.0.1:{}", scratch.path().display(), std::process::id());
    bench.contenders.specs[0].arguments.push(words.into());
    let measured = Rc::new(Counter::new(0));
    let measure = Box::new(Counting(Rc::clone(&measured)));
    let prepared = Prepared { bench, measure, scratch: Some(scratch) };
    let results = super::measure(prepared, None, path, &mut StopAfter::slices(until))?;
    Ok((results, measured.get()))
}

fn json(report: &Report) -> serde_json::Value {
    serde_json::to_value(report).expect("serialization failed")
}

#[test]
fn reading_a_file_returns_the_measured_results() {
    let directory = directory();
    let path = directory.path().join("run/test.jsonl");
    let (results, measured) = run(&path, 8, usize::MAX).expect("the run failed");
    assert!(results.is_finished() && results.finished().is_some());
    assert_eq!((measured, results.record().slices().len(), results.resumed()), (24, 24, 0));
    let report = results.report();
    assert_eq!(report.failures().count(), 1);
    assert_eq!(report.memory[0].after, Some(Memory { resident_bytes: 1, virtual_bytes: 2 }));
    let mut expected = crate::bench::tests::bench(&NAMES);
    expected.plan.rounds = Rounds::fixed(8);
    let mut same = Report::new(&expected, results.record(), results.environment());
    same.memory.clone_from(&report.memory);
    same.settings.contenders.specs[0].arguments.push("--dir={dir}/x 127.0.0.1:{port}".into());
    assert_eq!(json(&report), json(&same));
    assert_eq!(
        json(&Results::read(&path).expect("the results cannot be read").report()),
        json(&report)
    );
    assert!(results.suite().is_none());
}

#[test]
fn an_interrupted_run_resumes_with_the_missing_slices() {
    let directory = directory();
    let whole =
        run(&directory.path().join("whole.jsonl"), 8, usize::MAX).expect("the run failed").0;
    let path = directory.path().join("parts.jsonl");
    let (part, measured) = run(&path, 8, 10).expect("the run failed");
    assert_eq!((part.is_finished(), measured), (false, 10));
    assert!(part.report().warnings[0].starts_with("interrupted after 10 of 24 slices"));
    // Appends a part of a line, as if the run was killed while writing it.
    let mut file = OpenOptions::new().append(true).open(&path).expect("the file cannot be opened");
    file.write_all(b"{\"slice\":{\"round\":7,").expect("the file cannot be written");
    assert_eq!(
        Results::read(&path).expect("the results cannot be read").record().slices().len(),
        10
    );
    let (results, measured) = run(&path, 8, usize::MAX).expect("the run failed");
    assert_eq!((measured, results.resumed(), results.is_finished()), (14, 1, true));
    assert_eq!(json(&results.report())["samples"], json(&whole.report())["samples"]);
    assert_eq!(json(&results.report())["results"], json(&whole.report())["results"]);
    let warnings = results.report().warnings;
    let warning = warnings.last().expect("there is no warning");
    assert!(warning.starts_with("interrupted once and resumed: "), "{warning}");
}

#[test]
fn a_run_killed_after_its_last_slice_measures_nothing_more() {
    let directory = directory();
    let path = directory.path().join("test.jsonl");
    assert!(!run(&path, 8, 24).expect("the run failed").0.is_finished());
    let (results, measured) = run(&path, 8, usize::MAX).expect("the run failed");
    assert_eq!((measured, results.is_finished()), (0, true));
}

#[test]
fn compressed_results_are_read_but_not_resumed() {
    let directory = directory();
    let plain = directory.path().join("test.jsonl");
    let compressed = directory.path().join("test.jsonl.gz");
    let compress = || {
        let file = fs::File::create(&compressed).expect("the compressed file cannot be created");
        let mut writer = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        writer
            .write_all(&fs::read(&plain).expect("the plain file cannot be read"))
            .expect("compression failed");
        writer.finish().expect("compression failed");
    };
    run(&plain, 8, 5).expect("the run failed");
    compress();
    let error =
        run(&compressed, 8, usize::MAX).expect_err("a compressed file was resumed").to_string();
    assert!(error.contains("test.jsonl.gz") && error.contains("decompress it"), "{error}");
    let (whole, _) = run(&plain, 8, usize::MAX).expect("the run failed");
    compress();
    let (read, measured) = run(&compressed, 8, usize::MAX).expect("the run failed");
    assert_eq!((measured, json(&read.report())), (0, json(&whole.report())));
    assert_eq!(run_name(&compressed), run_name(&plain));
    let cut = fs::read(&compressed).expect("the compressed file cannot be read");
    fs::write(&compressed, &cut[..cut.len() / 2]).expect("the file cannot be written");
    let error = Results::read(&compressed).expect_err("a truncated file was read").to_string();
    assert!(error.contains("cannot decompress") && error.contains("test.jsonl.gz"), "{error}");
}

#[test]
fn another_definition_is_refused_even_for_a_finished_run() {
    let directory = directory();
    let path = directory.path().join("test.jsonl");
    run(&path, 8, 5).expect("the run failed");
    let error = run(&path, 9, usize::MAX).expect_err("a run with other rounds was resumed");
    let text = error.to_string();
    assert!(
        error.is::<crate::UsageError>() && text.contains("bench.rounds is 8 in the file and 9 now"),
        "{text}"
    );
    let text = fs::read_to_string(&path).expect("the file cannot be read");
    fs::write(&path, text.replacen("\"kernel\":\"", "\"kernel\":\"1.", 1))
        .expect("the file cannot be written");
    let error =
        run(&path, 8, usize::MAX).expect_err("a run of another machine was resumed").to_string();
    assert!(error.contains("environment.kernel is \"1."), "{error}");
    let other = match cfg!(debug_assertions) {
        true => text.replacen("\"debug_build\":true,", "", 1),
        false => text.replacen("\"commit\":", "\"debug_build\":true,\"commit\":", 1),
    };
    fs::write(&path, other).expect("the file cannot be written");
    let error =
        run(&path, 8, usize::MAX).expect_err("a run of another build was resumed").to_string();
    assert!(error.contains("environment.debug_build is "), "{error}");
    fs::write(&path, text).expect("the file cannot be written");
    run(&path, 8, usize::MAX).expect("the run failed");
    assert_eq!(run(&path, 8, usize::MAX).expect("the run failed").1, 0, "nothing is measured");
    let error =
        run(&path, 9, usize::MAX).expect_err("a run with other rounds was resumed").to_string();
    assert!(
        error.contains("test.jsonl") && error.contains("is 8 in the file and 9 now"),
        "{error}"
    );
}

#[test]
fn errors_name_the_file_the_line_and_what_to_do() {
    let directory = directory();
    let path = directory.path().join("test.jsonl");
    run(&path, 8, 2).expect("the run failed");
    let good = fs::read_to_string(&path).expect("the file cannot be read");
    let header = good.lines().next().expect("the file has no line").to_owned();
    let slice = good.lines().nth(1).expect("the file has no slice").to_owned();
    let of = |text: &str| {
        fs::write(&path, text).expect("the file cannot be written");
        Results::read(&path).expect_err(text).to_string()
    };
    for (text, parts) in [
        (String::new(), ["line 1 is missing or truncated", "remove the file"]),
        (header[..50].to_owned(), ["line 1 is missing or truncated", "remove the file"]),
        ("{\"run\":1}\n".into(), ["line 1 is not the header of a results file", "annulus bench"]),
        ("\u{0}\n".into(), ["line 1 is not the header", ".jsonl"]),
        (
            header.replacen("\"version\":1", "\"version\":2", 1),
            ["line 1: version 2", "reads version 1"],
        ),
        (
            header.replacen("\"idle\":null", "\"idle\":\"long\"", 1) + "\n",
            ["line 1: it is not a definition", "long"],
        ),
        (format!("{header}\n{slice}\nnonsense\n"), ["line 3: it is not a result", "measure again"]),
        (
            format!(
                "{header}\n{{\"slice\":{{\"round\":0,\"cell\":1,\"contender\":0,\"error\":\"\"}}}}\n"
            ),
            ["line 2: cell 1 and contender 0", "there are 1 and 3"],
        ),
        (
            format!("{header}\n{{\"slice\":{{\"round\":0,\"cell\":0,\"contender\":0}}}}\n"),
            ["line 2: a slice needs", "a sample or an error"],
        ),
    ] {
        let error = of(&text);
        assert!(
            error.contains("test.jsonl") && parts.iter().all(|part| error.contains(part)),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let missing = Results::read(&directory.path().join("none"))
        .expect_err("a missing file was read")
        .to_string();
    assert!(missing.contains("none: No such file"), "{missing}");
}

/// `/dev/full` rejects every write.
#[test]
fn a_full_disk_ends_the_run_and_names_the_file() {
    let directory = directory();
    let path = directory.path().join("test.jsonl");
    let (results, _) = run(&path, 8, 3).expect("the run failed");
    fs::remove_file(&path).expect("the file cannot be removed");
    std::os::unix::fs::symlink("/dev/full", &path).expect("the link cannot be created");
    let places = header::DirectoryPlaceholders::new(None);
    let mut log = log::Log::at(&results.path, places).expect("the file cannot be opened");
    let slice = Slice { round: 7, cell: 0, contender: 0 };
    let error = log.slice(slice, &Ok(Sample::default())).expect_err("a full disk accepted a line");
    let text = format!("{error:#}");
    assert!(text.contains("test.jsonl") && text.contains("No space left"), "{text}");
    assert!(text.contains("free space"), "{text}");
}
