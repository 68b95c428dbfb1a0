//! NOP throughput for people: a row a queue size, a column a contender, as the published table has it.

use crate::grid::Grid;
use crate::page::wrapped;
use crate::table::thousands;
use annulus_lab::environment::Environment;
use annulus_lab::nop::{Report, Row, Settings, Terms};

/// What the numbers are.
const LEGEND: &str = "Operations a second: the median of the rounds.";

pub(super) fn of_report(report: &Report) -> String {
    let against = &report.settings.against;
    let ratios = format!(
        "Operations a second of CPU time ÷ {against}'s, [95 % interval]; the control's ÷ the first's."
    );
    let mut text = heading(report);
    text += &grid(report, rate).finish();
    text += &format!("\n{}\n", wrapped("", &ratios).trim_end());
    text += &grid(report, |row| ratio(row, against)).finish();
    if !report.doubts.is_empty() {
        text.push('\n');
    }
    report.doubts.iter().for_each(|doubt| text.push_str(&wrapped("! ", doubt)));
    text
}

fn heading(report: &Report) -> String {
    let Settings { rounds, seed, terms: Terms { seconds, core }, .. } = &report.settings;
    let Environment { kernel, cpu, .. } = &report.environment;
    let run = format!("annulus bench nop: {rounds} rounds of {seconds} s, all on core {core}");
    let comma = if cpu.is_empty() { "" } else { ", " };
    let machine = format!("Linux {kernel}{comma}{cpu}; seed {seed}");
    let mut text = [&run, &machine, LEGEND].map(|line| wrapped("", line)).concat();
    text.push('\n');
    text
}

/// A cell for every queue size and contender, the control last.
fn grid(report: &Report, cell: impl Fn(&Row) -> String) -> Grid {
    let mut names: Vec<&String> = report.rows().map(|row| &row.contender).collect();
    names.dedup();
    let mut sizes: Vec<u32> = report.rows().map(|row| row.cell.0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut grid = Grid::new("entries", names.iter().map(|name| name.to_string()));
    for size in sizes {
        let row =
            |name: &&String| report.rows().find(|r| (&r.contender, r.cell.0) == (*name, size));
        grid.row(&size.to_string(), names.iter().map(|name| row(name).map_or("–".into(), &cell)));
    }
    grid
}

fn rate(row: &Row) -> String {
    row.figures.operations_per_second.map_or("–".into(), |rate| thousands(rate.round() as u64))
}

fn ratio(row: &Row, against: &str) -> String {
    match row.figures.ratio {
        Some(_) if row.contender == against => "1".into(),
        ratio => ratio.map_or("–".into(), |ratio| ratio.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::COLUMNS;
    use annulus_lab::nop::{Burst, Entries};
    use annulus_lab::record::Record;
    use annulus_lab::schedule::Visit;

    fn report(rounds: usize) -> Report {
        let names = ["ring", "lookup", "task", "liburing"].map(String::from);
        let cells = [Entries(64), Entries(4096)];
        let mut record = Record::new(&names, &cells, 1);
        for round in 0..rounds {
            for (server, rate) in [17e6, 16e6, 9e6, 16e6, 17e6].into_iter().enumerate() {
                for cell in 0..2 {
                    let operations = (rate * 0.05) as u64;
                    let burst = Burst { operations, seconds: 0.05, cpu_seconds: 0.05 };
                    record.keep(Visit { round, server, cell }, Ok(burst));
                }
            }
        }
        let settings = Settings {
            bench: "nop".into(),
            contenders: Vec::new(),
            missing: Vec::new(),
            against: "liburing".into(),
            rounds,
            seed: 1,
            terms: Terms { seconds: 0.05, core: 0 },
        };
        Report::new(&record, settings, &Environment::read(&[0]), None)
    }

    #[test]
    fn rows_are_sizes_and_columns_contenders() {
        let text = of_report(&report(6));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        for part in [
            "\n\nentries        ring      lookup       task    liburing  ring (control)\n\
             64       17,000,000  16,000,000  9,000,000  16,000,000      17,000,000\n\
             4096     17,000,000",
            "0.562 [0.562, 0.562]",
            "64       1.062 [1.062, 1.062]  1.000 [1.000, 1.000]",
            "÷ liburing's",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn nothing_measured_is_a_dash() {
        let text = of_report(&report(0));
        assert!(text.contains("\n4096        –"), "{text}");
    }
}
