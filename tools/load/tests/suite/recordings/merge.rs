//! Several recordings as one.

use annulus_load::recording::{
    Alignment, Interval, Latencies, Machine, Recording, RunInfo, WorkloadKind, merge,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn interval(start: f64, latencies: &[u64]) -> Interval {
    let response = Latencies::from_iter(latencies.iter().copied());
    Interval { answered: response.len(), response, ..Interval::new(start, 1.0) }
}

/// A recording of three seconds, with a latency each, on a machine of its own.
fn recording(host: &str, started: f64) -> Recording {
    let machine = Machine { host: host.into(), boot: host.into(), ..Machine::default() };
    let run = RunInfo {
        machine,
        started,
        clients: 10,
        threads: 1,
        rate: Some(100.0),
        interval: 1.0,
        duration: 3.0,
        schedule: "100 a second".into(),
        ..RunInfo::default()
    };
    let intervals = (0..3).map(|second| interval(second.into(), &[second as u64 + 1])).collect();
    Recording { seconds: 3.0, cpu_seconds: 0.5, intervals, ..Recording::new(run) }
}

fn named<const N: usize>(recordings: [Recording; N]) -> [(String, Recording); N] {
    let mut names = "abcdef".chars().map(String::from);
    recordings.map(|recording| (names.next().unwrap(), recording))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every sample belongs to one of four ranks and to one of three seconds.
    #[test]
    fn four_ranks_merged_are_equal_to_one_recording_of_all_samples(
        samples in proptest::collection::vec((0_usize..4, 0_usize..3, 1_u64..10_000_000), 1..400),
    ) {
        let seconds = |keep: &dyn Fn(usize) -> bool| {
            let of = |second| samples.iter().filter(move |sample| sample.1 == second && keep(sample.0));
            let latencies = |second| of(second).map(|sample| sample.2).collect::<Vec<_>>();
            (0..3).map(|second| interval(second as f64, &latencies(second))).collect::<Vec<_>>()
        };
        let ranks = [0, 1, 2, 3].map(|rank| Recording {
            intervals: seconds(&|of| of == rank),
            ..recording(&rank.to_string(), 50.0 + rank as f64 / 100.0)
        });
        let merged = merge(&named(ranks), Alignment::Clocks).unwrap();
        prop_assert_eq!(&merged.intervals, &seconds(&|_| true));
        let all = samples.iter().map(|sample| sample.2).collect::<Latencies>();
        prop_assert_eq!(merged.total().response, all);
    }
}

#[test]
fn counts_are_added_and_the_parts_are_kept() {
    let mut second = recording("two", 100.25);
    second.errors = BTreeMap::from([("reset".into(), 2)]);
    second.first_error = Some("client 1: reset".into());
    second.first_refusal = Some("-ERR".into());
    second.doubts = vec!["few samples".into()];
    second.interrupted = true;
    let merged = merge(&named([recording("one", 100.0), second]), Alignment::Clocks).unwrap();
    assert_eq!((merged.run.clients, merged.run.threads, merged.run.rate), (20, 2, Some(200.0)));
    assert_eq!((merged.seconds, merged.cpu_seconds, merged.interrupted), (3.25, 1.0, true));
    assert_eq!(merged.run.machine.host, "one, two");
    assert_eq!(
        (merged.errors["reset"], merged.first_error.as_deref()),
        (2, Some("b: client 1: reset"))
    );
    assert_eq!(merged.first_refusal.as_deref(), Some("b: -ERR"));
    let parts: Vec<_> =
        merged.parts.iter().map(|part| (part.name.as_str(), part.responses, part.shift)).collect();
    assert_eq!(parts, [("a", 3, 0.0), ("b", 3, 0.25)]);
    assert_eq!(merged.doubts.len(), 2, "{:?}", merged.doubts);
    assert_eq!(merged.doubts[0], "b: few samples");
    assert!(
        merged.doubts[1].contains("up to 0.250 s apart")
            && merged.doubts[1].contains("2.750 s only")
    );
}

/// A merge of merges has the same sum.
#[test]
fn the_order_of_merging_does_not_matter() {
    let [a, b, c] = ["a", "b", "c"].map(|host| (host.to_owned(), recording(host, 100.0)));
    let at_once = merge(&[a.clone(), b.clone(), c.clone()], Alignment::Clocks).unwrap();
    let two = merge(&[b, c], Alignment::Clocks).unwrap();
    let in_steps = merge(&[a, ("bc".into(), two)], Alignment::Clocks).unwrap();
    assert_eq!(at_once, in_steps);
}

#[test]
fn intervals_are_placed_by_when_each_run_began() {
    let starts = |merged: Recording| {
        merged.intervals.iter().map(|i| (i.start, i.answered)).collect::<Vec<_>>()
    };
    let parts = named([recording("one", 100.0), recording("two", 101.0)]);
    let merged = merge(&parts, Alignment::Clocks).unwrap();
    assert_eq!(starts(merged), [(0.0, 1), (1.0, 2), (2.0, 2), (3.0, 1)]);
    let merged = merge(&parts, Alignment::Starts).unwrap();
    assert_eq!((merged.seconds, starts(merged)), (3.0, vec![(0.0, 2), (1.0, 2), (2.0, 2)]));
}

#[test]
fn differences_of_the_plans_are_said() {
    let mut other = recording("two", 100.0);
    other.run.pipeline = 16;
    other.run.schedule = "200 a second".into();
    let merged = merge(&named([recording("one", 100.0), other]), Alignment::Clocks).unwrap();
    let wanted = [
        "the plans differ, in their schedule: 100 a second in a, 200 a second in b",
        "the plans differ, in their requests in flight a connection: 0 in a, 16 in b",
    ];
    assert_eq!(merged.doubts, wanted);
    assert_eq!(merged.run.schedule, "100 a second, 200 a second");
}

#[track_caller]
fn refused(recordings: &[(String, Recording)], parts: &[&str]) {
    let error = merge(recordings, Alignment::Clocks).unwrap_err().to_string();
    parts.iter().for_each(|part| assert!(error.contains(part), "{part} is not in: {error}"));
}

#[test]
fn what_cannot_be_added_is_refused() {
    refused(&[], &["no recording to merge"]);
    let one = recording("one", 100.0);
    refused(&named([one.clone(), one.clone()]), &["a and b are the same recording"]);
    let mut other = recording("two", 100.0);
    other.run.protocol = "http".into();
    refused(&named([one.clone(), other]), &["the protocol is '' in one and 'http'"]);
    let mut other = recording("two", 100.0);
    other.run.workload = WorkloadKind::Datagrams;
    refused(&named([one.clone(), other]), &["connections that stay open", "'datagrams'"]);
    let other = Recording { classes: vec!["read".into()], ..recording("two", 100.0) };
    refused(&named([one.clone(), other]), &["classes of requests", "'read'"]);
    let mut other = recording("two", 100.0);
    other.run.interval = 2.0;
    refused(&named([one.clone(), other]), &["length of an interval", "'2 s'"]);
    let apart = named([recording("two", 103.5), one]);
    refused(&apart, &["a began 0.500 s after b had ended", "--ignore-clocks"]);
    assert!(merge(&apart, Alignment::Starts).is_ok());
}

/// Its client could not connect, so that it has no start.
#[test]
fn a_run_that_measured_nothing_adds_its_errors() {
    let failed = Recording {
        seconds: 0.0,
        intervals: Vec::new(),
        errors: BTreeMap::from([("connect refused".into(), 1)]),
        ..recording("two", 0.0)
    };
    let merged = merge(&named([failed, recording("one", 100.0)]), Alignment::Clocks).unwrap();
    assert_eq!((merged.seconds, merged.run.started), (3.0, 100.0));
    assert_eq!(merged.errors["connect refused"], 1);
}
