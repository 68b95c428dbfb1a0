//! File I/O for people: a paragraph for each contender as the published benchmark prints it, and a table of all.

use crate::grid::Grid;
use crate::page::wrapped;
use crate::table::thousands;
use annulus_lab::environment::Environment;
use annulus_lab::file::{Cycles, Paths, Report, Row, Settings};
use annulus_lab::stats::Ratio;

/// What the document draws around each contender.
const RULE: &str = "------------------------------------------------------\n";

pub(super) fn of_report(report: &Report<Cycles>, cell: Cycles) -> String {
    let mut text = heading(report);
    report.cells.iter().for_each(|row| text += &paragraph(row, cell));
    text.push('\n');
    text += &speeds(report);
    if !report.controls.is_empty() {
        text.push('\n');
        text += &ratios(report);
    }
    report.cells.iter().filter(|row| row.paths.calls() > 0).for_each(|row| {
        text.push('\n');
        text += &wrapped("", &paths(row));
    });
    if !report.doubts.is_empty() {
        text.push('\n');
    }
    report.doubts.iter().for_each(|doubt| text.push_str(&wrapped("! ", doubt)));
    text
}

fn heading(report: &Report<Cycles>) -> String {
    let Settings { rounds, core, seed, file_system, driver, policy, .. } = &report.settings;
    let Environment { kernel, cpu, .. } = &report.environment;
    let times = if *rounds == 1 { "once".to_owned() } else { format!("{rounds} rounds") };
    let run = format!("annulus bench file: {times}, on core {core}, on {file_system}");
    let tasks = format!("tasks on {driver}, policy {policy}");
    let comma = if cpu.is_empty() { "" } else { ", " };
    let machine = format!("Linux {kernel}{comma}{cpu}; seed {seed}");
    [&run, &tasks, &machine].map(|line| wrapped("", line)).concat()
}

/// As the published benchmark prints it; of several rounds the median.
fn paragraph(row: &Row<Cycles>, cell: Cycles) -> String {
    let Cycles { workers, cycles, bytes } = cell;
    let name = &row.contender;
    let kind = if name == "threads" { "threads" } else { "tasks" };
    let seconds = |seconds: Option<f64>| seconds.map_or("–".into(), |s| format!("{s:.6}"));
    let (cpu, real) = (seconds(row.cpu_seconds), seconds(row.real_seconds));
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
    for row in report.cells.iter().chain(&report.controls) {
        let seconds = |s: Option<f64>| s.map_or("–".into(), |s| format!("{s:.4}"));
        let whole = |n: Option<f64>| n.map_or("–".into(), |n| thousands(n.round() as u64));
        let rate = whole(row.operations_per_second);
        let megabytes = whole(row.megabytes_per_second);
        grid.row(
            &row.contender,
            [seconds(row.cpu_seconds), seconds(row.real_seconds), rate, megabytes],
        );
    }
    grid.finish()
}

fn ratios(report: &Report<Cycles>) -> String {
    let first = &report.cells[0].contender;
    let mut grid = Grid::new("", ["CPU ÷ ", "real ÷ "].map(|what| format!("{what}{first}")));
    let others = report.cells[1..].iter().chain(&report.controls);
    for row in others {
        let shown = |ratio: Option<Ratio>| ratio.map_or("–".into(), |ratio| ratio.to_string());
        grid.row(&row.contender, [shown(row.cpu_ratio), shown(row.real_ratio)]);
    }
    grid.finish()
}

/// Where a contender's runtime made its calls.
fn paths(row: &Row<Cycles>) -> String {
    let Paths { inline, misses, ring, worker } = row.paths;
    let share = |calls: u64| 100.0 * calls as f64 / row.paths.calls() as f64;
    format!(
        "{}: {} calls, {:.2} % on the loop, {:.2} % by the ring, {:.2} % by workers; {} were tried on the loop and missed",
        row.contender,
        thousands(row.paths.calls()),
        share(inline),
        share(ring),
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
                };
                record.keep(Visit { round, server, cell: 0 }, Ok(burst));
            }
        }
        let settings = Settings {
            bench: "file".into(),
            contenders: Vec::new(),
            missing: Vec::new(),
            file_system: "ext4".into(),
            driver: "uring".into(),
            policy: "adaptive".into(),
            rounds,
            core: 0,
            seed: 1,
        };
        Report::new(&record, settings, &Environment::read(&[0]), None)
    }

    #[test]
    fn it_reads_as_the_document_does_with_the_ratios_below() {
        let text = of_report(&report(6, 3), CELL);
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
        let text = of_report(&report(1, 1), CELL);
        assert!(text.contains("bench file: once") && !text.contains('÷'), "{text}");
    }
}
