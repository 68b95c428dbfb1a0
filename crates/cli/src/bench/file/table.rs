//! File I/O for people: a paragraph for each contender as the published benchmark prints it, and a table of all.

use crate::grid::Grid;
use crate::page::wrapped;
use crate::table::thousands;
use annulus_lab::environment::Environment;
use annulus_lab::file::{Blocks, Cycles, Latency, Paths, Report, Row, Settings, Terms};
use annulus_lab::stats::Ratio;
use std::fmt::Display;

/// What the document draws around each contender.
const RULE: &str = "------------------------------------------------------\n";

/// Cycles: the document's paragraphs, and below them what it does not have.
pub(super) fn of_cycles(report: &Report<Cycles>) -> String {
    let mut text = heading(report);
    report.cells.iter().for_each(|row| text += &paragraph(row, row.cell));
    text + "\n" + &tables(report, &speeds(report))
}

/// Blocks: operations a second, and how long they took.
pub(super) fn of_blocks(report: &Report<Blocks>) -> String {
    let cell = report.cells.first().map(|row| row.cell.to_string()).unwrap_or_default();
    heading(report) + &wrapped("", &cell) + "\n" + &tables(report, &latencies(report))
}

/// Whole files over streams: what each costs.
pub(super) fn of_streams(report: &Report<Blocks>) -> String {
    let cell = report.cells.first().map(|row| row.cell.to_string()).unwrap_or_default();
    let mut grid = Grid::new("", ["CPU ms/file", "real ms/file", "MB/s"].map(String::from));
    for row in report.rows() {
        let each =
            |seconds: Option<f64>| seconds.map_or("–".into(), |s| format!("{:.1}", s * 1e3));
        let real = row.figures.operations_per_second.map(f64::recip);
        grid.row(
            &row.contender,
            [each(row.figures.cpu_each), each(real), whole(row.figures.megabytes_per_second)],
        );
    }
    heading(report) + &wrapped("", &cell) + "\n" + &tables(report, &grid.finish())
}

/// What is below: the speeds, how they compare, where calls were made, and doubts.
fn tables<C: Clone + Display>(report: &Report<C>, speeds: &str) -> String {
    let mut text = speeds.to_owned();
    if !report.controls.is_empty() {
        text.push('\n');
        text += &ratios(report);
    }
    report.cells.iter().filter(|row| row.figures.paths.calls() > 0).for_each(|row| {
        text.push('\n');
        text += &wrapped("", &paths(row));
    });
    if !report.doubts.is_empty() {
        text.push('\n');
    }
    report.doubts.iter().for_each(|doubt| text.push_str(&wrapped("! ", doubt)));
    text
}

fn heading<C: Clone>(report: &Report<C>) -> String {
    let Settings { rounds, seed, terms, .. } = &report.settings;
    let Terms { file_system, driver, policy, core } = terms;
    let Environment { kernel, cpu, .. } = &report.environment;
    let times = if *rounds == 1 { "once".to_owned() } else { format!("{rounds} rounds") };
    let run = format!("annulus bench file: {times}, on core {core}, on {file_system}");
    let tasks = format!("tasks on {driver}, policy {policy}");
    let comma = if cpu.is_empty() { "" } else { ", " };
    let machine = format!("Linux {kernel}{comma}{cpu}; seed {seed}");
    [&run, &tasks, &machine].map(|line| wrapped("", line)).concat()
}

fn latencies(report: &Report<Blocks>) -> String {
    let columns = ["operations/s", "MB/s", "CPU µs", "p50 µs", "p99 µs", "p99.9 µs", "max µs"];
    let mut grid = Grid::new("", columns.map(String::from));
    for row in report.rows() {
        let one =
            |figure: Option<f64>| figure.map_or("–".into(), |figure| format!("{figure:.1}"));
        let took = |figure: fn(&Latency) -> f64| one(row.figures.latency.as_ref().map(figure));
        let cpu = row.figures.cpu_each.map(|seconds| seconds * 1e6);
        let cells = [
            whole(row.figures.operations_per_second),
            whole(row.figures.megabytes_per_second),
            one(cpu),
            took(|l| l.p50),
            took(|l| l.p99),
            took(|l| l.p99_9),
            took(|l| l.max),
        ];
        grid.row(&row.contender, cells);
    }
    grid.finish()
}

fn whole(number: Option<f64>) -> String {
    number.map_or("–".into(), |number| thousands(number.round() as u64))
}

/// As the published benchmark prints it; of several rounds the median.
fn paragraph(row: &Row<Cycles>, cell: Cycles) -> String {
    let Cycles { workers, cycles, bytes } = cell;
    let name = &row.contender;
    let kind = if name == "threads" { "threads" } else { "tasks" };
    let seconds = |seconds: Option<f64>| seconds.map_or("–".into(), |s| format!("{s:.6}"));
    let (cpu, real) = (seconds(row.figures.cpu_seconds), seconds(row.figures.real_seconds));
    format!(
        "{RULE}Benchmarking read write files with {name} with params:\n\
         [{workers} {kind}, {cycles} IO cycles per {}, {bytes} bytes per IO]\n\n\
         Finished read write files with {name} in\n{cpu} seconds CPU time, {real} seconds real time\n{RULE}",
        kind.trim_end_matches('s'),
    )
}

fn speeds(report: &Report<Cycles>) -> String {
    let columns = ["CPU s", "real s", "cycles/s", "MB/s"];
    let mut grid = Grid::new("", columns.map(String::from));
    for row in report.rows() {
        let seconds = |s: Option<f64>| s.map_or("–".into(), |s| format!("{s:.4}"));
        let rate = whole(row.figures.operations_per_second);
        let megabytes = whole(row.figures.megabytes_per_second);
        grid.row(
            &row.contender,
            [seconds(row.figures.cpu_seconds), seconds(row.figures.real_seconds), rate, megabytes],
        );
    }
    grid.finish()
}

fn ratios<C: Clone>(report: &Report<C>) -> String {
    let first = &report.cells[0].contender;
    let mut grid = Grid::new("", ["CPU ÷ ", "real ÷ "].map(|what| format!("{what}{first}")));
    let others = report.cells[1..].iter().chain(&report.controls);
    for row in others {
        let shown = |ratio: Option<Ratio>| ratio.map_or("–".into(), |ratio| ratio.to_string());
        grid.row(&row.contender, [shown(row.figures.cpu_ratio), shown(row.figures.real_ratio)]);
    }
    grid.finish()
}

/// Where a contender's runtime made its calls.
fn paths<C>(row: &Row<C>) -> String {
    let Paths { inline, misses, ring, registered, worker } = row.figures.paths;
    let share = |calls: u64| 100.0 * calls as f64 / row.figures.paths.calls() as f64;
    format!(
        "{}: {} calls, {:.2} % on the loop, {:.2} % by the ring ({:.2} % in registered memory), {:.2} % by workers; {} were tried on the loop and missed",
        row.contender,
        thousands(row.figures.paths.calls()),
        share(inline),
        share(ring),
        share(registered),
        share(worker),
        thousands(misses),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::COLUMNS;
    use annulus_lab::file::Burst;
    use annulus_lab::record::Record;
    use annulus_lab::schedule::Visit;

    const CELL: Cycles = Cycles { workers: 20, cycles: 40_960, bytes: 4096 };

    fn report(rounds: usize, servers: usize) -> Report<Cycles> {
        let mut record = Record::new(&["threads", "tasks"].map(String::from), &[CELL], 1);
        for round in 0..rounds {
            for server in 0..servers {
                let inline = if server == 1 { 4 * 819_200 } else { 0 };
                let burst = Burst {
                    operations: 819_200,
                    bytes: 2 * 819_200 * 4096,
                    ns: [4_000_000_000, 3_000_000_000, 4_000_000_000][server],
                    cpu_ns: 3_000_000_000,
                    paths: Paths { inline, ..Paths::default() },
                    latency: None,
                };
                record.keep(Visit { round, server, cell: 0 }, Ok(burst));
            }
        }
        let settings = Settings {
            bench: "file".into(),
            contenders: Vec::new(),
            missing: Vec::new(),
            against: "threads".into(),
            rounds,
            seed: 1,
            terms: Terms {
                file_system: "ext4".into(),
                driver: "uring".into(),
                policy: "adaptive".into(),
                core: 0,
            },
        };
        Report::new(&record, settings, &Environment::read(), None)
    }

    #[test]
    fn it_reads_as_the_document_does_with_the_ratios_below() {
        let text = of_cycles(&report(6, 3));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        for part in [
            "Benchmarking read write files with threads with params:\n\
             [20 threads, 40960 IO cycles per thread, 4096 bytes per IO]\n",
            "3.000000 seconds CPU time, 4.000000 seconds real time\n",
            "[20 tasks, 40960 IO cycles per task, 4096 bytes per IO]\n",
            "204,800",
            "CPU ÷ threads",
            "0.750 [0.750, 0.750]",
            "threads (control)",
            "tasks: 19,660,800 calls, 100.00 % on the loop, 0.00 % by the ring",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn one_alone_is_compared_with_nothing() {
        let text = of_cycles(&report(1, 1));
        assert!(text.contains("bench file: once") && !text.contains('÷'), "{text}");
    }
}
