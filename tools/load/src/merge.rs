//! Merges the recordings of the parts of a run.

use crate::part::Part;
use crate::plan::{Plan, Workload};
use crate::recording::{Interval, PartInfo, Recording, RunInfo};
use crate::warnings::too_few_responses;
use std::collections::BTreeMap;
use std::time::Duration;

/// The result of a part of a run: its recording, or why it has none.
#[derive(Clone, Debug, PartialEq)]
pub struct PartResult {
    /// Which part of the run this is.
    pub part: Part,
    /// The host name of the part's machine, or empty if the part never reported it.
    pub host: String,
    /// The recording, or why it is missing.
    pub outcome: Result<Recording, String>,
}

impl PartResult {
    fn name(&self) -> String {
        self.part.name_on(&self.host)
    }

    fn info(&self) -> PartInfo {
        let info = PartInfo {
            part: self.part.index() as u64 + 1,
            host: self.host.clone(),
            ..PartInfo::default()
        };
        match &self.outcome {
            Err(error) => PartInfo { missing: Some(error.clone()), ..info },
            Ok(recording) => PartInfo {
                started: recording.run.started,
                seconds: recording.seconds,
                cpu_seconds: recording.cpu_seconds,
                responses: recording.total().answered,
                driver: recording.run.driver.clone(),
                ..info
            },
        }
    }
}

impl Recording {
    /// Merges the results of the parts of a run into one recording. Latencies and counts are added
    /// up per interval, so the sums are exact. The measured time is the longest part's.
    ///
    /// If parts are missing, the first warning says that the result is partial.
    pub fn merge(plan: &Plan, parts: &[PartResult]) -> Recording {
        let mut merged = Recording::new(RunInfo::planned(plan));
        merged.run.parts = parts.iter().map(PartResult::info).collect();
        let missing: Vec<_> = parts
            .iter()
            .filter_map(|part| {
                let error = part.outcome.as_ref().err()?;
                Some(format!("{}: {error}", part.name()))
            })
            .collect();
        if !missing.is_empty() {
            merged.warnings.push(format!(
                "the results are partial: {} of {} parts are missing ({})",
                missing.len(),
                parts.len(),
                missing.join("; ")
            ));
        }
        let mut intervals = BTreeMap::new();
        let mut drivers = Vec::new();
        for part in parts {
            let Ok(recording) = &part.outcome else { continue };
            add_intervals(&mut intervals, plan.interval, &recording.intervals);
            add(&mut merged, &part.name(), recording);
            if !drivers.contains(&recording.run.driver) {
                drivers.push(recording.run.driver.clone());
            }
        }
        merged.run.driver = drivers.join(", ");
        merged.run.threads = parts.len() as u64 * plan.threads() as u64;
        merged.intervals = intervals.into_values().collect();
        if let Workload::Streams(_) = plan.workload {
            let length = Duration::try_from_secs_f64(merged.seconds).unwrap_or_default();
            merged.warnings.extend(too_few_responses(plan, length, merged.total().answered));
        }
        merged
    }
}

/// Adds everything but the intervals of a part's recording.
fn add(merged: &mut Recording, name: &str, part: &Recording) {
    let started = [merged.run.started, part.run.started].into_iter().filter(|time| *time > 0.0);
    merged.run.started = started.min_by(f64::total_cmp).unwrap_or_default();
    merged.interrupted |= part.interrupted;
    merged.seconds = merged.seconds.max(part.seconds);
    merged.cpu_seconds += part.cpu_seconds;
    for (kind, count) in &part.errors {
        let sum = merged.errors.entry(kind.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    let named = |text: &Option<String>| text.as_ref().map(|text| format!("{name}: {text}"));
    merged.first_error = merged.first_error.take().or_else(|| named(&part.first_error));
    merged.first_refusal = merged.first_refusal.take().or_else(|| named(&part.first_refusal));
    merged.warnings.extend(part.warnings.iter().map(|warning| format!("{name}: {warning}")));
    if merged.classes.is_empty() {
        merged.classes.clone_from(&part.classes);
    }
}

/// Adds each interval to the sum of the intervals that start at the same time.
fn add_intervals(sums: &mut BTreeMap<u64, Interval>, length: Duration, parts: &[Interval]) {
    for interval in parts {
        // Starts are multiples of the length, to the precision of a float.
        let number = (interval.start / length.as_secs_f64()).round() as u64;
        match sums.get_mut(&number) {
            None => _ = sums.insert(number, interval.clone()),
            Some(sum) => {
                sum.length = sum.length.max(interval.length);
                sum.add(interval);
            }
        }
    }
}

/// Sums the intervals of all parts while the run is in progress.
#[derive(Debug)]
pub struct LiveSum {
    length: Duration,
    /// For each part that has not ended, the number of the interval that it completes next.
    next: BTreeMap<usize, u64>,
    sums: BTreeMap<u64, Interval>,
}

impl LiveSum {
    /// Creates empty sums for all parts of the plan.
    pub fn new(plan: &Plan) -> LiveSum {
        let next = (0..plan.part.count()).map(|part| (part, 0)).collect();
        LiveSum { length: plan.interval, next, sums: BTreeMap::new() }
    }

    /// Adds an interval of a part. Intervals of parts that were removed are ignored.
    pub fn add(&mut self, part: usize, interval: &Interval) {
        let Some(next) = self.next.get_mut(&part) else { return };
        *next = (interval.start / self.length.as_secs_f64()).round() as u64;
        *next = next.saturating_add(1);
        add_intervals(&mut self.sums, self.length, std::slice::from_ref(interval));
    }

    /// Stops waiting for the intervals of a part.
    pub fn remove(&mut self, part: usize) {
        self.next.remove(&part);
    }

    /// Returns the sums of the intervals that all parts have completed since the last call, in
    /// order.
    pub fn take(&mut self) -> Vec<Interval> {
        let complete = self.next.values().min().copied().unwrap_or(u64::MAX);
        let rest = self.sums.split_off(&complete);
        std::mem::replace(&mut self.sums, rest).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Streams;
    use crate::recording::{Latencies, RunInfo};

    fn plan(count: usize) -> Plan {
        let part = Part::new(0, count).unwrap();
        Plan { part, ..Plan::new("127.0.0.1:7000".parse().unwrap(), Streams::default()) }
    }

    fn interval(start: f64, length: f64, nanos: &[u64]) -> Interval {
        Interval {
            sent: nanos.len() as u64,
            answered: nanos.len() as u64,
            response: nanos.iter().copied().collect::<Latencies>(),
            ..Interval::new(start, length)
        }
    }

    fn result(index: usize, count: usize, recording: Recording) -> PartResult {
        let part = Part::new(index, count).unwrap();
        PartResult { part, host: format!("node{}", index + 1), outcome: Ok(recording) }
    }

    fn recording(seconds: f64, intervals: Vec<Interval>) -> Recording {
        let run =
            RunInfo { started: 100.0 - seconds, driver: "uring".into(), ..RunInfo::default() };
        Recording { seconds, cpu_seconds: 0.5, intervals, ..Recording::new(run) }
    }

    #[test]
    fn merged_parts_equal_one_run_with_all_their_requests() {
        let one = recording(2.0, vec![interval(0.0, 1.0, &[10, 20]), interval(1.0, 1.0, &[30])]);
        let other = recording(1.9, vec![interval(0.0, 1.0, &[40]), interval(1.0, 0.9, &[50, 60])]);
        let merged = Recording::merge(&plan(2), &[result(0, 2, one), result(1, 2, other)]);
        let together = vec![interval(0.0, 1.0, &[10, 20, 40]), interval(1.0, 1.0, &[30, 50, 60])];
        assert_eq!(merged.intervals, together);
        assert_eq!((merged.seconds, merged.cpu_seconds, merged.interrupted), (2.0, 1.0, false));
        assert_eq!((merged.run.started, merged.run.connections, merged.run.threads), (98.0, 50, 2));
        assert_eq!(merged.run.driver, "uring");
        let parts: Vec<_> =
            merged.run.parts.iter().map(|part| (part.part, &*part.host, part.responses)).collect();
        assert_eq!(parts, [(1, "node1", 3), (2, "node2", 3)]);
        let mut text = Vec::new();
        merged.write(&mut text).unwrap();
        assert_eq!(Recording::read(&text[..]).unwrap(), merged);
    }

    #[test]
    fn missing_part_makes_the_result_partial() {
        let one = recording(2.0, vec![interval(0.0, 1.0, &[10])]);
        let dead = PartResult {
            part: Part::new(1, 2).unwrap(),
            host: String::new(),
            outcome: Err("its connection was closed".into()),
        };
        let merged = Recording::merge(&plan(2), &[result(0, 2, one), dead]);
        assert_eq!(
            merged.warnings[0],
            "the results are partial: 1 of 2 parts are missing (part 2 of 2: its connection was \
             closed)"
        );
        assert_eq!(merged.run.parts[1].missing.as_deref(), Some("its connection was closed"));
        assert_eq!(merged.total().answered, 1);
    }

    #[test]
    fn errors_add_up_and_texts_name_their_part() {
        let failed = |count| Recording {
            errors: BTreeMap::from([("reset".into(), count)]),
            first_error: Some("connection reset".into()),
            warnings: vec!["slow".into()],
            ..recording(1.0, vec![])
        };
        let merged =
            Recording::merge(&plan(2), &[result(0, 2, failed(2)), result(1, 2, failed(3))]);
        assert_eq!(merged.errors["reset"], 5);
        assert_eq!(merged.first_error.as_deref(), Some("part 1 of 2 (node1): connection reset"));
        assert!(merged.warnings.contains(&"part 2 of 2 (node2): slow".into()));
    }

    #[test]
    fn live_sum_waits_for_every_part_that_is_left() {
        let mut sum = LiveSum::new(&plan(2));
        sum.add(0, &interval(0.0, 1.0, &[1, 2]));
        assert_eq!(sum.take(), []);
        sum.add(1, &interval(0.0, 1.0, &[3]));
        assert_eq!(sum.take(), [interval(0.0, 1.0, &[1, 2, 3])]);
        sum.add(0, &interval(1.0, 1.0, &[4]));
        assert_eq!(sum.take(), []);
        sum.remove(1);
        sum.add(1, &interval(1.0, 1.0, &[9]));
        assert_eq!(sum.take(), [interval(1.0, 1.0, &[4])]);
        sum.remove(0);
        assert_eq!(sum.take(), []);
    }
}
