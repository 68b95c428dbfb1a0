//! Suites as text.

use crate::text::{table, wrapped};
use annulus_lab::cores::Cores;
use annulus_lab::suite::{SuitePlan, SuiteReport};

/// Formats the tables of the document, with the published figures above the measured ones.
pub(super) fn text(report: &SuiteReport) -> String {
    let mut text = heading(report);
    for one in &report.tables {
        let unit = if one.unit.is_empty() { String::new() } else { format!(", {}", one.unit) };
        text += &format!("\n{}", wrapped("", &format!("{}{unit}", one.title)));
        text += &table(2, &one.lines());
        text += &one.caption.iter().map(|caption| wrapped("", caption)).collect::<String>();
    }
    let blank = if report.notes.is_empty() { "" } else { "\n" };
    text + blank + &report.notes.iter().map(|note| wrapped("! ", note)).collect::<String>()
}

fn heading(report: &SuiteReport) -> String {
    let SuiteReport { name, suite, plan, comparison, .. } = report;
    let SuitePlan { cores, quick, seed, .. } = plan;
    let rounds = &comparison.settings.plan.rounds;
    let quick = if *quick { ", quick: fewer rounds and cells" } else { "" };
    let (Cores { server, load, .. }, awake) = (cores, cores.shown_awake());
    let machine = comparison.environment.machine();
    let measured = format!(
        "annulus bench {name}{quick}: {rounds}, servers on core {server}, load on \
         core {load}{awake}; {machine}; seed {seed}"
    );
    [
        wrapped("", &format!("{} ({})", suite.title, suite.document)),
        wrapped("published: ", &suite.machine.join("; ")),
        wrapped("measured:  ", &measured),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TEXT_COLUMNS;
    use annulus_lab::suite::{MeasuredRow, RowReport, TableReport};

    fn report(name: &str, servers: &[Option<&str>]) -> TableReport {
        let line = |(n, server): (usize, &Option<&str>)| MeasuredRow {
            server: server.map(str::to_owned),
            figures: vec![Some(1000.0 * (n + 1) as f64), None],
        };
        let row = |name: &str, published| RowReport {
            name: name.into(),
            decimals: vec![0, 1],
            published,
            measured: servers.iter().enumerate().map(line).collect(),
        };
        TableReport {
            title: "a table".into(),
            unit: "requests/s".into(),
            corner: "connections".into(),
            caption: None,
            columns: vec!["1".into(), "rate".into()],
            rows: vec![row(name, vec![Some(90209.0), Some(54.25)]), row("ours", vec![None, None])],
        }
    }

    #[test]
    fn published_figures_are_shown_above_the_measured_ones() {
        let text = table(2, &report("128", &[Some("uring"), Some("epoll")]).lines());
        let expected = "\
connections                  1  rate
128          published  90,209  54.2
             uring       1,000     –
             epoll       2,000     –
ours         uring       1,000     –
             epoll       2,000     –
";
        assert_eq!(text, expected);
    }

    #[test]
    fn long_names_are_wrapped_and_rows_without_a_server_are_called_measured() {
        let text = table(2, &report("go-uring + amd64_atomic tag", &[None]).lines());
        assert!(text.contains("tag\n") && text.contains("\nours "), "{text}");
        assert!(text.contains("  published  90,209  54.2\n"), "{text}");
        assert!(text.contains("  measured    1,000     –\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= TEXT_COLUMNS), "{text}");
    }
}
