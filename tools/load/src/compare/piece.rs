//! The measurements of one side of a comparison, in pieces: its runs, or the blocks of a run that stands alone.

use crate::recording::{Interval, Latencies, Recording};

/// The blocks of a run that stands alone.
const MOST_BLOCKS: usize = 6;
/// A run that is too short for so many has none.
const FEWEST_BLOCKS: usize = 5;
/// The fewest intervals of a block.
const SHORTEST_BLOCK: usize = 4;

/// A part of a side: a run, or a block of a run's intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    /// Seconds measured.
    pub(super) seconds: f64,
    /// Answers.
    pub(super) answered: u64,
    /// CPU seconds of the load; none if they are not known for this piece.
    pub(super) cpu: Option<f64>,
    /// Response times.
    pub(super) latencies: Latencies,
}

impl Piece {
    /// All runs of a side together.
    pub(super) fn sum(runs: &[Recording]) -> Piece {
        let add = |mut sum: Piece, piece: Piece| {
            sum.seconds += piece.seconds;
            sum.answered += piece.answered;
            sum.cpu = sum.cpu.zip(piece.cpu).map(|(one, other)| one + other);
            sum.latencies.add(&piece.latencies);
            sum
        };
        runs.iter().map(Piece::run).reduce(add).unwrap_or_default()
    }

    /// A whole run.
    pub(super) fn run(recording: &Recording) -> Piece {
        let mut piece = Piece::of(recording.seconds, &recording.intervals);
        piece.cpu = Some(recording.cpu_seconds).filter(|seconds| *seconds > 0.0);
        piece
    }

    /// A run in blocks of four consecutive intervals or more: five or six blocks, or none if the run has fewer than twenty
    /// intervals.
    ///
    /// Events in neighbouring seconds are often alike, and blocks must be long enough to be independent of one another: few long ones
    /// are safer than many short ones (Schmeiser, Batch size effects in the analysis of simulation output, 1982).
    pub(super) fn blocks(recording: &Recording) -> Vec<Piece> {
        let length = interval_length(recording);
        let intervals = (recording.seconds / length).round() as usize;
        let blocks = (intervals / SHORTEST_BLOCK).min(MOST_BLOCKS);
        if blocks < FEWEST_BLOCKS {
            return Vec::new();
        }
        let edge = |block: usize| (block * intervals / blocks) as f64 * length;
        let place = |at: f64| recording.intervals.partition_point(|i| i.start < at - length / 2.0);
        let block = |block| match block + 1 == blocks {
            true => Piece::of(
                recording.seconds - edge(block),
                &recording.intervals[place(edge(block))..],
            ),
            false => {
                let (start, end) = (edge(block), edge(block + 1));
                Piece::of(end - start, &recording.intervals[place(start)..place(end)])
            }
        };
        (0..blocks).map(block).collect()
    }

    fn of(seconds: f64, intervals: &[Interval]) -> Piece {
        let mut piece = Piece { seconds, ..Piece::default() };
        for interval in intervals {
            piece.answered += interval.answered;
            piece.latencies.add(&interval.response);
        }
        piece
    }
}

/// The length of the intervals of a run.
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
    fn the_blocks_of_a_run_are_the_run() {
        for (seconds, blocks) in [(19.0, 0), (20.0, 5), (29.5, 6), (60.0, 6), (600.0, 6)] {
            let recording = recording(seconds, usize::MAX);
            let pieces = Piece::blocks(&recording);
            assert_eq!(pieces.len(), blocks, "{seconds} s");
            let run = Piece::run(&recording);
            if blocks > 0 {
                assert_eq!(pieces.iter().map(|piece| piece.seconds).sum::<f64>(), seconds);
                assert_eq!(pieces.iter().map(|piece| piece.answered).sum::<u64>(), run.answered);
                let latencies: u64 = pieces.iter().map(|piece| piece.latencies.len()).sum();
                assert_eq!(latencies, run.latencies.len());
            }
        }
    }

    #[test]
    fn a_second_in_which_nothing_happened_counts_as_time() {
        let pieces = Piece::blocks(&recording(20.0, 5));
        let found: Vec<_> = pieces.iter().map(|piece| (piece.seconds, piece.answered)).collect();
        assert_eq!(found, [(4.0, 46), (4.0, 47), (4.0, 78), (4.0, 94), (4.0, 110)]);
    }
}
