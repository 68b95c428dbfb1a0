//! Samples of one side of a comparison: its runs, or the blocks of its only run.

use crate::recording::{Interval, Latencies, Recording};

const MAX_BLOCKS: usize = 6;
/// A run that is too short for this many blocks is not divided.
const MIN_BLOCKS: usize = 5;
const MIN_BLOCK_INTERVALS: usize = 4;

/// One sample of a side: a run, or a block of a run's intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct SideSample {
    pub(super) seconds: f64,
    pub(super) answered: u64,
    /// CPU seconds of the load; `None` if they are not known for this sample.
    pub(super) cpu: Option<f64>,
    pub(super) latencies: Latencies,
}

impl SideSample {
    pub(super) fn sum(runs: &[Recording]) -> SideSample {
        let add = |mut sum: SideSample, piece: SideSample| {
            sum.seconds += piece.seconds;
            sum.answered += piece.answered;
            sum.cpu = sum.cpu.zip(piece.cpu).map(|(one, other)| one + other);
            sum.latencies.add(&piece.latencies);
            sum
        };
        runs.iter().map(SideSample::run).reduce(add).unwrap_or_default()
    }

    pub(super) fn run(recording: &Recording) -> SideSample {
        let mut piece = SideSample::of(recording.seconds, &recording.intervals);
        piece.cpu = Some(recording.cpu_seconds).filter(|seconds| *seconds > 0.0);
        piece
    }

    /// Divides a run into [`MIN_BLOCKS`] to [`MAX_BLOCKS`] blocks of at least
    /// [`MIN_BLOCK_INTERVALS`] consecutive intervals. Returns no blocks if the run is too short.
    ///
    /// Consecutive intervals are often alike, so each block must be long enough to be independent
    /// of its neighbours: a few long blocks are safer than many short ones (Schmeiser, Batch size
    /// effects in the analysis of simulation output, 1982).
    pub(super) fn blocks(recording: &Recording) -> Vec<SideSample> {
        let length = interval_length(recording);
        let intervals = (recording.seconds / length).round() as usize;
        let blocks = (intervals / MIN_BLOCK_INTERVALS).min(MAX_BLOCKS);
        if blocks < MIN_BLOCKS {
            return Vec::new();
        }
        let edge = |block: usize| (block * intervals / blocks) as f64 * length;
        let place = |at: f64| recording.intervals.partition_point(|i| i.start < at - length / 2.0);
        let block = |block| match block + 1 == blocks {
            true => SideSample::of(
                recording.seconds - edge(block),
                &recording.intervals[place(edge(block))..],
            ),
            false => {
                let (start, end) = (edge(block), edge(block + 1));
                SideSample::of(end - start, &recording.intervals[place(start)..place(end)])
            }
        };
        (0..blocks).map(block).collect()
    }

    fn of(seconds: f64, intervals: &[Interval]) -> SideSample {
        let mut piece = SideSample { seconds, ..SideSample::default() };
        for interval in intervals {
            piece.answered += interval.answered;
            piece.latencies.add(&interval.response);
        }
        piece
    }
}

/// Returns the length of the longest interval in seconds, or 1 if there are no intervals. The last
/// interval of a run may be shorter.
fn interval_length(recording: &Recording) -> f64 {
    let longest = recording.intervals.iter().map(|interval| interval.length).fold(0.0, f64::max);
    if longest > 0.0 { longest } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(seconds: f64, missing: usize) -> Recording {
        let count = seconds.ceil() as usize;
        let interval = |n: usize| Interval {
            answered: 10 + n as u64,
            response: Latencies::from_iter([(1000 + n as u64, 10)]),
            ..Interval::new(n as f64, (seconds - n as f64).min(1.0))
        };
        let intervals = (0..count).filter(|n| *n != missing).map(interval).collect();
        let run = crate::recording::RunInfo::default();
        Recording { seconds, intervals, cpu_seconds: 2.0, ..Recording::new(run) }
    }

    #[test]
    fn blocks_of_a_run_add_up_to_the_run() {
        for (seconds, blocks) in [(19.0, 0), (20.0, 5), (29.5, 6), (60.0, 6), (600.0, 6)] {
            let recording = recording(seconds, usize::MAX);
            let pieces = SideSample::blocks(&recording);
            assert_eq!(pieces.len(), blocks, "{seconds} s");
            let run = SideSample::run(&recording);
            if blocks > 0 {
                assert_eq!(pieces.iter().map(|piece| piece.seconds).sum::<f64>(), seconds);
                assert_eq!(pieces.iter().map(|piece| piece.answered).sum::<u64>(), run.answered);
                let latencies: u64 = pieces.iter().map(|piece| piece.latencies.len()).sum();
                assert_eq!(latencies, run.latencies.len());
            }
        }
    }

    #[test]
    fn missing_interval_counts_as_time() {
        let pieces = SideSample::blocks(&recording(20.0, 5));
        let found: Vec<_> = pieces.iter().map(|piece| (piece.seconds, piece.answered)).collect();
        assert_eq!(found, [(4.0, 46), (4.0, 47), (4.0, 78), (4.0, 94), (4.0, 110)]);
    }
}
