//! The statistics of a server, written when it ends.

use annulus_lab::proc::status_bytes;
use annulus_load::clock;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

/// Counts of one or more connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Connections accepted.
    pub(super) connections: u64,
    /// Receives and datagrams. A receive counts once, however many of the client's messages it
    /// contains.
    pub(super) messages: u64,
    /// Bytes received.
    pub(super) bytes: u64,
    /// Datagrams refused because their source is this server or port 0.
    pub(super) refused: u64,
}

/// The statistics of `--stats`.
#[derive(Debug, Serialize)]
pub(super) struct Stats {
    /// The totals of all workers, with the driver of the first.
    #[serde(flatten)]
    total: Worker,
    /// The time from the start of the workers (with threads: from the announcement) to the end.
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_bytes: u64,
    workers: Vec<Worker>,
}

/// The statistics of one worker.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Worker {
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// Connections aborted at the end of the shutdown timeout.
    pub(super) aborted: u64,
    #[serde(flatten)]
    pub(super) driver: Driver,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Driver {
    /// `uring`, `epoll` or `threads`.
    #[serde(rename = "driver")]
    pub(super) name: String,
    pub(super) reason: String,
    /// The runtime's counters without its gauges; empty for threads.
    pub(super) counters: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// Combines the statistics of at least one worker.
    pub(super) fn new(workers: Vec<Worker>, began: Duration) -> Stats {
        let mut total = workers[0].clone();
        workers[1..].iter().for_each(|worker| total += worker);
        Stats {
            total,
            seconds: (clock::now() - began).as_secs_f64(),
            cpu_seconds: clock::process_cpu().as_secs_f64(),
            peak_rss_bytes: peak_rss(),
            workers,
        }
    }
}

impl AddAssign<&Worker> for Worker {
    fn add_assign(&mut self, other: &Worker) {
        self.counts += other.counts;
        self.aborted += other.aborted;
        for (name, count) in &other.driver.counters {
            *self.driver.counters.entry(name).or_default() += count;
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.connections += other.connections;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.refused += other.refused;
    }
}

/// Returns the peak memory of the process from `/proc`, or 0 if that is not available.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status_bytes(&status, "VmHWM:").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_rss_of_this_process_is_known() {
        assert!(peak_rss() > 100_000);
    }
}
