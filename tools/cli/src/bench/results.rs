//! The report of a bench as text.

use crate::text::{table, wrapped};
use annulus_lab::bench::{Bench, Column, Layout, Metric, NOTHING, Report, Role, Row, Summary};
use annulus_lab::environment::Environment;

/// The longest name of a baseline that fits the title of a column.
const BASELINE: usize = 17;

/// The whole report: settings, tables, memory, the verdict on the run and doubts.
pub(crate) fn of_report(report: &Report) -> String {
    [heading(report), tables(report), memory(report), summary(report), doubts(report)].concat()
}

/// The verdict on a run of several cells; with one, its verdict stands below its table.
fn summary(report: &Report) -> String {
    let Summary { sentences, family, .. } = &report.summary;
    if sentences.is_empty() || *family < 2 {
        return String::new();
    }
    let together = format!("The {family} verdicts hold together in 95 % of runs.");
    let lines = sentences.iter().chain([&together]).map(|line| wrapped("→ ", line));
    ["\n".to_owned()].into_iter().chain(lines).collect()
}

/// What was run, where, and an explanation of the figures.
pub(crate) fn heading(report: &Report) -> String {
    let Bench { plan, terms, legend, contenders, .. } = &report.settings;
    let rounds = match plan.rounds.least {
        1 => "once".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    let run = format!("{}: {rounds}{}", plan.name, terms);
    let machine = format!("{}; seed {}", machine(&report.environment), plan.seed);
    let mut text = [run, machine].map(|line| wrapped("", &line)).concat();
    let medians = if plan.rounds.least > 1 { "Medians of the rounds" } else { "" };
    let ratios = match report.controls.first() {
        Some(_) => format!(
            "; ÷ is the ratio to {} within them, [95 % interval], the control's to the first",
            contenders.baseline
        ),
        None => String::new(),
    };
    let legend = [medians, &ratios, legend.as_str()].concat();
    if !legend.is_empty() {
        text += &wrapped("", legend.trim_start_matches("; "));
    }
    text
}

/// The kernel and the processor.
pub(crate) fn machine(environment: &Environment) -> String {
    let Environment { kernel, cpu, .. } = environment;
    let comma = if cpu.is_empty() { "" } else { ", " };
    format!("Linux {kernel}{comma}{cpu}")
}

/// A table per cell with its verdict, or a table per metric.
pub(crate) fn tables(report: &Report) -> String {
    match report.settings.layout {
        Layout::Cells => cells(report),
        Layout::Matrix => matrix(report),
    }
}

/// A column of a table: a metric, and what to show of it.
type Shown<'a> = (&'a Metric, Column);

/// Every column: values first, then ratios, if contenders are compared.
fn columns(report: &Report) -> Vec<Shown<'_>> {
    let all = report
        .settings
        .metrics
        .iter()
        .flat_map(|m| m.columns.iter().map(move |column| (m, *column)));
    let compared = !report.controls.is_empty();
    let (mut ratios, values): (Vec<_>, Vec<_>) = all.partition(|shown| shown.1 == Column::Ratio);
    ratios.sort_by_key(|(metric, _)| metric.role != Role::Primary);
    values.into_iter().chain(ratios.into_iter().filter(|_| compared)).collect()
}

fn title(report: &Report, (metric, column): Shown<'_>) -> String {
    let baseline = &report.settings.contenders.baseline;
    match column {
        Column::Value => metric.title.clone(),
        Column::Best => "best".to_owned(),
        Column::Ratio if baseline.chars().count() > BASELINE => {
            format!("{} ÷ baseline", metric.noun)
        }
        Column::Ratio => format!("{} ÷ {baseline}", metric.noun),
    }
}

fn cells(report: &Report) -> String {
    let first = report.results.first().map(|row| &row.contender);
    let cells = report.results.iter().filter(|row| Some(&row.contender) == first);
    cells
        .map(|Row { cell, .. }| {
            let rows: Vec<&Row> = report.rows().filter(|row| row.cell == *cell).collect();
            let verdict = report.verdicts.iter().find(|verdict| verdict.cell == *cell);
            let verdict = verdict.map_or(String::new(), |verdict| wrapped("→ ", &verdict.text));
            format!("\n{cell}\n{}{verdict}", cell_table(report, &rows))
        })
        .collect()
}

/// A row per contender; a column of failed slices only if there are any.
fn cell_table(report: &Report, rows: &[&Row]) -> String {
    let columns = columns(report);
    let failed = rows.iter().any(|row| row.failed > 0);
    let mut lines = vec![vec![String::new()]];
    lines[0].extend(columns.iter().map(|&column| title(report, column)));
    for row in rows {
        let figures = columns.iter().map(|&column| report.shown(row, column.0, column.1));
        lines.push([row.contender.clone()].into_iter().chain(figures).collect());
    }
    let absent = &report.settings.contenders.absent;
    lines.extend(absent.iter().map(|name| absent_row(name, columns.len())));
    if failed {
        let count = |row: &&Row| row.failed.to_string();
        let nothing = absent.iter().map(|_| NOTHING.to_owned());
        let counts = ["failed".to_owned()].into_iter().chain(rows.iter().map(count)).chain(nothing);
        lines.iter_mut().zip(counts).for_each(|(line, count)| line.insert(1, count));
    }
    table(1, &lines)
}

/// The row of a contender that is missing here.
fn absent_row(name: &str, columns: usize) -> Vec<String> {
    [name.to_owned()].into_iter().chain(vec![NOTHING.to_owned(); columns]).collect()
}

/// A row per cell, a column per contender.
fn matrix(report: &Report) -> String {
    let mut names: Vec<&String> = report.rows().map(|row| &row.contender).collect();
    names.dedup();
    let first: Vec<&Row> = report.results.iter().filter(|row| row.contender == *names[0]).collect();
    columns(report)
        .into_iter()
        .map(|column| {
            let corner = first[0].cell.first_name().to_owned();
            let mut lines =
                vec![[corner].into_iter().chain(names.iter().map(|n| n.to_string())).collect()];
            for Row { cell, .. } in &first {
                let figure = |name: &&String| {
                    report
                        .row(name, cell)
                        .map_or(NOTHING.into(), |row| report.shown(row, column.0, column.1))
                };
                lines.push([cell.job()].into_iter().chain(names.iter().map(figure)).collect());
            }
            format!("\n{}\n{}", title(report, column), table(1, &lines))
        })
        .collect()
}

/// The memory of every contender, if it was read.
fn memory(report: &Report) -> String {
    if report.memory.is_empty() {
        return String::new();
    }
    let titles = ["memory, MiB", "RSS before", "after", "idle", "VIRT before", "after", "idle"];
    let mut lines = vec![titles.map(String::from).to_vec()];
    for footprint in &report.memory {
        lines.push([footprint.contender.clone()].into_iter().chain(footprint.shown()).collect());
    }
    format!("\n{}", table(1, &lines))
}

/// Reasons to doubt the results.
pub(crate) fn doubts(report: &Report) -> String {
    let blank = if report.doubts.is_empty() { "" } else { "\n" };
    let doubts = report.doubts.iter().map(|doubt| wrapped("! ", doubt));
    [blank.to_owned()].into_iter().chain(doubts).collect()
}
