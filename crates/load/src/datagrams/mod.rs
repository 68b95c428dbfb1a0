//! Datagrams and their echoes: how many are echoed, how fast, and what happened to the others.
//!
//! Each client has a connected socket of its own and keeps a number of datagrams in flight. A datagram that is not echoed
//! within the time-out counts as lost and frees its slot, so that loss does not stall the client. Datagrams of 8 bytes and
//! more carry a number, and the bytes behind it belong to that number; so duplicated, late, reordered and corrupt echoes
//! are recognized. Shorter datagrams are all equal; their echoes are matched in the order of the sends.

mod client;
mod in_flight;
pub(crate) mod payload;
mod run;
mod socket;

pub(crate) use in_flight::Counts;
pub(crate) use run::run;

use crate::measured::Measured;
use crate::plan::{Datagrams, Plan};
use crate::report::{DatagramFigures, Figures, LatencySummary};
use hdrhistogram::Histogram;

pub(crate) fn figures(
    plan: &Plan,
    datagrams: Datagrams,
    measured: Measured,
    counts: Counts,
    histogram: &Histogram<u64>,
) -> Figures {
    let echoes = histogram.len();
    let rate = measured.per_second(echoes as f64);
    Figures::Datagrams(DatagramFigures {
        window: datagrams.window,
        segments: datagrams.segments,
        sent: counts.sent,
        received: counts.answered,
        lost: counts.lost,
        late: counts.late,
        duplicated: counts.duplicated,
        reordered: counts.reordered,
        corrupt: counts.corrupt,
        echoes,
        datagrams_per_second: rate,
        megabytes_per_second: rate * plan.length as f64 / 1e6,
        latency_us: LatencySummary::new(histogram),
    })
}
