use super::*;
use crate::bench::tests::{bench, sample};
use crate::bench::{CORE_DISTANCE_NS, Record, Slice};

/// Creates a record of this many rounds, with a spread of half a percent. `cpu` is by contender,
/// the control last.
fn record(rounds: usize, cpu: &[f64]) -> Record {
    let mut record = Record::new();
    for round in 0..rounds {
        for (contender, cpu) in cpu.iter().enumerate() {
            let noise = 1.0 + ((contender * 7 + round * 5) % 11) as f64 / 2e3;
            record.keep(Slice { round, cell: 0, contender }, Ok(sample(cpu * noise)));
        }
    }
    record
}

fn release_build() -> Environment {
    Environment { debug_build: false, ..Environment::read() }
}

fn compared(old: &[f64], new: &[f64], options: &Options) -> RunComparison {
    let (bench, environment) = (bench(&["a", "b"]), release_build());
    let records = [record(15, old), record(15, new)];
    let [old, new] =
        records.each_ref().map(|record| Run { bench: &bench, record, environment: &environment });
    compare(old, new, options, 0).expect("the runs cannot be compared")
}

fn kinds(comparison: &RunComparison, metric: &str) -> Vec<Verdict> {
    let of = comparison.changes.iter().filter(|change| change.metric == metric);
    of.map(|change| change.verdict).collect()
}

#[test]
fn a_regression_is_worse_in_the_direction_of_each_metric() {
    let found = compared(&[2.0, 4.0, 2.0], &[2.0, 6.0, 2.0], &Options::default());
    for metric in ["cpu_us", "rate", "p99_us"] {
        assert_eq!(kinds(&found, metric), [Verdict::Same, Verdict::Worse], "{metric}");
    }
    let rate = found
        .of(Verdict::Worse)
        .find(|change| change.metric == "rate")
        .expect("the rate did not become worse");
    assert!(rate.new < rate.old && (rate.ratio.median - 2.0 / 3.0).abs() < 0.01, "{rate:?}");
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert!(found.sentence().starts_with("Of 6 figures 3 are worse and 0 better"));
    let back = compared(&[2.0, 6.0, 2.0], &[2.0, 4.0, 2.0], &Options::default());
    assert_eq!(back.of(Verdict::Worse).count(), 0);
    assert_eq!(kinds(&back, "cpu_us"), [Verdict::Same, Verdict::Better]);
}

#[test]
fn differences_below_the_margin_or_the_noise_do_not_count() {
    let small = compared(&[2.0, 4.0, 2.0], &[2.0, 4.04, 2.0], &Options::default());
    assert_eq!(kinds(&small, "cpu_us"), [Verdict::Same; 2]);
    let strict = Options { margin: 0.01, ..Options::default() };
    let small = compared(&[2.0, 4.0, 2.0], &[2.0, 4.12, 2.0], &strict);
    assert_eq!(kinds(&small, "cpu_us"), [Verdict::Same, Verdict::Worse]);
    let noisy = compared(&[2.0, 4.0, 2.0], &[2.0, 5.0, 2.6], &Options::default());
    assert_eq!(kinds(&noisy, "cpu_us")[1], Verdict::Undecided);
    assert!(noisy.warnings[0].contains("moved by up to 3"), "{:?}", noisy.warnings);
}

#[test]
fn a_slower_machine_warns_unless_there_is_a_reference() {
    let slower = [2.4, 6.0, 2.4];
    let found = compared(&[2.0, 4.0, 2.0], &slower, &Options::default());
    assert!(found.warnings[0].contains("all contenders moved alike"), "{:?}", found.warnings);
    let options = Options { reference: Some("a".into()), ..Options::default() };
    let found = compared(&[2.0, 4.0, 2.0], &slower, &options);
    assert_eq!(kinds(&found, "cpu_us"), [Verdict::Worse]);
    assert!((found.changes[0].ratio.median - 1.25).abs() < 0.01 && found.warnings.is_empty());
    let found = compared(&[2.0, 4.0, 2.0], &[2.4, 4.8, 2.4], &options);
    assert_eq!(kinds(&found, "cpu_us"), [Verdict::Same]);
}

#[test]
fn one_sided_contenders_are_listed_and_another_machine_warns() {
    let [mut old_bench, new_bench] = [bench(&["a", "b"]), bench(&["a", "c"])];
    old_bench.cells.push(Cell::new([("connections", 1.into())]));
    old_bench.contenders.specs[0].arguments = vec!["--fast".into()];
    let environment = release_build();
    let other = Environment { cpu: "another".into(), ..environment.clone() };
    let records = [record(5, &[2.0, 4.0, 2.0]), record(5, &[2.0, 4.0, 2.0])];
    let old = Run { bench: &old_bench, record: &records[0], environment: &environment };
    let new = Run { bench: &new_bench, record: &records[1], environment: &other };
    let found = compare(old, new, &Options::default(), 0).expect("the runs cannot be compared");
    assert_eq!(
        found.differences,
        [
            "only the old run has the contenders b",
            "only the new run has the contenders c",
            "only the old run has the cells 1 connection",
            "a was started with other arguments",
        ]
    );
    assert!(found.warnings[0].contains("different machines (processor)"), "{:?}", found.warnings);
    // With five values per group there is an interval of 95 % and of 98.3 %, but not of 99.9 %.
    assert_eq!(kinds(&found, "cpu_us"), [Verdict::Same]);
    let among = compare(old, new, &Options::default(), 100).expect("the runs cannot be compared");
    assert_eq!(kinds(&among, "cpu_us"), [Verdict::Undecided]);
    assert!(among.warnings[1].contains("too few rounds"), "{:?}", among.warnings);
}

#[test]
fn cores_that_were_moved_between_the_runs_warn() {
    let (bench, environment) = (bench(&["a", "b"]), release_build());
    let records = [55.0, 330.0].map(|distance| {
        let mut record = record(15, &[2.0, 4.0, 2.0]);
        let mut sample = sample(2.0);
        sample.set(CORE_DISTANCE_NS, distance);
        record.keep(Slice { round: 0, cell: 0, contender: 0 }, Ok(sample));
        record
    });
    let [old, new] =
        records.each_ref().map(|record| Run { bench: &bench, record, environment: &environment });
    for (runs, words) in [([old, new], Some("a cache line took 55 ns")), ([old, old], None)] {
        let found = compare(runs[0], runs[1], &Options::default(), 0);
        let warnings = found.expect("the runs cannot be compared").warnings;
        assert_eq!(warnings.len(), usize::from(words.is_some()), "{warnings:?}");
        assert!(words.is_none_or(|words| warnings[0].starts_with(words)), "{warnings:?}");
    }
}

#[test]
fn a_debug_build_warns() {
    let (bench, release) = (bench(&["a", "b"]), release_build());
    let debug = Environment { debug_build: true, ..release.clone() };
    let record = record(15, &[2.0, 4.0, 2.0]);
    let run = |environment| Run { bench: &bench, record: &record, environment };
    for (old, new, words) in [
        (&debug, &release, "the old run is of a debug build"),
        (&release, &debug, "the new run is of a debug build"),
        (&debug, &debug, "both runs are of a debug build"),
    ] {
        let found = compare(run(old), run(new), &Options::default(), 0);
        let warnings = found.expect("the runs cannot be compared").warnings;
        assert!(warnings.len() == 1 && warnings[0].starts_with(words), "{warnings:?}");
    }
}

#[test]
fn an_error_of_a_comparison_names_the_cause_and_the_remedy() {
    let (one, mut other, environment) = (bench(&["a", "b"]), bench(&["a"]), Environment::read());
    let full = record(15, &[2.0, 4.0, 2.0]);
    let run = |bench, record| Run { bench, record, environment: &environment };
    let margin = Options { margin: -1.0, ..Options::default() };
    let reference = Options { reference: Some("z".into()), ..Options::default() };
    let empty = Record::new();
    let error = |old, new, options: &Options| {
        compare(old, new, options, 0).expect_err("the runs were compared").to_string()
    };
    let same = run(&one, &full);
    let text = margin.check().expect_err("a negative margin was accepted").to_string();
    assert!(text.starts_with("the margin of -100 % is out of range: use 0 to 1000 %"), "{text}");
    let text = error(same, same, &reference);
    assert!(text.ends_with("has the contenders a, b") && text.contains("'z'"), "{text}");
    let text = error(same, run(&one, &empty), &Options::default());
    assert!(text.starts_with("the runs have no figure in common"), "{text}");
    other.plan.name = "other".into();
    let text = error(same, run(&other, &full), &Options::default());
    assert!(text.starts_with("the old run is of 'test' and the new one of 'other'"), "{text}");
}
