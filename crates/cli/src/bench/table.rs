//! A comparison for people, within 80 columns.

use crate::grid::Grid;
use crate::page::wrapped;
use crate::table::thousands;
use annulus_lab::environment::Environment;
use annulus_lab::proc::Memory;
use annulus_lab::report::{Report, Row, Settings};
use std::fmt::Write;

/// The columns of a server's name.
const NAME: usize = 17;

/// What ends a control's name.
const CONTROL: &str = " (control)";

/// What the columns are.
const LEGEND: &str = "Medians of the rounds. CPU µs: the server's, a request. [95 % interval]";

/// All cells with their verdicts, then what takes something away from them.
pub(crate) fn of_report(report: &Report) -> String {
    let mut text = heading(report);
    for judged in &report.verdicts {
        let rows =
            report.cells.iter().chain(&report.controls).filter(|row| row.cell == judged.cell);
        let first = report.cells.first().map_or("", |row| &row.server);
        let _ = writeln!(text, "\n{}", judged.cell);
        let visits = report.settings.per_connection.is_some();
        text.push_str(&columns(first, visits));
        rows.clone().for_each(|row| text.push_str(&line(row, first, visits)));
        text.push_str(&answers(rows, first, visits));
        text.push_str(&wrapped("→ ", &judged.verdict));
    }
    text.push_str(&memory(report));
    if !report.doubts.is_empty() {
        text.push('\n');
    }
    report.doubts.iter().for_each(|doubt| text.push_str(&wrapped("! ", doubt)));
    text
}

fn heading(report: &Report) -> String {
    let Settings { bench, rounds, seconds, server_core, load_core, seed, .. } = &report.settings;
    let Settings { client, pipeline, per_connection, .. } = &report.settings;
    let Environment { kernel, cpu, .. } = &report.environment;
    let (slices, how) = match per_connection {
        None => {
            let how = if report.settings.segments { ", as segments" } else { "" };
            (format!(" of {seconds} s"), format!("{pipeline} in flight a client{how}"))
        }
        Some(threads) => (String::new(), format!("a connection a message, event loops: {threads}")),
    };
    let run = format!(
        "annulus bench {bench}: {rounds} rounds{slices}, servers on core {server_core}, \
         load ({client}) on core {load_core}, {how}"
    );
    let comma = if cpu.is_empty() { "" } else { ", " };
    let machine = format!("Linux {kernel}{comma}{cpu}; seed {seed}");
    [&run, &machine, LEGEND].map(|line| wrapped("", line)).concat()
}

fn columns(first: &str, visits: bool) -> String {
    let against = format!("CPU ÷ {}", short(first));
    let (rate, middle) =
        if visits { ("connects/s", "mean µs") } else { ("requests/s", "p50 µs") };
    format!(
        "{:<NAME$}{rate:>11}{:>7}{:>7}{middle:>8}{:>8}  {against}\n",
        "server", "CPU µs", "best", "p99 µs"
    )
}

/// The first server's name, where a heading has room for it.
fn short(first: &str) -> &str {
    if first.chars().count() > NAME { "the first" } else { first }
}

fn line(row: &Row, first: &str, visits: bool) -> String {
    if row.slices == 0 {
        let why = row.error.as_deref().unwrap_or("not measured");
        return wrapped(&format!("{:<1$} ", name(&row.server), NAME - 1), why);
    }
    let mut text = in_column(name(&row.server));
    let rate = row.requests_per_second.map(|rate| thousands(rate.round() as u64));
    let _ = write!(text, "{:>11}", rate.unwrap_or("-".into()));
    let _ = write!(text, "{:>7}", micros(row.server_cpu_us_per_request));
    let _ = write!(text, "{:>7}", micros(row.best.server_cpu_us_per_request));
    let middle = if visits { row.latency_us.mean } else { row.latency_us.p50 };
    let _ = write!(text, "{:>8}{:>8}", latency(middle), latency(row.latency_us.p99));
    let ratio = match row.ratio {
        Some(_) if row.server == first => "1".into(),
        ratio => ratio.map_or("-".into(), |ratio| ratio.to_string()),
    };
    let told = |count: u64, what| match count {
        0 => String::new(),
        count => format!(" ({} {what})", thousands(count)),
    };
    let failed = told(row.failed as u64, "failed") + &told(row.lost, "lost");
    let _ = writeln!(text, "  {ratio}{failed}");
    text
}

/// A name that fills its column; one that is too long stands on a line of its own.
fn in_column(name: &str) -> String {
    match name.chars().count() {
        ..=NAME => format!("{name:<NAME$}"),
        _ => format!("{name}\n{:NAME$}", ""),
    }
}

/// Who answers how much faster or slower than the first: CPU a request is never read alone.
fn answers<'a>(rows: impl Iterator<Item = &'a Row>, first: &str, visits: bool) -> String {
    let mut text = String::new();
    for row in rows.filter(|row| row.server != first) {
        let rate = if visits { row.mean_ratio } else { row.rate_ratio };
        let (Some(rate), Some(p99)) = (rate, row.p99_ratio) else { continue };
        let (rate, p99) = (rate.to_string(), p99.to_string());
        let _ = writeln!(text, "{}{rate:>30}  {p99:>30}", in_column(name(&row.server)));
    }
    if text.is_empty() {
        return text;
    }
    let what = if visits { "mean" } else { "requests/s" };
    let (rate, p99) = (format!("{what} ÷ {}", short(first)), format!("p99 ÷ {}", short(first)));
    format!("{:<NAME$}{rate:>30}  {p99:>30}\n{text}", "")
}

/// What every server held, where that is known.
fn memory(report: &Report) -> String {
    if report.memory.is_empty() {
        return String::new();
    }
    let columns = ["RSS before", "after", "idle", "VIRT before", "after", "idle"];
    let mut grid = Grid::new("memory, MiB", columns.map(String::from));
    for footprint in &report.memory {
        let times = [footprint.before, footprint.after, footprint.idle];
        let shown = |of: fn(Memory) -> u64| times.map(|memory| mebibytes(memory.map(of)));
        let resident = shown(|memory| memory.resident_bytes);
        let mapped = shown(|memory| memory.virtual_bytes);
        grid.row(&footprint.server, resident.into_iter().chain(mapped));
    }
    format!("\n{}", grid.finish())
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or("-".into(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
}

/// A latency in whole µs, or in seconds where that is long.
fn latency(micros: Option<f64>) -> String {
    match micros {
        None => "-".into(),
        Some(micros) if micros >= 1e6 => format!("{:.2} s", micros / 1e6),
        Some(micros) => thousands(micros.round() as u64),
    }
}

/// A name that fits its column; of a control's, what tells it from its server.
fn name(server: &str) -> &str {
    let long = server.chars().count() > NAME;
    if long && server.ends_with(CONTROL) { CONTROL.trim_start() } else { server }
}

/// A figure in µs with four digits that count.
fn micros(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    let places = match value {
        ..10.0 => 3,
        ..100.0 => 2,
        ..1000.0 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::COLUMNS as WIDTH;
    use annulus_lab::cores::Cores;
    use annulus_lab::doubt::Doubt;
    use annulus_lab::record::{Outcome, Record, Sample};
    use annulus_lab::schedule::{Cell, Visit};

    fn sample(cpu: f64) -> Outcome {
        Ok(Sample {
            requests: 1_000_000,
            seconds: 1.0,
            requests_per_second: 1e6 / cpu,
            server_cpu_us_per_request: cpu,
            mean_us: 210.0 * cpu,
            p50_us: 200.0 * cpu,
            p99_us: 2000.0 * cpu,
            server_switches_per_request: 0.1,
            server_resident_bytes: 1 << 20,
            client_cpu_share: 0.95,
            lost: 0,
        })
    }

    /// A comparison of `uring` and `threads` in one cell, of `rounds` rounds.
    fn report(rounds: usize, outcome: impl Fn(usize) -> Outcome) -> Report {
        let names = ["uring".to_owned(), "threads".to_owned()];
        let mut record = Record::new(&names, &[Cell { clients: 50, bytes: 128 }], 1);
        for round in 0..rounds {
            (0..3)
                .for_each(|server| record.keep(Visit { round, server, cell: 0 }, outcome(server)));
        }
        let settings = Settings {
            bench: "echo".into(),
            servers: Vec::new(),
            rounds,
            rounds_max: rounds,
            precision: None,
            seconds: 0.3,
            client: "auto".into(),
            pipeline: 1,
            segments: false,
            per_connection: None,
            warm_up_seconds: 0.05,
            server_core: 0,
            load_core: 0,
            seed: 1,
        };
        let shared = Doubt::SharedCore(Cores { server: 0, load: 0 });
        Report::new(&record, &settings, &Environment::read(), &[shared])
    }

    #[test]
    fn a_comparison_fits_the_page_and_ends_with_its_verdict() {
        let text = of_report(&report(15, |server| sample([3.0, 7.5, 3.0][server])));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for part in [
            "50 clients × 128 bytes\n",
            "uring                333,333  3.000  3.000     600   6,000  1\n",
            "threads              133,333  7.500  7.500   1,500  15,000  2.500 [2.500, 2.500]\n",
            "uring (control)      333,333  3.000  3.000     600   6,000  1.000 [1.000, 1.000]\n",
            "→ uring wins: 0.400 [0.400, 0.400] × the CPU of threads, 2.50 × its requests/s\n",
            "! server and load share core 0: ",
            "! the load used 95 % of its core at 50 clients × 128 bytes: ",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn a_server_that_never_answered_shows_why_in_its_row() {
        let refused = || Err("50 × connect refused".to_owned());
        let text =
            of_report(&report(15, |server| if server == 1 { refused() } else { sample(3.0) }));
        assert!(text.contains("threads          50 × connect refused\n"), "{text}");
        assert!(text.contains("→ no verdict: threads failed in 15 of 15 slices: 50 ×"), "{text}");
    }

    #[test]
    fn a_connection_a_message_shows_the_average_and_memory() {
        let mut report = report(15, |server| sample([3.0, 30.0, 3.0][server]));
        report.settings.per_connection = Some(4);
        let memory = Memory { resident_bytes: 5 << 20, virtual_bytes: 37 << 19 };
        report.memory = vec![annulus_lab::report::Footprint {
            server: "uring".into(),
            before: Some(memory),
            after: Some(memory),
            idle: None,
        }];
        let text = of_report(&report);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for part in [
            "15 rounds, servers",
            "connection a message, event loops: 4\n",
            "mean µs  p99 µs",
            "    630   6,000  1\n",
            "  6,300  60,000  10.0 [10.0, 10.0]",
            "mean ÷ uring",
            "uring               5.0    5.0     -         18.5   18.5     -\n",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn nothing_measured_is_said_and_not_drawn_as_zero() {
        let text = of_report(&report(0, |_| sample(1.0)));
        assert!(text.contains("uring            not measured\n"), "{text}");
    }

    #[test]
    fn figures_have_four_digits_that_count() {
        let shown = [3.0381, 30.381, 303.81, 3038.1].map(|value| micros(Some(value)));
        assert_eq!(shown, ["3.038", "30.38", "303.8", "3038"]);
    }

    #[test]
    fn long_latencies_are_in_seconds() {
        let shown = [None, Some(999_999.4), Some(3_988_803.0)].map(latency);
        assert_eq!(shown, ["-", "999,999", "3.99 s"]);
    }

    #[test]
    fn a_long_name_gives_its_control_a_short_one() {
        assert_eq!(name("threads (control)"), "threads (control)");
        assert_eq!(name("uring-floor (control)"), "(control)");
        assert_eq!(name("a-peer-with-a-very-long-name"), "a-peer-with-a-very-long-name");
    }

    #[test]
    fn a_name_too_long_for_its_column_stands_alone() {
        assert_eq!(in_column("uring"), format!("{:17}", "uring"));
        let text = in_column("uring+idle-timeout=30");
        assert_eq!(text, format!("uring+idle-timeout=30\n{:17}", ""));
    }
}
