//! What a comparison of bulk transfers says.

use serde::Serialize;

use super::{Flow, Speed, Transfer};
use crate::contest;
use crate::record::Record;
use crate::stats::Ratio;

/// Everything a run has to say.
pub type Report = contest::Report<Terms, Flow, Figures>;
/// One contender in one cell.
pub type Row = contest::Row<Flow, Figures>;

/// How a run was set up.
pub type Settings = contest::Settings<Terms>;

/// What these comparisons have beside what all have.
#[derive(Clone, Debug, Serialize)]
pub struct Terms {
    /// The measured seconds of a slice.
    pub seconds: f64,
    /// The core of the senders.
    pub sender_core: usize,
    /// The core of the receivers.
    pub receiver_core: usize,
}

/// What came out of a flow. What was never measured is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Datagrams received a second.
    pub datagrams_per_second: Option<f64>,
    /// Their bytes, in millions a second.
    pub megabytes_per_second: Option<f64>,
    /// CPU time of the sender for each that was received.
    pub sender_cpu_us: Option<f64>,
    /// CPU time of the receiver for each that was received.
    pub receiver_cpu_us: Option<f64>,
    /// Datagrams received a second of CPU time as a multiple of the other's, within the rounds.
    pub ratio: Option<Ratio>,
    /// Datagrams that never came, in all slices.
    pub lost: u64,
}

impl contest::Figures<Flow> for Figures {
    type Sample = Transfer;

    fn of(record: &Record<Flow, Transfer>, contender: usize, against: usize, cell: usize) -> Self {
        let outcomes = record.slices_of(contender, cell).map(|(_, outcome)| outcome);
        let transfers = outcomes.filter_map(|outcome| outcome.as_ref().ok());
        let median = |speed| record.median(speed, contender, cell);
        let (rate, bytes) = (median(Speed::Rate), record.cells()[cell].bytes as f64);
        Figures {
            datagrams_per_second: rate,
            megabytes_per_second: rate.map(|rate| rate * bytes / 1e6),
            sender_cpu_us: median(Speed::Sender),
            receiver_cpu_us: median(Speed::Receiver),
            ratio: record.ratio(Speed::PerCpu, contender, against, cell),
            lost: transfers.map(|transfer| transfer.lost).sum(),
        }
    }

    fn ratios(&self) -> impl Iterator<Item = Ratio> {
        self.ratio.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::Figures as _;
    use crate::schedule::Visit;

    #[test]
    fn both_ends_count_and_loss_is_told() {
        let mut record = Record::new(&["uring", "c"].map(String::from), &[Flow::of(1200)], 1);
        for round in 0..6 {
            for (server, received) in [4_000_000, 2_000_000, 4_000_000].into_iter().enumerate() {
                let (sender_cpu_seconds, receiver_cpu_seconds) = (0.5, 1.0);
                let (lost, seconds) = (2, 1.0);
                let transfer =
                    Transfer { received, lost, seconds, sender_cpu_seconds, receiver_cpu_seconds };
                record.keep(Visit { round, server, cell: 0 }, Ok(transfer));
            }
        }
        let figures = Figures::of(&record, 0, 1, 0);
        assert_eq!((figures.megabytes_per_second, figures.lost), (Some(4.8e3), 12));
        assert_eq!((figures.sender_cpu_us, figures.receiver_cpu_us), (Some(0.125), Some(0.25)));
        assert_eq!(figures.ratios().next().expect("measured").median, 2.0);
    }
}
