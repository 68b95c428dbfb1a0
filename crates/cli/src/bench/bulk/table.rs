//! Bulk transfers for people: a table a cell, a row a contender.

use crate::grid::Grid;
use crate::page::wrapped;
use crate::table::thousands;
use annulus_lab::bulk::{Flow, Report, Row, Settings, Terms};
use annulus_lab::environment::Environment;

pub(super) fn of_report(report: &Report) -> String {
    let mut text = heading(report);
    let first = &report.cells[0].contender;
    for flow in report.cells.iter().filter(|row| row.contender == *first).map(|row| row.cell) {
        text += &format!("\n{flow}\n");
        text += &grid(report, flow).finish();
    }
    if !report.doubts.is_empty() {
        text.push('\n');
    }
    report.doubts.iter().for_each(|doubt| text.push_str(&wrapped("! ", doubt)));
    text
}

fn heading(report: &Report) -> String {
    let Settings { rounds, seed, against, terms, .. } = &report.settings;
    let Terms { seconds, sender_core, receiver_core } = terms;
    let Environment { kernel, cpu, .. } = &report.environment;
    let run = format!(
        "annulus bench bulk: {rounds} rounds of {seconds} s, senders on core {sender_core}, \
         receivers on core {receiver_core}"
    );
    let comma = if cpu.is_empty() { "" } else { ", " };
    let machine = format!("Linux {kernel}{comma}{cpu}; seed {seed}");
    let legend = format!(
        "Medians of the rounds; CPU µs for each datagram received. Per CPU: datagrams a second of \
         CPU time ÷ {against}'s, [95 % interval]; the control's ÷ the first's."
    );
    [run, machine, legend].map(|line| wrapped("", &line)).concat()
}

fn grid(report: &Report, flow: Flow) -> Grid {
    let columns = ["datagrams/s", "send µs", "recv µs", "lost", "per CPU"];
    let mut grid = Grid::new("", columns.map(String::from));
    let rows = report.rows().filter(|row| row.cell == flow);
    for row in rows {
        grid.row(&row.contender, cells(row, &report.settings.against));
    }
    grid
}

fn cells(row: &Row, against: &str) -> [String; 5] {
    let shown = |figure: Option<f64>| figure.map_or("–".into(), |figure| format!("{figure:.3}"));
    [
        row.figures.datagrams_per_second.map_or("–".into(), |rate| thousands(rate.round() as u64)),
        shown(row.figures.sender_cpu_us),
        shown(row.figures.receiver_cpu_us),
        thousands(row.figures.lost),
        match row.figures.ratio {
            Some(_) if row.contender == against => "1".into(),
            ratio => ratio.map_or("–".into(), |ratio| ratio.to_string()),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::COLUMNS;
    use annulus_lab::bulk::Transfer;
    use annulus_lab::record::Record;
    use annulus_lab::schedule::Visit;

    fn report(rounds: usize) -> Report {
        let names = ["uring", "epoll-single", "c"].map(String::from);
        let mut record = Record::new(&names, &[Flow::of(1200), Flow::of(9000)], 1);
        for round in 0..rounds {
            for (server, rate) in [5e6, 1.5e6, 2e6, 5e6].into_iter().enumerate() {
                let (received, lost) = ((rate * 0.2) as u64, 1);
                let transfer = Transfer {
                    received,
                    lost,
                    seconds: 0.2,
                    sender_cpu_seconds: 0.2,
                    receiver_cpu_seconds: 0.1,
                };
                (0..2).for_each(|cell| record.keep(Visit { round, server, cell }, Ok(transfer)));
            }
        }
        let settings = Settings {
            bench: "bulk".into(),
            contenders: Vec::new(),
            missing: Vec::new(),
            against: "c".into(),
            rounds,
            seed: 1,
            terms: Terms { seconds: 0.2, sender_core: 1, receiver_core: 0 },
        };
        Report::new(&record, settings, &Environment::read(), None)
    }

    #[test]
    fn rows_are_contenders_and_fit_the_page() {
        let text = of_report(&report(6));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        for part in [
            "\n1200 bytes, 512 unacknowledged\n",
            "\n9000 bytes, 116 unacknowledged\n",
            "datagrams/s  send µs  recv µs  lost               per CPU\n",
            "uring              5,000,000    0.200    0.100     6  2.500 [2.500, 2.500]\n",
            "c                  2,000,000    0.500    0.250     6                     1\n",
            "uring (control)    5,000,000    0.200    0.100     6  1.000 [1.000, 1.000]\n",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn nothing_measured_is_a_dash() {
        assert!(of_report(&report(0)).contains(" –"));
    }
}
