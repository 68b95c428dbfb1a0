//! Maps of computed results.

use super::*;
use crate::bench::tests::{StopAfter, bench, sample};
use crate::bench::{Cell, Measure, Outcome, Prepared, Slice};
use crate::proc::Memory;
use crate::scratch::Scratch;
use crate::scratch::tests::directory;

const NAMES: [&str; 5] = ["uring", "epoll", "tokio", "monoio", "c-epoll"];

/// Returns each contender's CPU time in µs per cell, the control last.
const COSTS: [[f64; 6]; 4] = [
    [1.0, 1.2, 4.0, 2.0, 0.9, 1.0],
    [4.0, 3.6, 4.0, 4.4, 3.0, 4.0],
    [4.0, 4.2, 4.0, 4.0, 4.0, 4.0],
    [6.0, 5.0, 4.0, 4.0, 4.0, 6.0],
];

struct Computed;

impl Measure for Computed {
    fn measure(&mut self, Slice { round, cell, contender }: Slice) -> Outcome {
        let noise = 1.0 + ((contender * 7 + round * 5) % 11) as f64 / 2e3;
        Ok(sample(COSTS[cell][contender] * noise))
    }

    fn memory(&self) -> Vec<Option<Memory>> {
        let memory = |mib: u64| Memory { resident_bytes: mib << 20, virtual_bytes: 1 << 30 };
        [6, 5, 20, 10, 2, 6].map(|mib| Some(memory(mib))).into()
    }
}

/// Writes the results of a run of four cells, and returns their directory.
fn measured(idle: bool) -> Scratch {
    let directory = directory();
    let mut bench = bench(&NAMES);
    bench.cells = [1, 2, 3, 4].map(|n: u64| Cell::new([("connections", n.into())])).into();
    bench.idle = idle.then_some(std::time::Duration::ZERO);
    let prepared = Prepared { bench, measure: Box::new(Computed), scratch: None };
    let path = directory.path().join("run.jsonl");
    let mut observer = StopAfter::slices(usize::MAX);
    crate::results::measure(prepared, None, &path, &mut observer).expect("the run failed");
    directory
}

fn row(workload: &str, cell: &str, more: &str) -> RowDefinition {
    let text = format!(
        "workload = \"{workload}\"\ndetail = \"a cell\"\nrun = \"run\"\ncell = \"{cell}\"\nc = \"c-epoll\"\n{more}"
    );
    toml::from_str(&text).expect("the row is invalid")
}

fn map(rows: &[RowDefinition], idle: bool) -> Map {
    Map::read(rows, measured(idle).path()).expect("there is no map")
}

#[test]
fn best_driver_and_other_programs_have_marks_with_verdicts() {
    let map = map(&[row("first", "1", ""), row("second", "2", "")], false);
    let marks = |row: usize| {
        let marks = map.rows[row].marks.iter();
        let shown = |mark: &MapMark| {
            let (kind, name) = (mark.kind, mark.contender.as_str());
            format!("{kind:?} {name} {:.1} {}", mark.cost.median, mark.verdict)
        };
        marks.map(shown).collect::<Vec<_>>()
    };
    assert_eq!(
        marks(0),
        [
            "Best uring 0.2 better",
            "Epoll epoll 0.3 better",
            "Monoio monoio 0.5 better",
            "C c-epoll 0.2 better",
        ]
    );
    assert_eq!(marks(1)[..2], ["Best epoll 0.9 better", "Uring uring 1.0 same"]);
    assert_eq!((map.rows[0].noun.as_str(), map.rows[0].against.as_str()), ("CPU", "tokio"));
    assert!(map.rows[0].best().cost.interval.is_some_and(|of| of.low < of.high));
    assert_eq!(map.hosts.len(), 1);
}

#[test]
fn sentences_say_where_it_gains_ties_and_loses() {
    let rows = [row("a", "1", ""), row("b", "2", ""), row("c", "3", ""), row("d", "4", "")];
    assert_eq!(
        map(&rows, false).sentences,
        [
            "annulus needs a third of tokio's CPU time or less for a (0.25 ×), and less for b (0.90 ×).",
            "It makes no difference for c (1.00 ×).",
            "It needs more for d (1.25 ×).",
        ]
    );
    let rows = [row("c", "3", ""), row("c", "4", "ours = [\"c-epoll\"]\nagainst = \"monoio\"")];
    let [gains, ties, losses] = map(&rows, false).sentences;
    assert_eq!(gains, "annulus needs clearly less CPU time than tokio in no row.");
    assert_eq!(ties, "It makes no difference for c (a cell ÷ monoio: 1.00 ×; a cell: 1.00 ×).");
    assert_eq!(losses, "It loses in no row.");
}

#[test]
fn idle_memory_has_no_interval_and_is_in_no_sentence() {
    let memory = row("memory", "1", "figure = \"idle-memory\"");
    let map = map(std::slice::from_ref(&memory), true);
    let best = map.rows[0].best();
    assert_eq!((best.contender.as_str(), best.cost.median), ("epoll", 0.25));
    assert_eq!((best.cost.interval, best.verdict), (None, Verdict::Undecided));
    assert_eq!(map.rows[0].noun, "idle memory");
    assert!(map.sentences.iter().all(|text| !text.contains("memory")), "{:?}", map.sentences);
    let error = Map::read(&[memory], measured(false).path()).expect_err("a row without a figure");
    assert!(error.to_string().contains("the run has no figure of both sides"), "{error}");
}

#[test]
fn rows_without_results_are_listed_with_the_reason() {
    let other = RowDefinition { run: "other".into(), ..row("x", "1", "") };
    let rows = [row("a", "1", ""), other, row("y", "9", ""), row("z", "1", "against = \"smol\"")];
    let map = map(&rows, false);
    assert_eq!(
        map.missing,
        [
            "x, a cell (other): its run has no results",
            "y, a cell (run): the run has no cell 9",
            "z, a cell (run): the run has no contender smol",
        ]
    );
}

#[test]
fn picture_has_a_mark_for_each_contender_and_names_other_rivals() {
    let rows =
        [row("first", "1", ""), row("second", "2", "against = \"c-epoll\"\nagainst-name = \"C\"")];
    let svg = map(&rows, false).svg();
    for part in ["first", "a cell ÷ C", "our best", "our epoll", "monoio", "C or C++", "Linux "] {
        assert!(svg.contains(part), "{part} is not in {svg}");
    }
}

#[test]
fn drivers_are_compared_in_every_cell_of_the_runs() {
    let drivers = map(&[row("a", "1", "")], false).drivers;
    assert_eq!(drivers.cells, 4);
    assert_eq!(drivers.uring, ["run: 1 connection, 0.83 ×", "run: 3 connections, 0.95 ×"]);
    assert_eq!(drivers.epoll, ["run: 2 connections, 1.11 ×", "run: 4 connections, 1.20 ×"]);
    assert_eq!(
        drivers.sentence,
        "The runs of the map have 4 cells in which both drivers were measured: io_uring takes less CPU time than epoll \
         by more than 3 % in 2 (run: 1 connection, 0.83 ×; run: 3 connections, 0.95 ×), and epoll takes less than io_uring in 2 (run: 2 \
         connections, 1.11 ×; run: 4 connections, 1.20 ×)."
    );
}

/// The value of a row is to the right of its name and detail. Characters are at most 8 and 6.4 units
/// wide on average.
#[test]
fn names_of_all_rows_fit_beside_their_values() {
    for row in RowDefinition::all() {
        let (name, detail) = (row.workload.chars().count(), row.shown_detail().chars().count());
        let width = 8.0 * name as f64 + 6.4 * detail as f64;
        assert!(width <= 250.0, "{}: {}", row.workload, row.shown_detail());
    }
}

#[test]
fn short_selection_has_only_our_contenders_and_the_rival() {
    let row = row("a", "1x2", "expert = \"tokio-gathering\"");
    assert_eq!(row.patterns(true), ["uring", "epoll", "tokio", "/1x2"]);
    let all = ["uring", "epoll", "tokio", "compio", "monoio", "c-epoll", "tokio-gathering", "/1x2"];
    assert_eq!(row.patterns(false), all);
    let error = RowDefinition::named(&["ehco".into()]).expect_err("an unknown workload");
    assert!(error.to_string().starts_with("unknown workload 'ehco': the map has static files;"));
    let echo = RowDefinition::named(&["echo".into()]).expect("a known workload");
    assert!(!echo.is_empty() && echo.iter().all(|row| row.workload == "echo"));
}
