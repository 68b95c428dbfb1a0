//! A suite for people: the document's tables, the published figures above the measured ones.

use super::report::{Report, RowReport, TableReport};
use crate::grid::Grid;
use crate::page::wrapped;
use crate::table::thousands;
use annulus_lab::environment::Environment;

/// Rows' names up to this long stand before who measured, longer ones above.
const SHORT: usize = 12;

/// What a published line is called.
const PUBLISHED: &str = "published";
const MEASURED: &str = "measured";

pub(super) fn of_report(report: &Report) -> String {
    let mut text = heading(report);
    for table in &report.tables {
        text.push('\n');
        let unit = if table.unit.is_empty() { String::new() } else { format!(", {}", table.unit) };
        text += &wrapped("", &format!("{}{unit}", table.title));
        text += &grid(table).finish();
        text += &table.caption.iter().map(|caption| wrapped("", caption)).collect::<String>();
    }
    text.push('\n');
    report.notes.iter().for_each(|note| text += &wrapped("! ", note));
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn heading(report: &Report) -> String {
    let Report { suite, title, document, rounds, server_core, load_core, seed, .. } = report;
    let Environment { kernel, cpu, .. } = &report.environment;
    let quick = if report.quick { ", quick: fewer rounds, shorter slices" } else { "" };
    let comma = if cpu.is_empty() { "" } else { ", " };
    [
        wrapped("", &format!("{title} ({document})")),
        wrapped("published: ", &report.machine.join("; ")),
        wrapped(
            "measured:  ",
            &format!(
                "annulus bench suite {suite}{quick}: {rounds} rounds, servers on core {server_core}, \
                 load on core {load_core}; Linux {kernel}{comma}{cpu}; seed {seed}"
            ),
        ),
    ]
    .concat()
}

fn grid(table: &TableReport) -> Grid {
    let longest = table.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let mut grid = Grid::new(&table.corner, table.columns.iter().cloned());
    for row in &table.rows {
        let name = if longest <= SHORT { format!("{:<longest$}", row.name) } else { String::new() };
        if longest > SHORT {
            grid.heading(&row.name);
        }
        lines(row, &name).into_iter().for_each(|(name, cells)| grid.row(&name, cells));
    }
    grid
}

/// The published line, where there is one, and the measured ones, the row's name before the first.
fn lines(row: &RowReport, name: &str) -> Vec<(String, Vec<String>)> {
    let published =
        row.published.iter().any(Option::is_some).then_some((PUBLISHED, &row.published));
    let measured =
        row.measured.iter().map(|line| (line.server.as_deref().unwrap_or(MEASURED), &line.figures));
    let mut name = name.to_owned();
    let all = published.into_iter().chain(measured);
    all.map(|(who, figures)| {
        let label = format!("{name}  {who}");
        name = " ".repeat(name.chars().count());
        (label, figures.iter().zip(&row.places).map(|(f, &p)| figure(*f, p)).collect())
    })
    .collect()
}

/// A figure with its thousands apart, or a dash.
fn figure(value: Option<f64>, places: usize) -> String {
    let Some(value) = value else { return "–".into() };
    let text = format!("{value:.places$}");
    let (whole, decimals) = text.split_once('.').map_or((&*text, None), |(w, d)| (w, Some(d)));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), thousands);
    decimals.map_or(whole.clone(), |decimals| format!("{whole}.{decimals}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::suite::report::Measured;
    use crate::page::COLUMNS;
    use annulus_lab::suite::Kind;

    fn report(tables: Vec<TableReport>) -> Report {
        Report {
            suite: "tcp".into(),
            title: "TCP echo".into(),
            document: "003".into(),
            kind: Kind::Echo,
            machine: vec!["a laptop".into(), "its core".into()],
            commands: Vec::new(),
            quick: true,
            rounds: 3,
            server_core: 0,
            load_core: 1,
            seed: 1,
            environment: Environment::read(),
            tables,
            notes: vec!["no server 'tokyo' in this version".into()],
            comparison: None,
        }
    }

    fn table(name: &str, servers: &[Option<&str>]) -> TableReport {
        let line = |(n, server): (usize, &Option<&str>)| Measured {
            server: server.map(str::to_owned),
            figures: vec![Some(1000.0 * (n + 1) as f64), None],
        };
        let row = |name: &str, published| RowReport {
            name: name.into(),
            places: vec![0, 1],
            published,
            measured: servers.iter().enumerate().map(line).collect(),
        };
        TableReport {
            title: "a table".into(),
            unit: "requests/s".into(),
            corner: "clients".into(),
            caption: Some("What to know.".into()),
            columns: vec!["1".into(), "rate".into()],
            rows: vec![row(name, vec![Some(90209.0), Some(54.25)]), row("ours", vec![None, None])],
        }
    }

    #[test]
    fn published_figures_stand_above_the_measured_ones() {
        let text = of_report(&report(vec![table("128", &[Some("uring"), Some("epoll")])]));
        let expected = "\na table, requests/s
clients               1  rate
128   published  90,209  54.2
      uring       1,000     –
      epoll       2,000     –
ours  uring       1,000     –
      epoll       2,000     –
What to know.

! no server 'tokyo' in this version
";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.starts_with("TCP echo (003)\npublished: a laptop; its core\n"), "{text}");
        assert!(text.contains("bench suite tcp, quick: fewer rounds"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn long_names_stand_above_and_servers_of_columns_are_measured() {
        let text = of_report(&report(vec![table("go-uring + amd64_atomic tag", &[None])]));
        let expected = "
clients           1  rate
go-uring + amd64_atomic tag
  published  90,209  54.2
  measured    1,000     –
ours
  measured    1,000     –
";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn figures_have_their_thousands_apart_and_their_decimals() {
        let shown = [(1234567.0, 0), (1234.567, 2), (0.05, 1), (99.96, 1)];
        let shown = shown.map(|(value, places)| figure(Some(value), places));
        assert_eq!(shown, ["1,234,567", "1,234.57", "0.1", "100.0"]);
        assert_eq!(figure(None, 1), "–");
    }
}
