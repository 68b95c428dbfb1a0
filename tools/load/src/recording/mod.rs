//! Recordings of runs: everything from which results are computed.
//!
//! A [`Recording`] contains the settings, machine and time of a run ([`RunInfo`]) and its figures
//! per [`Interval`], with latencies as counts per bucket ([`Latencies`]). [`Summary`] and
//! [`Percentiles`] are computed from it. A recording is written and read as JSON, in a format with
//! a name and a version.
//!
//! ```
//! use annulus_load::recording::{Interval, Latencies, Recording, RunInfo};
//!
//! let mut second = Interval::new(0.0, 1.0);
//! second.answered = 2000;
//! second.response = Latencies::from_iter((1..=2000).map(|n| n * 1_000));
//! let intervals = vec![second];
//! let recording =
//!     Recording { seconds: 1.0, intervals, ..Recording::new(RunInfo::default()) };
//!
//! let mut text = Vec::new();
//! recording.write(&mut text).unwrap();
//! let read = Recording::read(&text[..]).unwrap();
//! assert_eq!(read, recording);
//! let latency = read.summary().latency_us;
//! assert_eq!((latency.p50, latency.p99), (Some(1000.447), Some(1980.415)));
//! assert_eq!(latency.p99_9, None, "2000 are too few for it");
//! ```

mod collector;
mod document;
mod interval;
mod latencies;
mod recorder;
mod summary;
mod tally;

pub(crate) use collector::Collector;
pub use document::{FORMAT_NAME, FORMAT_VERSION, MAX_RECORDING_BYTES, ReadError};
pub use interval::{ClassInterval, Interval};
pub use latencies::Latencies;
pub(crate) use recorder::Recorder;
pub use summary::{ClassSummary, GroupSizes, MIN_SAMPLES_BEYOND, Percentiles, Summary};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::AddAssign;

/// The maximum number of request classes that are recorded separately. A mix with more entries is
/// recorded as a whole.
pub const MAX_CLASSES: usize = 100;
/// The maximum number of recorded intervals in a run, which are kept in memory. The longest run has
/// fewer intervals of one second.
pub(crate) const MAX_INTERVALS: u64 = 3_000_000;

/// The recorded figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The settings, machine and time of the run.
    pub run: RunInfo,
    /// Whether the run was interrupted. If so, the last interval ends at the interruption.
    pub interrupted: bool,
    /// The measured time in seconds, or 0 if measuring never began.
    pub seconds: f64,
    /// Failures of the whole run by kind, such as `connect refused`, `reset`, `closed early`,
    /// `wrong bytes` or `reply timeout`. A stream client that does not reconnect stops at its first
    /// failure, and so counts at most once.
    pub errors: BTreeMap<String, u64>,
    /// The first failure as text.
    pub first_error: Option<String>,
    /// Describes the first reply that reports a failure or is not the expected one: its status, the
    /// start of what was received, or how its body differs.
    #[serde(default)]
    pub first_refusal: Option<String>,
    /// CPU time of the load in the measured time, in seconds.
    pub cpu_seconds: f64,
    /// Reasons not to rely on the figures.
    #[serde(alias = "doubts")]
    pub warnings: Vec<String>,
    /// The names of the request classes, which are the entries of the plan's mix. Empty if all
    /// requests are alike, or if there are more than [`MAX_CLASSES`].
    pub classes: Vec<String>,
    /// What the server used in the measured time, if an agent on its machine has reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerUsage>,
    /// The figures of each interval, in ascending order. An interval in which nothing happened may
    /// be missing.
    pub intervals: Vec<Interval>,
}

/// What the server used in the measured time, according to an agent on its machine. The figures
/// apply to all processes of the server together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerUsage {
    /// The address of the agent.
    pub agent: String,
    /// The host name of the server's machine.
    pub host: String,
    /// The observed processes as text.
    pub process: String,
    /// The time between the two readings in seconds, by the clock of the server's machine. It is
    /// slightly longer than the measured time.
    pub seconds: f64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// CPU time per response in µs; `None` without responses.
    pub cpu_us_per_request: Option<f64>,
    /// Number of times that the threads were scheduled on a core.
    pub switches: u64,
    /// Number of processes at the end.
    pub processes: u64,
    /// Resident memory at the end, in bytes. Shared pages count once per process.
    pub resident_bytes: u64,
    /// The maximum of the resident memory in bytes, read once per second.
    pub peak_resident_bytes: u64,
    /// System calls of the read family; `None` if they are unknown.
    pub read_calls: Option<u64>,
    /// System calls of the write family; `None` if they are unknown.
    pub write_calls: Option<u64>,
    /// Why figures are unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<String>,
}

/// The settings, machine and time of a run. Durations are in seconds, and points in time are in
/// seconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// The words of the command line, if the caller has set them.
    pub command: Vec<String>,
    /// The label that the user gave to the run.
    pub label: Option<String>,
    /// The version of annulus.
    pub annulus: String,
    /// The machine on which the load ran.
    pub machine: Machine,
    /// When measuring began, by the machine's wall clock.
    pub started: f64,
    /// The addresses of the server, separated by commas, with a prefix for datagrams.
    pub address: String,
    /// The kind of workload.
    pub workload: WorkloadKind,
    /// The protocol between clients and server, such as `echo` or `HTTP/1.1`.
    pub protocol: String,
    /// The TLS settings as text: which certificates were trusted, and which one the clients
    /// presented. `None` without TLS.
    #[serde(default)]
    pub tls: Option<String>,
    /// Bytes per message, if all messages have the same length.
    pub length: Option<u64>,
    /// Number of connections, or of datagram sockets. Older recordings call this `clients`.
    #[serde(alias = "clients")]
    pub connections: u64,
    /// Number of threads of the load. A merged recording counts the threads of all parts.
    pub threads: u64,
    /// Requests in flight per connection, or datagrams in flight per socket.
    pub pipeline: u64,
    /// When requests are sent, as text.
    pub schedule: String,
    /// Requests per second over all connections, if they are sent at a fixed rate.
    pub rate: Option<f64>,
    /// The planned number of requests over all connections, if there is one.
    pub requests: Option<u64>,
    /// What the clients request, such as `GET /index.html`; `None` for echoes.
    pub request: Option<String>,
    /// Planned warm-up before measuring.
    pub warm_up: f64,
    /// Planned measured time.
    pub duration: f64,
    /// The length of an interval.
    pub interval: f64,
    /// The seed of the payload and of all random numbers of the clients.
    pub seed: u64,
    /// The driver on which the clients ran. If parts used different drivers, they are separated by
    /// commas.
    pub driver: String,
    /// The parts of a run of several machines, in order. Empty if there was only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartInfo>,
}

/// A part of a run of several machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartInfo {
    /// The number of the part, counted from 1.
    pub part: u64,
    /// The host name of its machine.
    pub host: String,
    /// When its measuring began, by its machine's wall clock.
    pub started: f64,
    /// Its measured time in seconds.
    pub seconds: f64,
    /// CPU time of its load in the measured time, in seconds.
    pub cpu_seconds: f64,
    /// The complete replies that it received.
    pub responses: u64,
    /// The driver on which its clients ran.
    pub driver: String,
    /// Why the recording lacks this part, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl Recording {
    /// Creates the recording of a run in which nothing was measured.
    pub fn new(run: RunInfo) -> Recording {
        Recording { run, ..Recording::default() }
    }

    /// Returns the sum of all intervals, with the measured time as its length.
    pub fn total(&self) -> Interval {
        let mut total = Interval::new(0.0, self.seconds);
        self.intervals.iter().for_each(|interval| total.add(interval));
        total
    }

    /// Returns the figures of the whole run.
    pub fn summary(&self) -> Summary {
        Summary::new(&self.total())
    }

    /// Returns the figures of each request class, in the order of [`classes`](Recording::classes).
    pub fn class_summaries(&self) -> Vec<ClassSummary> {
        let total = self.total();
        // If nothing was sent, no interval has classes.
        let counted = total.classes.into_iter().chain(std::iter::repeat_with(Default::default));
        self.classes
            .iter()
            .zip(counted)
            .map(|(name, class)| ClassSummary::new(name, &class))
            .collect()
    }

    /// If every reply reports a failure or is not the expected one, returns the replies by outcome.
    /// Returns `None` if there are no replies.
    pub fn only_refusals(&self) -> Option<String> {
        let total = self.total();
        let counts = total.outcomes.iter().map(|(name, count)| format!("{name} {count}"));
        (total.answered > 0 && total.refused == total.answered)
            .then(|| counts.collect::<Vec<_>>().join(", "))
    }

    /// Returns the load's CPU time divided by the measured time, or 0 if nothing was measured.
    pub fn cpu_share(&self) -> f64 {
        if self.seconds > 0.0 { self.cpu_seconds / self.seconds } else { 0.0 }
    }
}

/// The machine on which a run took place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The host name.
    pub host: String,
    /// The kernel release, such as `6.12.0`.
    pub kernel: String,
    /// The boot ID of the kernel, or empty if it is unknown.
    pub boot: String,
}

impl Machine {
    /// Describes this machine.
    pub fn this() -> Machine {
        let system = rustix::system::uname();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Machine {
            host: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            boot: boot.trim().to_owned(),
        }
    }
}

/// The kind of workload of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkloadKind {
    /// Requests over connections. Recordings without a kind have this kind.
    #[default]
    #[serde(alias = "per-connection")]
    Streams,
    /// Datagrams and their echoes.
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

/// Results of the datagrams that were sent within the measured time, including results after it.
/// Losses count in the interval in which a sweep detected them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramCounts {
    /// Echoed in time.
    pub received: u64,
    /// Not echoed in time.
    pub lost: u64,
    /// Echoes that arrived too late. Their datagrams count as lost.
    pub late: u64,
    /// Echoes after the first one of a datagram.
    pub duplicated: u64,
    /// Datagrams echoed after one that the same client had sent later.
    pub reordered: u64,
    /// Echoes in the whole run that match no datagram: wrong length, wrong bytes, or a number that
    /// was never sent.
    pub corrupt: u64,
}

impl DatagramCounts {
    /// Returns the counts with their names, in the order of the fields.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_reports_a_kernel_release() {
        let this = Machine::this();
        assert!(this.kernel.contains('.'), "{this:?}");
        assert_eq!(this, Machine::this());
    }
}
