//! Bulk transfers of datagrams: how many get from one sender to one receiver.
//!
//! A [contender](crate::contest) is both ends, each a thread on a core of its own. It is asked `BYTES WINDOW SECONDS`
//! and answers `RECEIVED LOST NANOSECONDS SENDER_CPU_NANOSECONDS RECEIVER_CPU_NANOSECONDS`: numbered datagrams of so many
//! bytes were sent for that long, after a warm-up, with no more than a window of them unacknowledged.

mod report;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::contest::{self, Question};
use crate::record::Figure;

pub use report::{Figures, Report, Row, Settings, Terms};

/// Bytes that may be unacknowledged where nothing else is said: enough that neither end waits for the other, and less
/// than a socket's buffer holds where the system lets it have a few MB (`net.core.rmem_max`).
const IN_FLIGHT: usize = 1 << 20;
/// The least and the most datagrams of such a window.
const WINDOWS: (usize, usize) = (8, 512);

/// How much longer than its slice an answer may take: warming up, and the moods of a machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Contenders at bulk transfers.
pub type Rig = contest::Rig<Flow>;

/// A cell: what flows, and how much of it may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Bytes a datagram.
    pub bytes: usize,
    /// Datagrams that may be unacknowledged.
    pub window: usize,
}

impl Flow {
    /// Datagrams of so many bytes, with a window that suits them.
    pub fn of(bytes: usize) -> Flow {
        Flow { bytes, window: (IN_FLIGHT / bytes.max(1)).clamp(WINDOWS.0, WINDOWS.1) }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {} unacknowledged", self.bytes, self.window)
    }
}

impl Question for Flow {
    type Answer = Transfer;

    fn line(&self, slice: Duration) -> String {
        format!("{} {} {}", self.bytes, self.window, slice.as_secs_f64())
    }

    fn read(&self, answer: &str) -> Option<Transfer> {
        Transfer::parse(answer)
    }

    fn patience(&self, slice: Duration) -> Duration {
        slice + PATIENCE
    }
}

/// What one slice measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transfer {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that never came.
    pub lost: u64,
    /// The time of both.
    pub seconds: f64,
    /// The CPU time of the sender.
    pub sender_cpu_seconds: f64,
    /// The CPU time of the receiver.
    pub receiver_cpu_seconds: f64,
}

impl Transfer {
    /// Reads an answer, in which nothing but the loss is zero.
    fn parse(answer: &str) -> Option<Transfer> {
        let number = |word: &str| word.parse().ok();
        let numbers: Vec<u64> = answer.split(' ').map(number).collect::<Option<_>>()?;
        let &[received @ (1..), lost, ns @ (1..), sender @ (1..), receiver @ (1..)] =
            numbers.as_slice()
        else {
            return None;
        };
        let [seconds, sender_cpu_seconds, receiver_cpu_seconds] =
            [ns, sender, receiver].map(|ns| ns as f64 / 1e9);
        Some(Transfer { received, lost, seconds, sender_cpu_seconds, receiver_cpu_seconds })
    }
}

/// A figure of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// Datagrams received a second.
    Rate,
    /// Datagrams received a second of CPU time, of both ends together: what is compared.
    PerCpu,
    /// CPU time of the sender for each that was received, in µs.
    Sender,
    /// CPU time of the receiver for each that was received, in µs.
    Receiver,
}

impl Figure<Transfer> for Speed {
    fn of(self, transfer: &Transfer) -> f64 {
        let Transfer { received, seconds, sender_cpu_seconds, receiver_cpu_seconds, .. } =
            *transfer;
        let received = received as f64;
        match self {
            Speed::Rate => received / seconds,
            Speed::PerCpu => received / (sender_cpu_seconds + receiver_cpu_seconds),
            Speed::Sender => sender_cpu_seconds * 1e6 / received,
            Speed::Receiver => receiver_cpu_seconds * 1e6 / received,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_five_numbers_of_which_only_the_loss_may_be_zero() {
        let transfer = Transfer::parse("4000 0 2000000 1000000 3000000").expect("an answer");
        let speeds =
            [Speed::Rate, Speed::PerCpu, Speed::Sender, Speed::Receiver].map(|s| s.of(&transfer));
        assert_eq!(speeds, [2e6, 1e6, 0.25, 0.75]);
        for wrong in ["", "1 0 1 1", "0 0 1 1 1", "1 0 0 1 1", "1 0 1 1 x", "1 0 1 1 1 1"] {
            assert_eq!(Transfer::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_window_has_room_for_every_length() {
        assert_eq!(
            [1, 1200, 9000, 65_507].map(|bytes| Flow::of(bytes).window),
            [512, 512, 116, 16]
        );
        assert_eq!(Flow::of(1200).line(Duration::from_millis(50)), "1200 512 0.05");
    }
}
