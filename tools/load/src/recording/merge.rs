//! Several recordings as one.

use super::{Interval, Part, Recording, RunInfo};
use std::collections::BTreeMap;

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
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There are none.
    #[error("no recording to merge: name one or more")]
    None,
    /// Two are the same: their names.
    #[error("{0} and {1} are the same recording: name each once")]
    Same(String, String),
    /// Two are of runs whose sum has no meaning.
    #[error(
        "{} and {} are of different runs, which cannot be added: the {what} is '{}' in one and '{}' in the other",
        .one.0, .other.0, .one.1, .other.1
    )]
    Different {
        /// What differs.
        what: &'static str,
        /// The name of one, and what it has.
        one: (String, String),
        /// The name of the other, and what it has.
        other: (String, String),
    },
    /// Two had no time in common.
    #[error(
        "{began} began {after:.3} s after {ended} had ended, as their clocks tell: merging is for runs that ran \
         together (--start-at); if the clocks are wrong, add --ignore-clocks"
    )]
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
/// without making the sum meaningless, and starts that lie apart are doubts.
///
/// # Errors
/// If workloads, protocols, classes of requests or lengths of intervals differ, if two recordings are the same one, or if two runs had
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
    let shifts = match alignment {
        Alignment::Clocks => shifts(recordings)?,
        Alignment::Starts => vec![0.0; recordings.len()],
    };
    let mut merged = Recording::new(sum_of_runs(recordings, &shifts));
    merged.classes.clone_from(&first.classes);
    merged.intervals = intervals(recordings, &shifts, first.run.interval);
    merged.doubts = doubts(recordings, &shifts);
    for ((name, recording), &shift) in recordings.iter().zip(&shifts) {
        merged.interrupted |= recording.interrupted;
        merged.seconds = merged.seconds.max(end(recording, shift));
        merged.cpu_seconds += recording.cpu_seconds;
        for (kind, count) in &recording.errors {
            let sum = merged.errors.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        let named = |text: &String| format!("{name}: {text}");
        merged.first_error = merged.first_error.or(recording.first_error.as_ref().map(named));
        merged.first_refusal = merged.first_refusal.or(recording.first_refusal.as_ref().map(named));
        merged.parts.extend(parts(name, recording, shift));
    }
    Ok(merged)
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
                ("workload", recording.run.workload.to_string()),
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
fn shifts(recordings: &[(String, Recording)]) -> Result<Vec<f64>, MergeError> {
    let started = |recording: &Recording| recording.run.started;
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

fn doubts(recordings: &[(String, Recording)], shifts: &[f64]) -> Vec<String> {
    let own = recordings.iter().flat_map(|(name, recording)| {
        recording.doubts.iter().map(move |doubt| format!("{name}: {doubt}"))
    });
    let mut doubts: Vec<String> = own.collect();
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
