//! What a run with datagrams found.

use super::in_flight::Counts;
use super::plan::DatagramPlan;
use crate::measured::Measured;
use crate::metrics::Totals;
use crate::report::{LatencySummary, interruption, saturation};
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of one run. Datagrams are counted that were *sent* within the measured time, whenever their fate was
/// decided: `sent` is `received` and `lost` together.
#[derive(Clone, Debug, Serialize)]
pub struct DatagramReport {
    /// The server's address.
    pub address: String,
    /// Clients.
    pub clients: usize,
    /// Bytes a datagram.
    pub length: usize,
    /// Datagrams under way at each client.
    pub window: usize,
    /// Whether datagrams left, and came, several as one.
    pub segments: bool,
    /// The measured time; 0 where measuring never began.
    pub seconds: f64,
    /// Whether the run was interrupted: the figures are of what there was until then.
    pub interrupted: bool,
    /// Datagrams sent.
    pub sent: u64,
    /// Of these, echoed in time.
    pub received: u64,
    /// Of these, not echoed in time.
    pub lost: u64,
    /// Echoes that came after all, too late; lost all the same.
    pub late: u64,
    /// Echoes beyond the first.
    pub duplicated: u64,
    /// Echoed after one that was sent later by the same client.
    pub reordered: u64,
    /// Echoes, of the whole run, that are those of no datagram: another length, other bytes, a number never sent.
    pub corrupt: u64,
    /// Echoes that came within the measured time, over that time.
    pub datagrams_per_second: f64,
    /// Their bytes, in millions a second, one way.
    pub megabytes_per_second: f64,
    /// Latency in µs of the echoes that came within the measured time.
    pub latency_us: LatencySummary,
    /// Failures of the whole run by kind, as in [`crate::Report::errors`], and `corrupt`.
    pub errors: BTreeMap<String, u64>,
    /// The first failure in words.
    pub first_error: Option<String>,
    /// Share of one core the load itself used within the window.
    pub client_cpu_share: f64,
    /// The driver the load ran on, and why.
    pub driver: String,
    /// What speaks against these figures.
    pub doubts: Vec<String>,
}

/// What became of all datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DatagramTotals {
    counts: Counts,
    corrupt: u64,
}

impl DatagramTotals {
    /// Adds those of one client.
    pub(super) fn add(&mut self, client: Counts, corrupt: u64) {
        let sum = &mut self.counts;
        for (total, one) in [
            (&mut sum.sent, client.sent),
            (&mut sum.answered, client.answered),
            (&mut sum.lost, client.lost),
            (&mut sum.late, client.late),
            (&mut sum.duplicated, client.duplicated),
            (&mut sum.reordered, client.reordered),
        ] {
            *total += one;
        }
        self.corrupt += corrupt;
    }
}

impl DatagramReport {
    pub(super) fn new(
        plan: &DatagramPlan,
        driver: String,
        measured: Measured,
        totals: DatagramTotals,
        take_totals: Totals,
    ) -> DatagramReport {
        let DatagramTotals { counts, corrupt } = totals;
        let seconds = measured.length.as_secs_f64();
        let a_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let rate = a_second(take_totals.histogram.len() as f64);
        let share = a_second(measured.cpu.as_secs_f64());
        DatagramReport {
            address: plan.address.to_string(),
            clients: plan.clients,
            length: plan.length,
            window: plan.window,
            segments: plan.segments,
            seconds,
            sent: counts.sent,
            received: counts.answered,
            lost: counts.lost,
            late: counts.late,
            duplicated: counts.duplicated,
            reordered: counts.reordered,
            corrupt,
            datagrams_per_second: rate,
            megabytes_per_second: rate * plan.length as f64 / 1e6,
            latency_us: LatencySummary::new(&take_totals.histogram),
            interrupted: measured.interrupted,
            doubts: doubts(plan, measured, share, counts),
            errors: take_totals.faults.by_kind,
            first_error: take_totals.faults.first,
            client_cpu_share: share,
            driver,
        }
    }
}

fn doubts(plan: &DatagramPlan, measured: Measured, share: f64, counts: Counts) -> Vec<String> {
    let cut_short = interruption(measured, plan.duration);
    if measured.length.is_zero() {
        let nothing = "nothing was measured: not every client has a socket";
        return vec![cut_short.unwrap_or_else(|| nothing.into())];
    }
    let lost = (counts.lost > 0).then(|| {
        let percent = counts.lost as f64 * 100.0 / counts.sent as f64;
        format!(
            "{percent:.3}% of the datagrams were lost: a socket's buffer may be too small for {} bytes from {} clients \
             (net.core.rmem_default, rmem_max)",
            plan.length, plan.clients
        )
    });
    cut_short.into_iter().chain(saturation(share, plan.pin, 1)).chain(lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_a_busy_client_are_doubts() {
        let plan = DatagramPlan::new("127.0.0.1:7000".parse().unwrap());
        let counts = Counts { sent: 1000, answered: 999, lost: 1, ..Counts::default() };
        let doubts = |seconds, share, counts| {
            let length = std::time::Duration::from_secs_f64(seconds);
            let measured = Measured { length, ..Measured::default() };
            doubts(&plan, measured, share, counts).join("; ")
        };
        assert_eq!(doubts(1.0, 0.5, Counts::default()), "");
        assert!(doubts(1.0, 0.5, counts).starts_with("0.100% of the datagrams were lost"));
        assert!(doubts(1.0, 0.99, Counts::default()).contains("99% of its core"));
        assert!(doubts(0.0, 0.0, counts).contains("nothing was measured"));
    }
}
