//! The report of a bench as text.

use super::sweep::sweep_text;
use crate::text::{table, wrapped};
use annulus_lab::bench::{
    Arrivals, Bench, Cell, CellVerdict, Column, Metric, NOT_MEASURED, Report, Role, Row,
    range_names,
};
use annulus_load::counted;
use annulus_load::stats::{Interval, Ratio, Verdict};
use annulus_page::text::grouped;

/// Maximum length in characters of a baseline name in a column title.
const MAX_BASELINE_COLUMNS: usize = 17;

/// Half the width of a bar, in characters.
const HALF_BAR_COLUMNS: usize = 12;

/// Formats the report of a run. With `is_verbose`, or if there are no ratios to show, it has tables
/// of all figures; otherwise, one ratio per contender and cell.
pub(crate) fn report_text(report: &Report, is_verbose: bool) -> String {
    if let Some(sweep) = report.sweep.as_ref().filter(|_| !is_verbose) {
        return sweep_text(report, sweep);
    }
    let answer: String = report.answer().iter().map(|line| wrapped("", line)).collect();
    let blank = if answer.is_empty() { "" } else { "\n" };
    match ratios(report).filter(|_| !is_verbose) {
        Some(ratios) => {
            [answer, blank.into(), ratios, noise(report), run(report), warnings(report)].concat()
        }
        None => {
            let tables = [
                heading(report),
                tables(report),
                memory(report),
                arrivals(report),
                warnings(report),
            ];
            [answer, blank.into(), tables.concat()].concat()
        }
    }
}

/// Formats one row per contender and cell: the primary metric, and its ratio as a number and as a
/// bar. A void cell says why. Returns `None` if there is no primary metric or no result.
fn ratios(report: &Report) -> Option<String> {
    let (metric, settings) = (report.settings.primary()?, &report.settings);
    let ratio = |row: &Row| row.figures.get(&metric.key).and_then(|figure| figure.ratio);
    let ends = report.results.iter().filter_map(ratio).flat_map(|ratio| {
        ratio.interval.map_or([ratio.median; 2], |found| [found.low, found.high])
    });
    let span = ends.map(|end| end.log2().abs()).fold(0.3, f64::max).min(3.0);
    let titles = [metric.title.clone(), title(report, (metric, Column::Ratio)), String::new()];
    let titles: Vec<String> = [String::new()].into_iter().chain(titles).collect();
    let of_cell = |cell: &Cell| {
        let mut lines = vec![titles.clone()];
        for row in report.results.iter().filter(|row| row.cell == *cell) {
            let [value, shown] =
                [Column::Value, Column::Ratio].map(|column| report.shown(row, metric, column));
            let bar = ratio(row).map_or(String::new(), |ratio| bar(ratio, span));
            lines.push(vec![row.contender.clone(), value, shown, bar]);
        }
        let absent = &settings.contenders.absent;
        lines.extend(absent.iter().map(|name| absent_row(name, 3)));
        let title = if settings.cells.len() > 1 { format!("{cell}\n") } else { String::new() };
        let void = verdict(report, cell).filter(|found| found.verdict == Verdict::Void);
        title + &table(1, &lines) + &void.map_or(String::new(), verdict_text)
    };
    (!report.results.is_empty()).then(|| settings.cells.iter().map(of_cell).collect())
}

/// Draws a ratio and its interval on a logarithmic axis, from 2^-`span` to 2^`span`.
fn bar(ratio: Ratio, span: f64) -> String {
    let place = |value: f64| {
        let share = (value.log2() / span).clamp(-1.0, 1.0);
        ((share + 1.0) * HALF_BAR_COLUMNS as f64).round() as usize
    };
    let mut line = [' '; 2 * HALF_BAR_COLUMNS + 1];
    line[HALF_BAR_COLUMNS] = '│';
    if let Some(Interval { low, high }) = ratio.interval {
        line[place(low)..=place(high)].fill('─');
    }
    line[place(ratio.median)] = '●';
    line.iter().collect()
}

/// Formats the largest deviation of a control, which is the noise of the machine.
fn noise(report: &Report) -> String {
    let Some(metric) = report.settings.primary() else { return String::new() };
    let ratio = |row: &Row| row.figures.get(&metric.key).and_then(|figure| figure.ratio);
    let controls = report.controls.iter().filter_map(|row| Some((ratio(row)?, row)));
    let worst = controls.max_by(|a, b| a.0.reach().total_cmp(&b.0.reach()));
    worst.map_or(String::new(), |(ratio, row)| {
        let at = match report.settings.cells.len() {
            1 => String::new(),
            _ => format!(", at {}", row.cell),
        };
        wrapped("noise: ", &format!("{} itself, measured twice{at}", ratio.times()))
    })
}

fn run(report: &Report) -> String {
    let Bench { plan, terms, cells, .. } = &report.settings;
    // Cells may have had different numbers of rounds.
    let rounds_of = |cell: &Cell| {
        let slices = report.samples.iter().filter(|slice| slice.cell == *cell);
        slices.map(|slice| slice.round + 1).max().unwrap_or(0)
    };
    let least = cells.iter().map(rounds_of).min().unwrap_or(0);
    let most = cells.iter().map(rounds_of).max().unwrap_or(0);
    let rounds = match least < most {
        true => format!("{least} to {most} rounds"),
        false => counted(most, "round"),
    };
    wrapped("", &format!("{}: {rounds}{terms}; --verbose shows all figures", plan.name))
}

/// Formats the heading: the run, the machine, and an explanation of the figures.
pub(crate) fn heading(report: &Report) -> String {
    let Bench { plan, terms, legend, contenders, .. } = &report.settings;
    let run = format!("{}: {}{terms}", plan.name, plan.rounds);
    let machine = format!("{}; seed {}", report.environment.machine(), plan.seed);
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

/// A column of a table: a metric, and the kind of value to show.
type TableColumn<'a> = (&'a Metric, Column);

/// Returns every column: values and the primary metric's ratio first, then the other ratios.
fn columns(report: &Report) -> Vec<TableColumn<'_>> {
    let mut columns = report.columns(Column::is_in_text);
    columns
        .sort_by_key(|&(metric, column)| column == Column::Ratio && metric.role != Role::Primary);
    columns
}

fn title(report: &Report, (metric, column): TableColumn<'_>) -> String {
    let baseline = &report.settings.contenders.baseline;
    let is_long = baseline.chars().count() > MAX_BASELINE_COLUMNS;
    column.title(metric, if is_long { "baseline" } else { baseline })
}

/// Formats one table per cell with its verdict.
pub(crate) fn tables(report: &Report) -> String {
    let first = report.results.first().map(|row| &row.contender);
    let cells = report.results.iter().filter(|row| Some(&row.contender) == first);
    cells
        .map(|Row { cell, .. }| {
            let rows: Vec<&Row> = report.rows().filter(|row| row.cell == *cell).collect();
            let verdict = verdict(report, cell).map_or(String::new(), verdict_text);
            format!("\n{cell}\n{}{verdict}", cell_table(report, &rows))
        })
        .collect()
}

fn verdict<'a>(report: &'a Report, cell: &Cell) -> Option<&'a CellVerdict> {
    report.verdicts.iter().find(|verdict| verdict.cell == *cell)
}

fn verdict_text(verdict: &CellVerdict) -> String {
    wrapped("→ ", &verdict.text)
}

/// Formats one row per contender, with a column of failed slices if any failed.
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
        let nothing = absent.iter().map(|_| NOT_MEASURED.to_owned());
        let counts = ["failed".to_owned()].into_iter().chain(rows.iter().map(count)).chain(nothing);
        lines.iter_mut().zip(counts).for_each(|(line, count)| line.insert(1, count));
    }
    table(1, &lines)
}

/// Returns the row of a contender that is missing on this machine.
fn absent_row(name: &str, columns: usize) -> Vec<String> {
    [name.to_owned()].into_iter().chain(vec![NOT_MEASURED.to_owned(); columns]).collect()
}

/// Formats the memory of every contender, if it was read.
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

/// Formats how many requests left the load together, if the load counted it.
fn arrivals(report: &Report) -> String {
    if report.arrivals.is_empty() {
        return String::new();
    }
    let titles =
        ["% of requests that arrived together".to_owned()].into_iter().chain(range_names());
    let line = |found: &Arrivals| {
        let shares = found.shares.map(|share| grouped(100.0 * share, 1));
        [found.cell.to_string()].into_iter().chain(shares).collect()
    };
    let lines: Vec<Vec<String>> =
        [titles.collect()].into_iter().chain(report.arrivals.iter().map(line)).collect();
    format!("\n{}", table(1, &lines))
}

/// Formats reasons not to rely on the results.
pub(crate) fn warnings(report: &Report) -> String {
    let blank = if report.warnings.is_empty() { "" } else { "\n" };
    let warnings = report.warnings.iter().map(|warning| wrapped("! ", warning));
    [blank.to_owned()].into_iter().chain(warnings).collect()
}
