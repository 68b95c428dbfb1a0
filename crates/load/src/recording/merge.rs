//! Several recordings as one.

use super::{Clocks, Interval, Part, Recording, RunInfo};
use std::collections::BTreeMap;
use std::fmt;

/// Starts this far apart are a doubt, in seconds.
const APART: f64 = 0.1;

/// How the intervals of recordings are brought together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alignment {
    /// By when each run began, as the clocks of the machines tell.
    #[default]
    Clocks,
    /// Each run begins at zero, whatever the clocks tell.
    Starts,
}

/// Why recordings are not merged.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MergeError {
    /// There are none.
    None,
    /// Two are the same: their names.
    Same(String, String),
    /// Two are of runs whose sum has no meaning.
    Different {
        /// What differs.
        what: &'static str,
        /// The name of one, and what it has.
        one: (String, String),
        /// The name of the other, and what it has.
        other: (String, String),
    },
    /// Two had no time in common.
    Apart {
        /// The name of the one that ended.
        ended: String,
        /// The name of the one that began afterwards.
        began: String,
        /// How long after that end, in seconds.
        after: f64,
    },
}

/// Adds recordings of runs that ran at the same time: all counts and histograms exactly, bucket by bucket.
///
/// Each has a name, such as that of its file. Clients, threads, rates and CPU times are added; the measured time is from the
/// first start to the last end. An interval is added to the one that its start is nearest to. What differs between the plans
/// without making the sum meaningless, clocks that were not compared, and starts that lie apart are doubts.
///
/// # Errors
/// If protocols, classes of requests or lengths of intervals differ, if two recordings are the same one, or if two runs had
/// no time in common.
///
/// ```
/// use annulus_load::recording::{Alignment, Interval, Latencies, Recording, RunInfo, merge};
///
/// let recording = |started, nanos: u64| {
///     let second = Interval { answered: 1, response: Latencies::from_iter([nanos]), ..Interval::new(0.0, 1.0) };
///     let run = RunInfo { started, interval: 1.0, clients: 10, ..RunInfo::default() };
///     Recording { seconds: 1.0, intervals: vec![second], ..Recording::new(run) }
/// };
/// let parts = [("a".to_owned(), recording(100.0, 500)), ("b".to_owned(), recording(100.25, 700))];
/// let merged = merge(&parts, Alignment::Clocks).unwrap();
/// assert_eq!((merged.run.clients, merged.seconds), (20, 1.25));
/// assert_eq!(merged.total().response.buckets(), [(500, 1), (700, 1)]);
/// ```
pub fn merge(
    recordings: &[(String, Recording)],
    alignment: Alignment,
) -> Result<Recording, MergeError> {
    let Some((_, first)) = recordings.first() else { return Err(MergeError::None) };
    check(recordings)?;
    let clocks = Clocks::of(recordings.iter().flat_map(|(_, recording)| runs(recording)));
    let shifts = match alignment {
        Alignment::Clocks => shifts(recordings, &clocks)?,
        Alignment::Starts => vec![0.0; recordings.len()],
    };
    let mut merged = Recording::new(sum_of_runs(recordings, &shifts));
    merged.classes.clone_from(&first.classes);
    merged.intervals = intervals(recordings, &shifts, first.run.interval);
    merged.doubts = doubts(recordings, alignment, &clocks, &shifts);
    for ((name, recording), &shift) in recordings.iter().zip(&shifts) {
        merged.interrupted |= recording.interrupted;
        merged.seconds = merged.seconds.max(end(recording, shift));
        merged.cpu_seconds += recording.cpu_seconds;
        for (kind, count) in &recording.errors {
            let sum = merged.errors.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        let first_error = recording.first_error.as_ref().map(|text| format!("{name}: {text}"));
        merged.first_error = merged.first_error.or(first_error);
        merged.parts.extend(parts(name, recording, shift));
    }
    Ok(merged)
}

/// The runs in a recording, which may have been merged itself.
fn runs(recording: &Recording) -> impl Iterator<Item = &RunInfo> + Clone {
    let alone = recording.parts.is_empty().then_some(&recording.run);
    recording.parts.iter().map(|part| &part.run).chain(alone)
}

fn parts(name: &str, recording: &Recording, shift: f64) -> Vec<Part> {
    if recording.parts.is_empty() {
        let Recording { run, interrupted, seconds, .. } = recording;
        let responses = recording.total().answered;
        let (name, run) = (name.to_owned(), run.clone());
        return vec![Part {
            name,
            run,
            interrupted: *interrupted,
            seconds: *seconds,
            responses,
            shift,
        }];
    }
    let own = recording.parts.iter();
    own.map(|part| Part { shift: part.shift + shift, ..part.clone() }).collect()
}

/// When a run ended, in seconds since the first one began; 0 if nothing was measured.
fn end(recording: &Recording, shift: f64) -> f64 {
    if recording.seconds > 0.0 { shift + recording.seconds } else { 0.0 }
}

/// Checks that the sum has a meaning.
fn check(recordings: &[(String, Recording)]) -> Result<(), MergeError> {
    let (first_name, first) = &recordings[0];
    for (place, (name, recording)) in recordings.iter().enumerate().skip(1) {
        let same = recordings[..place].iter().find(|(_, before)| before == recording);
        if let Some((before, _)) = same {
            return Err(MergeError::Same(before.clone(), name.clone()));
        }
        let has = |recording: &Recording| {
            [
                ("protocol", recording.run.protocol.clone()),
                ("classes of requests", recording.classes.join(", ")),
                ("length of an interval", format!("{} s", recording.run.interval)),
            ]
        };
        let mut both = has(first).into_iter().zip(has(recording));
        if let Some(((what, one), (_, other))) = both.find(|(one, other)| one.1 != other.1) {
            let (one, other) = ((first_name.clone(), one), (name.clone(), other));
            return Err(MergeError::Different { what, one, other });
        }
    }
    Ok(())
}

/// By how many seconds each run began after the first one; 0 if nothing was measured.
fn shifts(recordings: &[(String, Recording)], clocks: &Clocks) -> Result<Vec<f64>, MergeError> {
    let started = |recording: &Recording| clocks.started(&recording.run);
    let measured = || recordings.iter().filter(|(_, recording)| recording.seconds > 0.0);
    let first = measured().map(|(_, recording)| started(recording)).fold(f64::INFINITY, f64::min);
    let shift = |recording: &Recording| match recording.seconds > 0.0 {
        true => started(recording) - first,
        false => 0.0,
    };
    let end = |recording: &Recording| shift(recording) + recording.seconds;
    let ended = measured().min_by(|(_, one), (_, other)| end(one).total_cmp(&end(other)));
    let began = measured().max_by(|(_, one), (_, other)| shift(one).total_cmp(&shift(other)));
    if let (Some((ended, one)), Some((began, other))) = (ended, began)
        && shift(other) >= end(one)
    {
        let after = shift(other) - end(one);
        return Err(MergeError::Apart { ended: ended.clone(), began: began.clone(), after });
    }
    Ok(recordings.iter().map(|(_, recording)| shift(recording)).collect())
}

fn sum_of_runs(recordings: &[(String, Recording)], shifts: &[f64]) -> RunInfo {
    let all = || recordings.iter().map(|(_, recording)| &recording.run);
    let first = &recordings[0].1.run;
    let unless_different = |text: fn(&RunInfo) -> &str| {
        let mut texts: Vec<&str> = Vec::new();
        all().map(text).for_each(|text| {
            if !texts.contains(&text) {
                texts.push(text)
            }
        });
        texts.join(", ")
    };
    let mut run = first.clone();
    run.machine.host = unless_different(|run| &run.machine.host);
    run.machine.kernel = unless_different(|run| &run.machine.kernel);
    run.address = unless_different(|run| &run.address);
    run.schedule = unless_different(|run| &run.schedule);
    run.driver = unless_different(|run| &run.driver);
    if !all().all(|run| run.machine.has_the_clock_of(&first.machine)) {
        run.machine.boot.clear();
    }
    let mut measured = recordings.iter().map(|(_, recording)| recording.seconds > 0.0).zip(shifts);
    let zero = measured.position(|(measured, &shift)| measured && shift == 0.0).unwrap_or(0);
    run.started = recordings[zero].1.run.started;
    run.clock.clone_from(&recordings[zero].1.run.clock);
    run.clients = all().fold(0, |sum, run| sum.saturating_add(run.clients));
    run.threads = all().fold(0, |sum, run| sum.saturating_add(run.threads));
    run.rate = all().map(|run| run.rate).sum();
    run.label =
        first.label.clone().filter(|label| all().all(|run| run.label.as_ref() == Some(label)));
    run.length = first.length.filter(|length| all().all(|run| run.length == Some(*length)));
    run
}

/// The intervals of all, each added to the one that its start is nearest to.
fn intervals(recordings: &[(String, Recording)], shifts: &[f64], unit: f64) -> Vec<Interval> {
    let mut merged: BTreeMap<i64, Interval> = BTreeMap::new();
    // A recording without a length of intervals has one at most.
    let unit = if unit > 0.0 { unit } else { f64::MAX };
    for ((_, recording), shift) in recordings.iter().zip(shifts) {
        for interval in &recording.intervals {
            let place = ((interval.start + shift) / unit).round();
            let new = || Interval::new(place * unit, interval.length);
            let sum = merged.entry(place as i64).or_insert_with(new);
            sum.length = sum.length.max(interval.length);
            sum.add(interval);
        }
    }
    merged.into_values().collect()
}

fn doubts(
    recordings: &[(String, Recording)],
    alignment: Alignment,
    clocks: &Clocks,
    shifts: &[f64],
) -> Vec<String> {
    let own = recordings.iter().flat_map(|(name, recording)| {
        recording.doubts.iter().map(move |doubt| format!("{name}: {doubt}"))
    });
    let mut doubts: Vec<String> = own.collect();
    if let (Alignment::Clocks, Clocks::Unknown(why)) = (alignment, clocks) {
        doubts.push(format!(
            "the clocks of the machines were not compared ({why}): when each began is what its own clock says"
        ));
    }
    let latest = shifts.iter().copied().fold(0.0, f64::max);
    if latest > APART {
        let earliest_end =
            recordings.iter().zip(shifts).map(|((_, recording), &shift)| end(recording, shift));
        let earliest_end = earliest_end.filter(|&end| end > 0.0).fold(f64::INFINITY, f64::min);
        doubts.push(format!(
            "the runs began up to {latest:.3} s apart, and all ran together for {:.3} s only: rates are over the whole \
             time; begin together with --start-at",
            earliest_end - latest
        ));
    }
    doubts.extend(differences(recordings));
    doubts
}

/// A property of a run as text.
type Text = fn(&RunInfo) -> String;

/// What differs between the plans, of what may differ.
fn differences(recordings: &[(String, Recording)]) -> impl Iterator<Item = String> {
    let (first_name, first) = &recordings[0];
    let said: [(&str, Text); 5] = [
        ("server", |run| run.address.clone()),
        ("schedule", |run| run.schedule.clone()),
        ("length of messages", |run| {
            run.length.map_or("not fixed".into(), |length| format!("{length} bytes"))
        }),
        ("requests in flight a connection", |run| run.pipeline.to_string()),
        ("planned time", |run| format!("{} s", run.duration)),
    ];
    said.into_iter().filter_map(move |(what, text)| {
        let mut others =
            recordings.iter().filter(|(_, recording)| text(&recording.run) != text(&first.run));
        let (name, other) = others.next()?;
        let (one, other) = (text(&first.run), text(&other.run));
        Some(format!("the plans differ, in their {what}: {one} in {first_name}, {other} in {name}"))
    })
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeError::None => f.write_str("no recording to merge: name one or more"),
            MergeError::Same(one, other) => {
                write!(f, "{one} and {other} are the same recording: name each once")
            }
            MergeError::Different { what, one: (one, has), other: (other, differs) } => write!(
                f,
                "{one} and {other} are of different runs, which cannot be added: the {what} is '{has}' in one and \
                 '{differs}' in the other"
            ),
            MergeError::Apart { ended, began, after } => write!(
                f,
                "{began} began {after:.3} s after {ended} had ended, as their clocks tell: merging is for runs that ran \
                 together (--start-at); if the clocks are wrong, add --ignore-clocks"
            ),
        }
    }
}

impl std::error::Error for MergeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{ClockReading, Latencies, Machine};
    use proptest::prelude::*;

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
            clock: Some(ClockReading { reference: "r:1".into(), ahead: 0.0, uncertainty: 0.0 }),
            ..RunInfo::default()
        };
        let intervals =
            (0..3).map(|second| interval(second.into(), &[second as u64 + 1])).collect();
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
            let mut all = super::super::latencies::empty_histogram();
            samples.iter().for_each(|sample| all.record(sample.2).unwrap());
            prop_assert_eq!(merged.total().response.histogram(), all);
        }
    }

    #[test]
    fn counts_are_added_and_the_parts_are_kept() {
        let mut second = recording("two", 100.25);
        second.errors = BTreeMap::from([("reset".into(), 2)]);
        second.first_error = Some("client 1: reset".into());
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
        let parts: Vec<_> = merged
            .parts
            .iter()
            .map(|part| (part.name.as_str(), part.responses, part.shift))
            .collect();
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
    fn intervals_are_placed_by_the_clocks_that_were_compared() {
        let ahead = |host, started, ahead| {
            let mut recording = recording(host, started);
            recording.run.clock.as_mut().unwrap().ahead = ahead;
            recording
        };
        let starts = |merged: Recording| {
            merged.intervals.iter().map(|i| (i.start, i.answered)).collect::<Vec<_>>()
        };
        let parts = named([ahead("one", 100.0, 0.0), ahead("two", 5101.0, 5000.0)]);
        let merged = merge(&parts, Alignment::Clocks).unwrap();
        assert_eq!(starts(merged), [(0.0, 1), (1.0, 2), (2.0, 2), (3.0, 1)]);
        let merged = merge(&parts, Alignment::Starts).unwrap();
        assert_eq!((merged.seconds, starts(merged)), (3.0, vec![(0.0, 2), (1.0, 2), (2.0, 2)]));
    }

    #[test]
    fn clocks_that_were_not_compared_are_a_doubt() {
        let mut other = recording("two", 100.0);
        other.run.clock = None;
        let parts = named([recording("one", 100.0), other]);
        let merged = merge(&parts, Alignment::Clocks).unwrap();
        assert!(
            merged.doubts[0].contains("that of two was compared with none"),
            "{:?}",
            merged.doubts
        );
        assert!(merge(&parts, Alignment::Starts).unwrap().doubts.is_empty());
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
}
