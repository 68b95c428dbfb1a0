//! Recordings of runs: everything that results are computed from.
//!
//! A [`Recording`] says what ran, where and when ([`RunInfo`]), and has an [`Interval`] for each second with the latencies of
//! that second as counts by bucket ([`Latencies`]). [`Summary`] and [`Percentiles`] are computed from it. It is written and
//! read as JSON, in a format with a name and a version.
//!
//! ```
//! use annulus_load::recording::{Interval, Latencies, Recording, RunInfo};
//!
//! let mut second = Interval::new(0.0, 1.0);
//! second.answered = 2000;
//! second.response = Latencies::from_iter((1..=2000).map(|n| n * 1_000));
//! let recording = Recording { seconds: 1.0, intervals: vec![second], ..Recording::new(RunInfo::default()) };
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
pub use summary::{ClassSummary, MIN_SAMPLES_BEYOND, Percentiles, Summary};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::AddAssign;

/// Most classes of requests that are recorded apart: a mix of more entries is recorded as a whole.
pub const MAX_CLASSES: usize = 100;

/// The recorded figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The run itself: settings, machine and time.
    pub run: RunInfo,
    /// Whether the run was interrupted: the intervals end there.
    pub interrupted: bool,
    /// The measured time in seconds; 0 if measuring never began.
    pub seconds: f64,
    /// Failures of the whole run by kind, such as `connect refused`, `reset`, `closed early`, `wrong bytes` or `reply timeout`. Unless
    /// clients reconnect, a client stops at its first failure, and so counts at most once.
    pub errors: BTreeMap<String, u64>,
    /// The first failure as text.
    pub first_error: Option<String>,
    /// The text of the first reply that says that the server has failed, or has not done what was asked for: a status line, or the start
    /// of a reply that is not as expected.
    #[serde(default)]
    pub first_refusal: Option<String>,
    /// CPU time of the load in the measured time, in seconds.
    pub cpu_seconds: f64,
    /// Reasons not to rely on the figures.
    #[serde(alias = "doubts")]
    pub warnings: Vec<String>,
    /// The names of the classes of requests, which are the entries of the plan's mix; empty if all are alike, or if there are more than
    /// [`MAX_CLASSES`].
    pub classes: Vec<String>,
    /// The figures of each interval, ascending. One in which nothing has happened may be missing.
    pub intervals: Vec<Interval>,
}

/// The settings, machine and time of a run. Times are in seconds, and points in time count from the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// The command line.
    pub command: Vec<String>,
    /// A name given to the run.
    pub label: Option<String>,
    /// The version of annulus.
    pub annulus: String,
    /// The machine of the load.
    pub machine: Machine,
    /// When measuring began, by the clock of the machine.
    pub started: f64,
    /// The server.
    pub address: String,
    /// The kind of workload of the clients.
    pub workload: WorkloadKind,
    /// How clients and server talk, such as `echo` or `http`.
    pub protocol: String,
    /// How the connections were encrypted, if they were.
    #[serde(default)]
    pub tls: Option<String>,
    /// Bytes per message, if all have the same length.
    pub length: Option<u64>,
    /// Clients: a connection or a socket each.
    pub clients: u64,
    /// Threads of the load.
    pub threads: u64,
    /// Requests in flight per connection, or datagrams per socket.
    pub pipeline: u64,
    /// When requests are sent, as text.
    pub schedule: String,
    /// Requests a second over all clients, if they are sent at a fixed rate.
    pub rate: Option<f64>,
    /// Planned time before measuring.
    pub warm_up: f64,
    /// Planned time of measuring.
    pub duration: f64,
    /// The length of an interval.
    pub interval: f64,
    /// The seed of what the clients send.
    pub seed: u64,
    /// The driver that the clients ran on.
    pub driver: String,
}

impl Recording {
    /// A recording of a run in which nothing was measured.
    pub fn new(run: RunInfo) -> Recording {
        Recording { run, ..Recording::default() }
    }

    /// All intervals as one, over the measured time.
    pub fn total(&self) -> Interval {
        let mut total = Interval::new(0.0, self.seconds);
        self.intervals.iter().for_each(|interval| total.add(interval));
        total
    }

    /// The figures of the whole run.
    pub fn summary(&self) -> Summary {
        Summary::new(&self.total())
    }

    /// The figures of each class of requests, in the order of [`classes`](Recording::classes); none if all are alike.
    pub fn class_summaries(&self) -> Vec<ClassSummary> {
        let total = self.total();
        // A run in which nothing was sent has no interval with them.
        let counted = total.classes.into_iter().chain(std::iter::repeat_with(Default::default));
        self.classes
            .iter()
            .zip(counted)
            .map(|(name, class)| ClassSummary::new(name, &class))
            .collect()
    }

    /// The replies by what they say, if there are any and each says that the server has failed, or has not done what was asked for.
    pub fn only_refusals(&self) -> Option<String> {
        let total = self.total();
        let counts = total.outcomes.iter().map(|(name, count)| format!("{name} {count}"));
        (total.answered > 0 && total.refused == total.answered)
            .then(|| counts.collect::<Vec<_>>().join(", "))
    }

    /// CPU time of the load divided by the measured time; 0 if nothing was measured.
    pub fn cpu_share(&self) -> f64 {
        if self.seconds > 0.0 { self.cpu_seconds / self.seconds } else { 0.0 }
    }
}

/// The machine that a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The name of the machine.
    pub host: String,
    /// The release of its kernel, such as `6.12.0`.
    pub kernel: String,
    /// The identity of this start of its kernel; empty if unknown.
    pub boot: String,
}

impl Machine {
    /// This machine.
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
