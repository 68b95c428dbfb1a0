//! Everything a run measured, slice by slice, and how to ask for it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::schedule::{Cell, Visit};
use crate::stats::{Ratio, median};

/// What came of a slice: its sample, or the reason why it is not believed.
pub type Outcome<S = Sample> = Result<S, String>;

/// What one believed slice measured.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Requests answered, every byte verified.
    pub requests: u64,
    /// The time they took.
    pub seconds: f64,
    /// Requests a second.
    pub requests_per_second: f64,
    /// CPU time of all the server's threads a request, in µs.
    pub server_cpu_us_per_request: f64,
    /// The average latency in µs.
    pub mean_us: f64,
    /// The middle latency in µs.
    pub p50_us: f64,
    /// The latency in µs that one request in a hundred exceeded.
    pub p99_us: f64,
    /// How often a thread of the server was put on a core, a request.
    pub server_switches_per_request: f64,
    /// The server's resident memory when the slice ended.
    pub server_resident_bytes: u64,
    /// How much of its core the load used, from 0 to 1.
    pub client_cpu_share: f64,
    /// Datagrams whose echo did not come in time.
    pub lost: u64,
}

/// A figure of samples, as a value: so that one function compares by any of them.
pub trait Figure<S>: Copy {
    /// This figure of a sample.
    fn of(self, sample: &S) -> f64;
}

/// The figures of an echo server's sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Server CPU a request.
    Cpu,
    /// Requests a second.
    Rate,
    /// Average latency.
    Mean,
    /// Middle latency.
    P50,
    /// Latency of the slowest hundredth.
    P99,
    /// Context switches a request.
    Switches,
    /// Resident memory.
    Resident,
    /// The load's share of its core.
    ClientShare,
}

impl Figure<Sample> for Metric {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Metric::Cpu => sample.server_cpu_us_per_request,
            Metric::Rate => sample.requests_per_second,
            Metric::Mean => sample.mean_us,
            Metric::P50 => sample.p50_us,
            Metric::P99 => sample.p99_us,
            Metric::Switches => sample.server_switches_per_request,
            Metric::Resident => sample.server_resident_bytes as f64,
            Metric::ClientShare => sample.client_cpu_share,
        }
    }
}

/// All slices of a run so far: `C` is what a cell is, `S` what a slice measures.
///
/// The first server runs a second time under another name, as the last of the list: the A/A
/// control, which must come out equal to it.
#[derive(Clone, Debug)]
pub struct Record<C = Cell, S = Sample> {
    servers: Vec<String>,
    cells: Vec<C>,
    seed: u64,
    slices: BTreeMap<Visit, Outcome<S>>,
}

impl<C: Clone, S> Record<C, S> {
    /// An empty record for these servers (at least one, without the control) and cells.
    pub fn new(servers: &[String], cells: &[C], seed: u64) -> Self {
        let servers = servers.iter().cloned().chain([control_name(&servers[0])]).collect();
        Record { servers, cells: cells.to_vec(), seed, slices: BTreeMap::new() }
    }

    /// Keeps the outcome of a visit.
    pub fn keep(&mut self, visit: Visit, outcome: Outcome<S>) {
        self.slices.insert(visit, outcome);
    }

    /// The names of all servers, the control's last.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The place of the control.
    pub fn control(&self) -> usize {
        self.servers.len() - 1
    }

    /// The cells.
    pub fn cells(&self) -> &[C] {
        &self.cells
    }

    /// All slices, round by round.
    pub fn slices(&self) -> &BTreeMap<Visit, Outcome<S>> {
        &self.slices
    }

    /// The slices of one server in one cell, round by round.
    pub fn slices_of(
        &self,
        server: usize,
        cell: usize,
    ) -> impl Iterator<Item = (Visit, &Outcome<S>)> {
        let slices = self.slices.iter().map(|(&visit, outcome)| (visit, outcome));
        slices.filter(move |(visit, _)| (visit.server, visit.cell) == (server, cell))
    }

    /// The believed values of a figure, one a round.
    pub fn values(&self, figure: impl Figure<S>, server: usize, cell: usize) -> Vec<f64> {
        self.slices_of(server, cell)
            .filter_map(|(_, outcome)| outcome.as_ref().ok())
            .map(|sample| figure.of(sample))
            .collect()
    }

    /// The median of a figure over the rounds.
    pub fn median(&self, figure: impl Figure<S>, server: usize, cell: usize) -> Option<f64> {
        median(&self.values(figure, server, cell))
    }

    /// One server's figure as a multiple of another's, over the rounds that have both.
    pub fn ratio(
        &self,
        figure: impl Figure<S>,
        server: usize,
        against: usize,
        cell: usize,
    ) -> Option<Ratio> {
        let ratios: Vec<f64> = self
            .slices_of(server, cell)
            .filter_map(|(visit, outcome)| {
                let other = self.slices.get(&Visit { server: against, ..visit })?;
                Some(figure.of(outcome.as_ref().ok()?) / figure.of(other.as_ref().ok()?))
            })
            .collect();
        Ratio::of(&ratios, self.seed)
    }
}

impl Record {
    /// Whether every server's figure as a multiple of the first's, the control's too, is known to
    /// within `half_width` in a cell. One that was never measured is left out: more rounds won't help it.
    pub fn is_precise(&self, metric: Metric, cell: usize, half_width: f64) -> bool {
        let ratios =
            (1..self.servers.len()).filter_map(|server| self.ratio(metric, server, 0, cell));
        ratios.map(Ratio::half_width).all(|half| half.is_some_and(|half| half <= half_width))
    }
}

/// What the second copy of a server is called.
pub fn control_name(server: &str) -> String {
    format!("{server} (control)")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A sample whose CPU a request is `cpu`, and whose rate and latencies follow from it.
    pub(crate) fn sample(cpu: f64) -> Sample {
        Sample {
            requests: 1000,
            seconds: 1.0,
            requests_per_second: 1000.0 / cpu,
            server_cpu_us_per_request: cpu,
            mean_us: cpu * 11.0,
            p50_us: cpu * 10.0,
            p99_us: cpu * 20.0,
            server_switches_per_request: 0.5,
            server_resident_bytes: 4096,
            client_cpu_share: 0.5,
            lost: 0,
        }
    }

    /// A record of one cell and `rounds` rounds: `cpu` gives the CPU a request of a server (the
    /// last one is the control) in a round.
    pub(crate) fn record(
        servers: &[&str],
        rounds: usize,
        cpu: impl Fn(usize, usize) -> f64,
    ) -> Record {
        let names: Vec<String> = servers.iter().map(|&name| name.into()).collect();
        let mut record = Record::new(&names, &[Cell { clients: 50, bytes: 128 }], 1);
        for round in 0..rounds {
            for server in 0..=names.len() {
                let outcome = Ok(sample(cpu(server, round)));
                record.keep(Visit { round, server, cell: 0 }, outcome);
            }
        }
        record
    }

    #[test]
    fn the_control_is_the_first_server_again_and_last() {
        let record = record(&["a", "b"], 1, |_, _| 1.0);
        assert_eq!(record.servers(), ["a", "b", "a (control)"]);
        assert_eq!(record.control(), 2);
    }

    /// Round by round the ratios are 1, 4 and 3, so 3; the ratio of the medians would be 4 / 2.
    #[test]
    fn ratios_are_taken_within_a_round() {
        let cpu = [[2.0, 4.0, 9.0], [2.0, 1.0, 3.0], [1.0; 3]];
        let record = record(&["a", "b"], 3, |server, round| cpu[server][round]);
        let ratio = record.ratio(Metric::Cpu, 0, 1, 0).expect("three rounds");
        assert_eq!((ratio.median, ratio.interval), (3.0, None));
        let back = record.ratio(Metric::Cpu, 1, 0, 0).expect("three rounds");
        assert_eq!(back.median, 1.0 / 3.0);
    }

    #[test]
    fn a_slow_mood_that_falls_on_all_leaves_the_ratio_alone() {
        let mood = |round: usize| if round.is_multiple_of(3) { 1.5 } else { 1.0 };
        let record = record(&["a", "b"], 12, |server, round| [2.0, 4.0, 2.0][server] * mood(round));
        let ratio = record.ratio(Metric::Cpu, 0, 1, 0).expect("rounds");
        assert_eq!(ratio.to_string(), "0.500 [0.500, 0.500]");
    }

    #[test]
    fn a_failed_slice_takes_its_round_out_of_the_ratio() {
        let mut record = record(&["a", "b"], 2, |server, _| [2.0, 4.0, 2.0][server]);
        record.keep(Visit { round: 2, server: 0, cell: 0 }, Ok(sample(100.0)));
        record.keep(Visit { round: 2, server: 1, cell: 0 }, Err("reset".into()));
        assert_eq!(record.ratio(Metric::Cpu, 0, 1, 0).expect("two rounds").median, 0.5);
        assert_eq!(record.values(Metric::Cpu, 0, 0), [2.0, 2.0, 100.0]);
        assert_eq!(record.values(Metric::Cpu, 1, 0), [4.0, 4.0]);
    }

    #[test]
    fn a_cell_is_precise_when_every_interval_is_narrow() {
        let wobble = |server: usize, round: usize| if server == 1 { round % 3 } else { 0 } as f64;
        let record = record(&["a", "b"], 15, |server, round| 2.0 + 0.1 * wobble(server, round));
        // The rounds' ratios are 1, 1.05 and 1.1.
        assert!(
            record.is_precise(Metric::Cpu, 0, 0.051) && !record.is_precise(Metric::Cpu, 0, 0.01)
        );
        let few = super::tests::record(&["a", "b"], 5, |_, _| 2.0);
        assert!(!few.is_precise(Metric::Cpu, 0, 1.0), "five rounds have no interval");
    }

    #[test]
    fn nothing_measured_has_no_median_and_no_ratio() {
        let record = record(&["a", "b"], 0, |_, _| 1.0);
        assert_eq!(record.median(Metric::Cpu, 0, 0), None);
        assert_eq!(record.ratio(Metric::Cpu, 0, 1, 0), None);
    }
}
