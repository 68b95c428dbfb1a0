//! Pages of reports in memory.

use super::*;
use crate::bench::tests::{bench, sample};
use crate::bench::{Bench, Cell, Record, Slice};
use crate::environment::Environment;
use crate::suite::small_report;

/// Returns a run of two contenders and the control, at 1, 50 and 200 connections with 1 and 128
/// bytes. The second contender uses twice the CPU time of the first.
fn two() -> (Bench, Record) {
    let mut bench = bench(&["a", "b <c>"]);
    let cell = |clients: u64, bytes: u64| {
        Cell::new([("connections", clients.into()), ("bytes", bytes.into())])
    };
    bench.cells = [1, 128].iter().flat_map(|&b| [1, 50, 200].map(|c| cell(c, b))).collect();
    bench.contenders.missing = vec!["no gcc: apt-get install gcc".into()];
    let mut record = Record::new();
    for (round, cell) in (0..15).flat_map(|round| (0..6).map(move |cell| (round, cell))) {
        for (contender, cpu) in [2.0, 4.0, 2.0].into_iter().enumerate() {
            let noise = 1.0 + ((round * 5 + contender) % 11) as f64 / 5e3;
            record.keep(Slice { round, cell, contender }, Ok(sample(cpu * noise)));
        }
    }
    (bench, record)
}

fn report() -> Report {
    let (bench, record) = two();
    Report::new(&bench, &record, &Environment::read())
}

fn document(report: &Report) -> Document<'_> {
    Document { name: "a run", report, suite: None, is_finished: true, forms: &Form::ALL }
}

#[test]
fn a_page_has_all_parts_and_no_empty_chart() {
    let report = report();
    let html = document(&report).html();
    for part in [
        "<title>a run</title>",
        "a takes 50 % less CPU than b &lt;c&gt; in all 6 cells.",
        "CPU: a ÷ its best rival in each cell",
        "1 connection × 1 byte: b &lt;c&gt;, better",
        "Left of 1, a is better; right of 1, it is worse.",
        ", Linux ",
        "<details>\n<summary><h2>Distance from the best</h2></summary>",
        "heat-h0 strong\">1.00</td><td class=\"heat-h7\">2.00<",
        "no gcc: apt-get install gcc",
        "a%20run.csv",
        "<summary><h2>Host</h2></summary>",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    // One chart, with a row per cell.
    assert_eq!(
        (html.matches("<svg").count(), html.matches("class=\"fill-s0\"").count()),
        (1, 6),
        "{html}"
    );
    assert!(!html.contains("class=\"empty\"") && !html.contains("<script"));
}

#[test]
fn markdown_csv_and_json_have_the_same_figures() {
    let report = report();
    let document = document(&report);
    let markdown = document.markdown();
    assert!(markdown.contains("| 50 connections × 128 bytes | 1.00 | 2.00 |"), "{markdown}");
    assert!(!markdown.contains("mean"), "{markdown}");
    let csv = document.csv();
    let mut lines = csv.lines();
    let head = "contender,connections,bytes,metric,value,low,high,best,ratio,ratio_low,ratio_high,slices,failed,error,finished";
    assert_eq!(lines.next(), Some(head));
    // Three contenders in six cells by three metrics.
    assert_eq!(lines.clone().count(), 3 * 6 * 3);
    let line =
        lines.find(|line| line.starts_with("b <c>,50,128,cpu_us,")).expect("the row is missing");
    let fields: Vec<&str> = line.split(',').collect();
    let numbers: Vec<f64> = fields[4..8]
        .iter()
        .map(|field| field.parse().expect("the field is not a number"))
        .collect();
    assert!(numbers[1] <= numbers[0] && numbers[0] <= numbers[2], "{line}");
    assert_eq!(&fields[11..], ["15", "0", "", "true"]);
    let json: serde_json::Value =
        serde_json::from_str(&document.json()).expect("the document is not JSON");
    assert_eq!(json["settings"]["bench"], "test");
}

#[test]
fn a_suite_has_its_tables_with_the_published_figures_above() {
    let suite = small_report();
    let document = Document {
        name: "small",
        report: &suite.comparison,
        suite: Some(&suite),
        is_finished: true,
        forms: &Form::ALL,
    };
    let html = document.html();
    for part in [
        "<title>t (d)</title>",
        "a table, requests&#x2f;s",
        "<tr class=\"muted\"><th scope=\"row\">128</th><th scope=\"row\">published</th><td>5</td><td>–</td></tr>",
        "<th scope=\"row\">uring</th>",
        "The published figures",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&document.json()).expect("the document is not JSON");
    assert_eq!(json["suite"], "small");
}

#[test]
fn failures_a_deviating_control_and_an_early_end_are_reported() {
    let (bench, mut record) = two();
    for round in 0..15 {
        record.keep(Slice { round, cell: 0, contender: 1 }, Err("reset, \"by\" peer".into()));
        record.keep(Slice { round, cell: 4, contender: 1 }, Ok(sample(2.5)));
        record.keep(Slice { round, cell: 4, contender: 2 }, Ok(sample(3.0)));
    }
    let report = Report::new(&bench, &record, &Environment::read());
    let document = Document { is_finished: false, ..document(&report) };
    let text = document.markdown();
    for part in [
        "Unfinished: 270 of 270 slices.",
        "2 cells are void (",
        "15 slices failed.",
        "| 1 connection × 1 byte | 1.00 | failed |",
        "| 50 connections × 128 bytes | 1.00 | 1.25 |",
        "b \\<c\\> failed in 15 slices at 1 connection × 1 byte: reset",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(document.csv().contains(",0,15,\"reset, \"\"by\"\" peer\",false\n"));
}

#[test]
fn a_run_that_has_measured_nothing_is_a_page_in_every_form() {
    let report = Report::new(&two().0, &Record::new(), &Environment::read());
    let document = Document { is_finished: false, ..document(&report) };
    assert!(document.html().contains("Unfinished: 0 of 270 slices."));
    assert!(Form::ALL.iter().all(|form| !document.text(*form).is_empty()));
}

#[test]
fn an_index_lists_runs_with_their_verdicts_and_those_that_cannot_be_read() {
    let report = report();
    let runs =
        [IndexEntry::new(&document(&report)), IndexEntry::unreadable("b", "line 3: not JSON")];
    let markdown = index("lab-results", &runs, Form::Markdown);
    for part in [
        "- [a run](a%20run.md) (finished, began 20",
        "|  | better | same | worse | undecided | void |",
        "| a run | 6 | 0 | 0 | 0 | 0 |",
    ] {
        assert!(markdown.contains(part), "{part} is not in {markdown}");
    }
    let html = index("lab-results", &runs, Form::Html);
    for part in [
        "<a href=\"a%20run.html\">a run</a>",
        "finished, began 20",
        "a takes 50 % less CPU than b &lt;c&gt; in all 6 cells.",
        "<b>b</b> <small>cannot be read</small><p>line 3: not JSON</p>",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}
