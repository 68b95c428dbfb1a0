//! Figures that are recorded of some workloads only.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::AddAssign;

/// The kind of workload of the clients of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkloadKind {
    /// Requests over connections. So are all recordings that do not say.
    #[default]
    #[serde(alias = "per-connection")]
    Streams,
    /// Datagrams.
    Datagrams,
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkloadKind::Streams => "connections",
            WorkloadKind::Datagrams => "datagrams",
        })
    }
}

/// Results of datagrams that were sent within the measured time, whenever they were found: each is received or lost. Those that
/// the sweep finds count in the interval of the sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramCounts {
    /// Echoed in time.
    pub received: u64,
    /// Not echoed in time.
    pub lost: u64,
    /// Echoes that came too late; their datagrams count as lost.
    pub late: u64,
    /// Echoes beyond the first of a datagram.
    pub duplicated: u64,
    /// Echoed after a datagram that the same client sent later.
    pub reordered: u64,
    /// Echoes in the whole run that match no datagram: wrong length, wrong bytes, or a number never sent.
    pub corrupt: u64,
}

impl DatagramCounts {
    /// The counts with their names, in this order.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("received", self.received),
            ("lost", self.lost),
            ("late", self.late),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
            ("corrupt", self.corrupt),
        ]
    }
}

impl AddAssign for DatagramCounts {
    fn add_assign(&mut self, other: DatagramCounts) {
        for (own, others) in [
            (&mut self.received, other.received),
            (&mut self.lost, other.lost),
            (&mut self.late, other.late),
            (&mut self.duplicated, other.duplicated),
            (&mut self.reordered, other.reordered),
            (&mut self.corrupt, other.corrupt),
        ] {
            *own = own.saturating_add(others);
        }
    }
}
