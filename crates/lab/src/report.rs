//! A run as it is written to a file: medians first, and under them every slice.

use serde::Serialize;

use crate::doubt::Doubt;
use crate::environment::Environment;
use crate::proc::Memory;
use crate::record::{Metric, Outcome, Record, Sample};
use crate::rig::Work;
use crate::schedule::{Cell, Visit};
use crate::server::Spec;
use crate::stats::Ratio;
use crate::verdict::Verdict;

/// How a run was set up.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// What was measured.
    pub bench: String,
    /// The servers, without the control.
    pub servers: Vec<ServerFacts>,
    /// Rounds of every cell.
    pub rounds: usize,
    /// Rounds of a cell at most, where its ratios were to be known better.
    pub rounds_max: usize,
    /// Half the width that the intervals of the CPU ratios should have at most, if any was asked for.
    pub precision: Option<f64>,
    /// The measured seconds of a slice.
    pub seconds: f64,
    /// The seconds before them.
    pub warm_up_seconds: f64,
    /// What the clients run on.
    pub client: String,
    /// Messages in flight at each connection.
    pub pipeline: usize,
    /// Whether datagrams left, and came, several as one.
    pub segments: bool,
    /// Event loops of the load, where each message had a connection of its own.
    pub per_connection: Option<usize>,
    /// The core of the servers.
    pub server_core: usize,
    /// The core of the load.
    pub load_core: usize,
    /// The seed of the order, of the messages and of the intervals.
    pub seed: u64,
}

impl Settings {
    /// The settings that are told by the load; all others are empty.
    pub fn of(bench: String, work: Work) -> Settings {
        let plain = Settings {
            bench,
            servers: Vec::new(),
            rounds: 0,
            rounds_max: 0,
            precision: None,
            seconds: 0.0,
            warm_up_seconds: 0.0,
            client: String::new(),
            pipeline: 1,
            segments: false,
            per_connection: None,
            server_core: 0,
            load_core: 0,
            seed: 0,
        };
        match work {
            Work::Loop(load) => Settings {
                seconds: load.duration.as_secs_f64(),
                warm_up_seconds: load.warm_up.as_secs_f64(),
                client: load.client.to_string(),
                pipeline: load.pipeline,
                ..plain
            },
            Work::Letters(letters) => Settings {
                seconds: letters.duration.as_secs_f64(),
                warm_up_seconds: letters.warm_up.as_secs_f64(),
                client: letters.driver.to_string(),
                pipeline: letters.window,
                segments: letters.segments,
                ..plain
            },
            Work::Visits(visits) => Settings {
                client: visits.driver.to_string(),
                per_connection: Some(visits.threads),
                ..plain
            },
        }
    }
}

/// A server by name, and how it was run.
#[derive(Clone, Debug, Serialize)]
pub struct ServerFacts {
    /// Its name.
    pub name: String,
    /// Its command line, the program without a folder.
    pub command: Vec<String>,
}

impl ServerFacts {
    /// The facts of a server that was started like this.
    pub fn of(spec: &Spec) -> ServerFacts {
        let program = spec.program.file_name().map(|name| name.to_string_lossy().into_owned());
        let arguments = spec.arguments.iter().map(|word| word.to_string_lossy().into_owned());
        ServerFacts {
            name: spec.name.clone(),
            command: program.into_iter().chain(arguments).collect(),
        }
    }
}

/// Everything a run has to say.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How it was set up.
    pub settings: Settings,
    /// Where and when.
    pub environment: Environment,
    /// A row for every server in every cell.
    pub cells: Vec<Row>,
    /// The same for the control: the first server again.
    pub controls: Vec<Row>,
    /// The memory of each server, the control's last; empty while the run lasts.
    pub memory: Vec<Footprint>,
    /// Every server against every one after it in the list; the control against the first.
    pub comparisons: Vec<Comparison>,
    /// One a cell.
    pub verdicts: Vec<Judged>,
    /// What takes something away from it all.
    pub doubts: Vec<String>,
    /// Every slice, round by round.
    pub rounds: Vec<SliceRow>,
}

impl Report {
    /// Sums up what was measured so far. `doubts` come before those that the figures raise.
    pub fn new(
        record: &Record,
        settings: &Settings,
        environment: &Environment,
        doubts: &[Doubt],
    ) -> Report {
        let cells = 0..record.cells().len();
        let verdicts: Vec<Verdict> = cells.clone().map(|cell| Verdict::of(record, cell)).collect();
        let raised = Doubt::of(record, &verdicts);
        let row = |server| cells.clone().map(move |cell| Row::of(record, server, cell));
        Report {
            settings: settings.clone(),
            environment: environment.clone(),
            cells: (0..record.control()).flat_map(row).collect(),
            controls: row(record.control()).collect(),
            memory: Vec::new(),
            comparisons: comparisons(record),
            verdicts: verdicts.iter().enumerate().map(|(c, v)| Judged::of(record, c, v)).collect(),
            doubts: doubts.iter().chain(&raised).map(Doubt::to_string).collect(),
            rounds: record.slices().iter().map(|(&v, o)| SliceRow::of(record, v, o)).collect(),
        }
    }

    /// The rows, the control's among them, in which slices failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.cells.iter().chain(&self.controls).filter(|row| row.failed > 0)
    }
}

/// The memory of one server: `null` once it has ended.
#[derive(Clone, Debug, Serialize)]
pub struct Footprint {
    /// The server.
    pub server: String,
    /// Before the first visit.
    pub before: Option<Memory>,
    /// After the last.
    pub after: Option<Memory>,
    /// After it had been left alone for a while, where that was asked for.
    pub idle: Option<Memory>,
}

/// One server in one cell: medians over the rounds. What was never measured is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub server: String,
    /// Clients and bytes.
    #[serde(flatten)]
    pub cell: Cell,
    /// Requests a second.
    pub requests_per_second: Option<f64>,
    /// CPU time of the server a request.
    pub server_cpu_us_per_request: Option<f64>,
    /// Latency.
    pub latency_us: Latency,
    /// CPU a request as a multiple of the first server's, within the rounds.
    pub ratio: Option<Ratio>,
    /// Requests a second as a multiple of the first server's, within the rounds.
    pub rate_ratio: Option<Ratio>,
    /// The average latency as a multiple of the first server's, within the rounds.
    pub mean_ratio: Option<Ratio>,
    /// The p99 as a multiple of the first server's, within the rounds.
    pub p99_ratio: Option<Ratio>,
    /// The best round, by each figure: noise on a shared machine only ever slows.
    pub best: Best,
    /// Context switches of the server a request.
    pub server_switches_per_request: Option<f64>,
    /// Resident memory of the server.
    pub server_resident_bytes: Option<f64>,
    /// The load's share of its core, from 0 to 1.
    pub client_cpu_share: Option<f64>,
    /// Datagrams lost, in all slices together.
    pub lost: u64,
    /// Slices that are believed.
    pub slices: usize,
    /// Slices that are not.
    pub failed: usize,
    /// The first reason why not.
    pub error: Option<String>,
}

impl Row {
    fn of(record: &Record, server: usize, cell: usize) -> Row {
        let median = |metric| record.median(metric, server, cell);
        let errors: Vec<&String> = record
            .slices_of(server, cell)
            .filter_map(|(_, outcome)| outcome.as_ref().err())
            .collect();
        Row {
            server: record.servers()[server].clone(),
            cell: record.cells()[cell],
            requests_per_second: median(Metric::Rate),
            server_cpu_us_per_request: median(Metric::Cpu),
            latency_us: Latency {
                mean: median(Metric::Mean),
                p50: median(Metric::P50),
                p99: median(Metric::P99),
            },
            ratio: record.ratio(Metric::Cpu, server, 0, cell),
            rate_ratio: record.ratio(Metric::Rate, server, 0, cell),
            mean_ratio: record.ratio(Metric::Mean, server, 0, cell),
            p99_ratio: record.ratio(Metric::P99, server, 0, cell),
            best: Best::of(record, server, cell),
            server_switches_per_request: median(Metric::Switches),
            server_resident_bytes: median(Metric::Resident),
            client_cpu_share: median(Metric::ClientShare),
            lost: record
                .slices_of(server, cell)
                .filter_map(|(_, o)| Some(o.as_ref().ok()?.lost))
                .sum(),
            slices: record.values(Metric::Cpu, server, cell).len(),
            failed: errors.len(),
            error: errors.first().map(|&error| error.clone()),
        }
    }
}

/// Latency in µs, from a request's intended start to its last byte.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// The average.
    pub mean: Option<f64>,
    /// The middle.
    pub p50: Option<f64>,
    /// What one request in a hundred exceeds.
    pub p99: Option<f64>,
}

/// The best of the rounds, each figure for itself.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Best {
    /// The most requests a second.
    pub requests_per_second: Option<f64>,
    /// The least CPU a request.
    pub server_cpu_us_per_request: Option<f64>,
}

impl Best {
    fn of(record: &Record, server: usize, cell: usize) -> Best {
        let values = |metric| record.values(metric, server, cell).into_iter();
        Best {
            requests_per_second: values(Metric::Rate).reduce(f64::max),
            server_cpu_us_per_request: values(Metric::Cpu).reduce(f64::min),
        }
    }
}

/// One server against another in one cell: each figure as a multiple of the other's.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The server.
    pub server: String,
    /// The other.
    pub against: String,
    /// Clients and bytes.
    #[serde(flatten)]
    pub cell: Cell,
    /// Server CPU a request.
    pub server_cpu: Option<Ratio>,
    /// Requests a second.
    pub requests_per_second: Option<Ratio>,
    /// The average latency.
    pub mean: Option<Ratio>,
    /// The middle latency.
    pub p50: Option<Ratio>,
    /// The latency of the slowest hundredth.
    pub p99: Option<Ratio>,
}

impl Comparison {
    fn of(record: &Record, server: usize, against: usize, cell: usize) -> Comparison {
        let ratio = |metric| record.ratio(metric, server, against, cell);
        Comparison {
            server: record.servers()[server].clone(),
            against: record.servers()[against].clone(),
            cell: record.cells()[cell],
            server_cpu: ratio(Metric::Cpu),
            requests_per_second: ratio(Metric::Rate),
            mean: ratio(Metric::Mean),
            p50: ratio(Metric::P50),
            p99: ratio(Metric::P99),
        }
    }
}

fn comparisons(record: &Record) -> Vec<Comparison> {
    let asked = record.control();
    let pairs = (0..asked).flat_map(|a| (a + 1..asked).map(move |b| (a, b)));
    let pairs: Vec<_> = pairs.chain([(record.control(), 0)]).collect();
    let cells = 0..record.cells().len();
    let of_cell = |cell| pairs.iter().map(move |&(a, b)| Comparison::of(record, a, b, cell));
    cells.flat_map(of_cell).collect()
}

/// The verdict on a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Clients and bytes.
    #[serde(flatten)]
    pub cell: Cell,
    /// The winner, if one may be named.
    pub winner: Option<String>,
    /// The verdict as a sentence.
    pub verdict: String,
}

impl Judged {
    fn of(record: &Record, cell: usize, verdict: &Verdict) -> Judged {
        let winner = verdict.winner().map(str::to_owned);
        Judged { cell: record.cells()[cell], winner, verdict: verdict.to_string() }
    }
}

/// One slice.
#[derive(Clone, Debug, Serialize)]
pub struct SliceRow {
    /// Its round, from 0.
    pub round: usize,
    /// Its server.
    pub server: String,
    /// Clients and bytes.
    #[serde(flatten)]
    pub cell: Cell,
    /// What was measured.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// Why it is not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl SliceRow {
    fn of(record: &Record, visit: Visit, outcome: &Outcome) -> SliceRow {
        SliceRow {
            round: visit.round,
            server: record.servers()[visit.server].clone(),
            cell: record.cells()[visit.cell],
            sample: outcome.as_ref().ok().cloned(),
            error: outcome.as_ref().err().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cores::Cores;
    use crate::record::tests::record;

    fn settings() -> Settings {
        Settings {
            bench: "echo".into(),
            servers: Vec::new(),
            rounds: 15,
            rounds_max: 15,
            precision: None,
            seconds: 0.3,
            warm_up_seconds: 0.1,
            client: "auto".into(),
            pipeline: 1,
            segments: false,
            per_connection: None,
            server_core: 0,
            load_core: 1,
            seed: 1,
        }
    }

    fn report(record: &Record) -> Value {
        let environment = Environment::read();
        let shared = Cores { server: 0, load: 0 };
        let report = Report::new(record, &settings(), &environment, &[Doubt::SharedCore(shared)]);
        serde_json::to_value(report).expect("plain data")
    }

    #[test]
    fn cells_have_the_promised_names_and_medians() {
        let record = record(&["uring", "threads"], 15, |server, round| {
            [2.0, 4.0, 2.0][server] + round as f64 / 1000.0
        });
        let report = report(&record);
        let cell = &report["cells"][0];
        assert_eq!(cell["server"], "uring");
        assert_eq!((&cell["clients"], &cell["bytes"]), (&json!(50), &json!(128)));
        assert_eq!(cell["server_cpu_us_per_request"], json!(2.007));
        assert_eq!(cell["best"]["server_cpu_us_per_request"], json!(2.0));
        assert_eq!(cell["requests_per_second"], json!(1000.0 / 2.007));
        assert_eq!(cell["latency_us"]["p50"], json!(2.007 * 10.0));
        assert_eq!(cell["latency_us"]["p99"], json!(2.007 * 20.0));
        assert_eq!(cell["ratio"]["median"], json!(1.0));
        assert_eq!(report["cells"].as_array().map(Vec::len), Some(2));
        assert_eq!(report["controls"][0]["server"], "uring (control)");
        assert_eq!(report["rounds"].as_array().map(Vec::len), Some(45));
    }

    #[test]
    fn comparisons_are_every_pair_and_the_control() {
        let record = record(&["a", "b", "c"], 6, |server, _| [2.0, 4.0, 8.0, 2.0][server]);
        let report = report(&record);
        let rows = report["comparisons"].as_array().expect("rows");
        let pairs: Vec<String> =
            rows.iter().map(|row| format!("{} {}", row["server"], row["against"])).collect();
        assert_eq!(pairs, [r#""a" "b""#, r#""a" "c""#, r#""b" "c""#, r#""a (control)" "a""#]);
        assert_eq!(
            rows[1]["server_cpu"],
            json!({
                "median": 0.25, "interval": {"low": 0.25, "high": 0.25}
            })
        );
        assert_eq!(rows[0]["requests_per_second"]["median"], json!(2.0));
    }

    #[test]
    fn a_failure_shows_in_row_slice_verdict_and_status() {
        let mut record = record(&["a", "b"], 6, |_, _| 2.0);
        record.keep(Visit { round: 2, server: 1, cell: 0 }, Err("reset".into()));
        let report = report(&record);
        assert_eq!(
            (&report["cells"][1]["failed"], &report["cells"][1]["slices"]),
            (&json!(1), &json!(5))
        );
        assert_eq!(report["cells"][1]["error"], "reset");
        assert_eq!(report["verdicts"][0]["winner"], Value::Null);
        let slices = report["rounds"].as_array().expect("slices");
        let bad: Vec<&Value> = slices.iter().filter(|s| s.get("error").is_some()).collect();
        assert_eq!(
            bad,
            [&json!({
                "round": 2, "server": "b", "clients": 50, "bytes": 128, "error": "reset"
            })]
        );
    }

    #[test]
    fn an_empty_run_still_reports_with_nulls() {
        let record = record(&["a"], 0, |_, _| 1.0);
        let report = report(&record);
        assert_eq!(report["cells"][0]["requests_per_second"], Value::Null);
        assert_eq!(report["cells"][0]["ratio"], Value::Null);
        assert_eq!(report["rounds"], json!([]));
        let doubt = report["doubts"][0].as_str().expect("a doubt");
        assert!(doubt.starts_with("server and load share core 0"), "{doubt}");
    }

    #[test]
    fn a_servers_folder_is_nobodys_business() {
        let spec = Spec {
            name: "uring".into(),
            program: "/some/where/annulus".into(),
            arguments: vec!["echo".into()],
            pin: None,
        };
        assert_eq!(ServerFacts::of(&spec).command, ["annulus", "echo"]);
    }
}
