//! What a server did, written at its end.

use annulus_load::clock;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

/// What connections did: one, or all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) connections: u64,
    /// Receives: what the kernel handed over at once counts as one.
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// The figures of `--stats`.
#[derive(Debug, Serialize)]
pub(super) struct Stats {
    /// Connections accepted.
    connections: u64,
    /// Receives answered or being answered.
    messages: u64,
    /// Bytes received, and sent back.
    bytes: u64,
    /// Connections that were cut off when the grace was over.
    cut_off: u64,
    /// `uring`, `epoll` or `threads`, and why.
    driver: String,
    reason: String,
    /// The driver's counters; none for threads.
    counters: BTreeMap<&'static str, u64>,
    /// From ready to the end.
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_bytes: u64,
}

/// Who served, in words.
pub(super) struct Driver {
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) counters: BTreeMap<&'static str, u64>,
}

impl Stats {
    pub(super) fn new(driver: Driver, tally: Tally, cut_off: usize, began: Duration) -> Stats {
        Stats {
            connections: tally.connections,
            messages: tally.messages,
            bytes: tally.bytes,
            cut_off: cut_off as u64,
            driver: driver.name,
            reason: driver.reason,
            counters: driver.counters,
            seconds: (clock::now() - began).as_secs_f64(),
            cpu_seconds: clock::process_cpu().as_secs_f64(),
            peak_rss_bytes: peak_rss(),
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.connections += other.connections;
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// The most memory the process ever held, from `/proc`; 0 where that is not there.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_peak(&status).unwrap_or(0)
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_read_in_bytes() {
        assert_eq!(
            parse_peak("VmPeak:\t 9 kB\nVmHWM:\t    4321 kB\nVmRSS:\t 1 kB\n"),
            Some(4321 * 1024)
        );
        assert_eq!(parse_peak("VmRSS: 1 kB\n"), None);
        assert!(peak_rss() > 100_000);
    }
}
