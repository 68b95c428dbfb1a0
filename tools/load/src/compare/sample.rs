//! What one side of a comparison has measured, in pieces that can be drawn again.

use crate::recording::{Interval, Latencies, Recording};

/// The blocks of a run that stands alone.
const MOST_BLOCKS: usize = 10;
/// A run that is too short for so many has none.
const FEWEST_BLOCKS: usize = 5;
/// The fewest intervals of a block.
const SHORTEST_BLOCK: usize = 4;

/// A part of a side that is drawn as a whole: a run, or a block of a run's intervals.
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
    /// A whole run.
    pub(super) fn run(recording: &Recording) -> Piece {
        let mut piece = Piece::of(recording.seconds, &recording.intervals);
        piece.cpu = Some(recording.cpu_seconds).filter(|seconds| *seconds > 0.0);
        piece
    }

    /// A run in blocks of four consecutive intervals or more: five to ten blocks, or none if the run has fewer than twenty
    /// intervals.
    ///
    /// What happens in neighbouring seconds is often alike, and blocks must be long enough to be independent of one another: few long ones
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

/// The pieces of a side, so that a figure of any draw of them is found quickly.
pub(super) struct Sample {
    pieces: Vec<Totals>,
    /// Every latency that any piece has, in order.
    values: Vec<u64>,
}

struct Totals {
    seconds: f64,
    answered: f64,
    cpu: Option<f64>,
    latencies: u64,
    /// The sum of the latencies in ns.
    sum: f64,
    /// How many latencies are at most the value of the same index.
    cumulative: Vec<u64>,
}

impl Sample {
    pub(super) fn new(pieces: Vec<Piece>) -> Sample {
        let mut values: Vec<u64> = pieces
            .iter()
            .flat_map(|piece| piece.latencies.buckets())
            .map(|bucket| bucket.0)
            .collect();
        values.sort_unstable();
        values.dedup();
        let pieces = pieces.into_iter().map(|piece| Totals::new(piece, &values)).collect();
        Sample { pieces, values }
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Latencies of all pieces.
    pub(super) fn latencies(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.latencies).sum()
    }

    /// A number that is a sum over the pieces, each taken so many times.
    fn sum(&self, times: &[u32], of: impl Fn(&Totals) -> f64) -> f64 {
        self.pieces.iter().zip(times).map(|(piece, &times)| f64::from(times) * of(piece)).sum()
    }

    /// Answers a second of the pieces, each taken so many times; none if that is no positive number.
    pub(super) fn rate(&self, times: &[u32]) -> Option<f64> {
        positive(self.sum(times, |piece| piece.answered) / self.sum(times, |piece| piece.seconds))
    }

    /// The mean latency in ns.
    pub(super) fn mean(&self, times: &[u32]) -> Option<f64> {
        let count = self.sum(times, |piece| piece.latencies as f64);
        positive(self.sum(times, |piece| piece.sum) / count)
    }

    /// CPU seconds of the load an answer.
    pub(super) fn cpu(&self, times: &[u32]) -> Option<f64> {
        let is_known = self.pieces.iter().all(|piece| piece.cpu.is_some());
        let cpu = self.sum(times, |piece| piece.cpu.unwrap_or(0.0));
        positive(cpu / self.sum(times, |piece| piece.answered)).filter(|_| is_known)
    }

    /// The least latency in ns that this share of them does not exceed.
    pub(super) fn quantile(&self, times: &[u32], share: f64) -> Option<f64> {
        let drawn = || self.pieces.iter().zip(times);
        let up_to = |index: usize| -> u64 {
            drawn().map(|(piece, &times)| u64::from(times) * piece.cumulative[index]).sum()
        };
        let all: u64 = drawn().map(|(piece, &times)| u64::from(times) * piece.latencies).sum();
        let rank = ((all as f64 * share).ceil() as u64).max(1);
        let (mut low, mut high) = (0, self.values.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if up_to(middle) < rank { low = middle + 1 } else { high = middle }
        }
        self.values.get(low).and_then(|&value| positive(value as f64))
    }
}

impl Totals {
    fn new(piece: Piece, values: &[u64]) -> Totals {
        let Piece { seconds, answered, cpu, latencies } = piece;
        let mut cumulative = vec![0; values.len()];
        for (value, count) in latencies.buckets() {
            cumulative[values.partition_point(|known| known < value)] += count;
        }
        let mut total = 0;
        for count in &mut cumulative {
            total += *count;
            *count = total;
        }
        let sum = latencies.mean() * total as f64;
        Totals { seconds, answered: answered as f64, cpu, latencies: total, sum, cumulative }
    }
}

fn positive(number: f64) -> Option<f64> {
    (number.is_finite() && number > 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(latencies: &[(u64, u64)]) -> Piece {
        let answered = latencies.iter().map(|(_, count)| count).sum();
        Piece {
            seconds: 2.0,
            answered,
            cpu: Some(0.5),
            latencies: latencies.iter().copied().collect(),
        }
    }

    #[test]
    fn figures_are_those_of_the_pieces_together() {
        let sample =
            Sample::new(vec![piece(&[(10, 90), (100, 10)]), piece(&[(20, 100), (10, 100)])]);
        assert_eq!((sample.len(), sample.rate(&[1, 1])), (2, Some(75.0)));
        assert_eq!(sample.mean(&[1, 0]), Some(19.0));
        assert_eq!(sample.quantile(&[1, 0], 0.9), Some(10.0));
        assert_eq!(sample.quantile(&[1, 0], 0.91), Some(100.0));
        assert_eq!(sample.quantile(&[1, 1], 0.5), Some(10.0));
        assert_eq!(sample.quantile(&[0, 2], 0.51), Some(20.0));
        assert_eq!(sample.cpu(&[2, 0]), Some(0.005));
    }

    #[test]
    fn what_was_not_measured_has_no_figure() {
        let sample = Sample::new(vec![Piece { seconds: 1.0, ..Piece::default() }]);
        assert_eq!((sample.rate(&[1]), sample.mean(&[1])), (None, None));
        assert_eq!((sample.quantile(&[1], 0.5), sample.cpu(&[1])), (None, None));
        let unknown = Sample::new(vec![piece(&[(1, 1)]), Piece { cpu: None, ..piece(&[(1, 1)]) }]);
        assert_eq!(unknown.cpu(&[1, 1]), None);
    }

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
        for (seconds, blocks) in [(19.0, 0), (20.0, 5), (29.5, 7), (60.0, 10), (600.0, 10)] {
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
