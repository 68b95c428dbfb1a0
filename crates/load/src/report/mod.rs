//! The result of a run.

mod doubts;
mod latency;
mod recorded;

use crate::measured::Measured;
use crate::metrics::Faults;
use crate::plan::Plan;
use crate::recording::{Interval, Recording};
use crate::system::SystemUse;
use crate::tls::Tls;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

pub use latency::{DelaySummary, LatencySummary, TimeSummary};

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The server's address.
    pub address: String,
    /// Clients.
    pub clients: usize,
    /// Bytes per message.
    pub length: usize,
    /// What was spoken.
    pub protocol: String,
    /// How the connections were encrypted, if they were.
    pub tls: Option<String>,
    /// The measured time; 0 if measuring never began.
    pub seconds: f64,
    /// Whether the run was interrupted: the figures are those up to that moment.
    pub interrupted: bool,
    /// The figures of the workload.
    #[serde(flatten)]
    pub figures: Figures,
    /// Failures of the whole run by kind: `connect refused`, `connect timeout`, `no local port`, `connect failed`,
    /// `reset`, `closed early`, `wrong bytes`, `too many bytes`, `reply timeout`, `corrupt`, `input/output error`. Unless
    /// clients reconnect, a client of streams stops at its first failure, and so counts at most once.
    pub errors: BTreeMap<String, u64>,
    /// The first failure as text.
    pub first_error: Option<String>,
    /// CPU time of the load divided by the measured time: of one thread if the clients are tasks of one thread, else of the
    /// process.
    pub client_cpu_share: f64,
    /// What the load ran on, and why.
    pub driver: String,
    /// Reasons to doubt the figures, each with advice: what may have been the load's own doing or the network's, and
    /// figures that rest on too little.
    pub doubts: Vec<String>,
    /// What was recorded of a run of [`Workload::Streams`](crate::Workload::Streams).
    #[serde(skip)]
    pub recording: Option<Recording>,
}

/// The figures of one workload.
#[allow(clippy::large_enum_variant, reason = "there is one in a report")]
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Figures {
    /// Of [`Workload::Streams`](crate::Workload::Streams).
    Streams(StreamFigures),
    /// Of [`Workload::PerConnection`](crate::Workload::PerConnection).
    PerConnection(PerConnectionFigures),
    /// Of [`Workload::Datagrams`](crate::Workload::Datagrams).
    Datagrams(DatagramFigures),
}

/// Messages over connections that stay open.
#[derive(Clone, Debug, Serialize)]
pub struct StreamFigures {
    /// Messages in flight per connection.
    pub pipeline: usize,
    /// Threads of the load.
    pub threads: usize,
    /// The planned rate of an open loop, in messages per second, if it is constant.
    pub rate: Option<f64>,
    /// When the requests were due, in words.
    pub schedule: String,
    /// Requests that ended within the measured time: answered or failed.
    pub requests: u64,
    /// Complete and correct responses within the measured time.
    pub responses: u64,
    /// Responses divided by the measured time.
    pub requests_per_second: f64,
    /// Requests that were sent.
    pub sent: u64,
    /// Of these, those that were sent more than a millisecond after they were due.
    pub late: u64,
    /// Connections made in place of others within the measured time.
    pub reconnects: u64,
    /// The responses by what they say: `ok`; the class of a status of HTTP, such as `2xx`; `error reply`, for errors of Redis, streams of HTTP/2
    /// that the server has reset, and replies of a script that are not as expected.
    pub outcomes: BTreeMap<String, u64>,
    /// Latency in µs, from the due time of a message to the last byte of its response.
    pub latency_us: LatencySummary,
    /// The same from when the message was sent: without the time for which the client could not send it.
    pub service_us: LatencySummary,
    /// By how much messages were sent after they were due and their connection was free: how late the load's timers were.
    pub delay_us: DelaySummary,
    /// Every latency of the measured time, in ns.
    #[serde(skip)]
    pub histogram: Histogram<u64>,
}

/// A connection per message.
#[derive(Clone, Debug, Serialize)]
pub struct PerConnectionFigures {
    /// Connections planned.
    pub connections: usize,
    /// Event loops.
    pub threads: usize,
    /// Connections that succeeded, with every byte correct.
    pub completed: u64,
    /// Those divided by the time from the first start to the last end.
    pub connections_per_second: f64,
    /// That time divided by them, in µs; 0 if there are none.
    pub elapsed_us_per_connection: f64,
    /// From the send to the last byte, in µs.
    pub echo_us: TimeSummary,
    /// From before the connect to the last byte, in µs.
    pub total_us: TimeSummary,
}

/// Datagrams. Counted are those *sent* within the measured time, whenever they are answered or lost: `sent` is `received`
/// plus `lost`.
#[derive(Clone, Debug, Serialize)]
pub struct DatagramFigures {
    /// Datagrams in flight per client.
    pub window: usize,
    /// Whether segmentation and coalescing were used.
    pub segments: bool,
    /// Datagrams sent.
    pub sent: u64,
    /// Of these, echoed in time.
    pub received: u64,
    /// Of these, not echoed in time.
    pub lost: u64,
    /// Echoes that arrived too late; their datagrams count as lost.
    pub late: u64,
    /// Echoes beyond the first.
    pub duplicated: u64,
    /// Echoed after a datagram that the same client sent later.
    pub reordered: u64,
    /// Echoes in the whole run that match no datagram: wrong length, wrong bytes, or a number never sent.
    pub corrupt: u64,
    /// Echoes that arrived within the measured time.
    #[serde(skip)]
    pub echoes: u64,
    /// Those divided by that time.
    pub datagrams_per_second: f64,
    /// Their bytes in one direction, in millions per second.
    pub megabytes_per_second: f64,
    /// Latency in µs of the echoes that arrived within the measured time.
    pub latency_us: LatencySummary,
}

/// What a workload found.
pub(crate) struct Findings {
    pub(crate) driver: String,
    pub(crate) measured: Measured,
    pub(crate) figures: Figures,
    /// Of streams and datagrams.
    pub(crate) intervals: Vec<Interval>,
    pub(crate) faults: Faults,
}

impl Report {
    /// The replies by what they say, if there are any and each says that the server has failed, or has not done what was asked for.
    pub fn only_refusals(&self) -> Option<String> {
        let total = self.recording.as_ref()?.total();
        let counts = total.outcomes.iter().map(|(name, count)| format!("{name} {count}"));
        (total.answered > 0 && total.refused == total.answered)
            .then(|| counts.collect::<Vec<_>>().join(", "))
    }

    pub(crate) fn new(plan: &Plan, findings: Findings, system: SystemUse) -> Report {
        let doubts = doubts::all(plan, &findings, system);
        let recording = recorded::of(plan, &findings, &doubts);
        let Findings { driver, measured, figures, faults, .. } = findings;
        Report {
            address: plan.address.to_string(),
            clients: plan.clients,
            length: plan.length,
            protocol: plan.protocol.name().to_owned(),
            tls: plan.tls.as_ref().map(Tls::to_string),
            seconds: measured.length.as_secs_f64(),
            interrupted: measured.interrupted,
            figures,
            errors: faults.by_kind,
            first_error: faults.first,
            client_cpu_share: measured.per_second(measured.cpu.as_secs_f64()),
            driver,
            doubts,
            recording,
        }
    }
}

impl Figures {
    /// Messages that were answered.
    pub fn answered(&self) -> u64 {
        match self {
            Figures::Streams(figures) => figures.responses,
            Figures::PerConnection(figures) => figures.completed,
            Figures::Datagrams(figures) => figures.received,
        }
    }
}
