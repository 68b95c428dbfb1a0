//! The map in three sentences.

use annulus_load::stats::Verdict;

use super::MapRow;

/// Rows up to this ratio count as needing a third or less.
const MAX_THIRD: f64 = 1.0 / 3.0;

/// Returns where a third or less is needed, where there is no difference, and where it loses. A row
/// without an interval has no verdict, so it is in none of them.
pub(super) fn sentences(rows: &[MapRow]) -> [String; 3] {
    let is_alone =
        |row: &MapRow| rows.iter().filter(|one| one.workload == row.workload).count() == 1;
    let list = |rows: &[&MapRow]| list(rows, &is_alone);
    let rows: Vec<&MapRow> = rows.iter().filter(|row| row.best().cost.interval.is_some()).collect();
    if rows.is_empty() {
        return ["No row has enough rounds for a verdict.".into(), String::new(), String::new()];
    }
    let of = |verdict: Verdict| -> Vec<&MapRow> {
        let rows = rows.iter().copied();
        let mut rows: Vec<&MapRow> = rows.filter(|row| row.best().verdict == verdict).collect();
        rows.sort_by(|one, other| one.best().cost.median.total_cmp(&other.best().cost.median));
        rows
    };
    let (third, less): (Vec<&MapRow>, Vec<&MapRow>) =
        of(Verdict::Better).into_iter().partition(|row| row.best().cost.median <= MAX_THIRD);
    let gains = match (third.is_empty(), less.is_empty()) {
        (true, true) => "annulus needs clearly less CPU time than tokio in no row.".to_owned(),
        (false, true) => {
            format!("annulus needs a third of tokio's CPU time or less for {}.", list(&third))
        }
        (true, false) => format!(
            "annulus needs less CPU time than tokio for {}, but nowhere a third or less.",
            list(&less)
        ),
        (false, false) => format!(
            "annulus needs a third of tokio's CPU time or less for {}, and less for {}.",
            list(&third),
            list(&less)
        ),
    };
    let [same, open, void, worse] =
        [Verdict::Same, Verdict::Undecided, Verdict::Void, Verdict::Worse].map(of);
    let mut ties = match (same.is_empty(), open.is_empty()) {
        (true, true) => "It makes a clear difference wherever it could be compared".to_owned(),
        (false, true) => format!("It makes no difference for {}", list(&same)),
        (true, false) => format!("It makes no clear difference for {}", list(&open)),
        (false, false) => format!(
            "It makes no difference for {}, and no clear one for {}",
            list(&same),
            list(&open)
        ),
    };
    if !void.is_empty() {
        ties += &format!("; the comparison is void for {}", list(&void));
    }
    let losses = match worse.is_empty() {
        true => "It loses in no row.".to_owned(),
        false => format!("It needs more for {}.", list(&worse)),
    };
    [gains, ties + ".", losses]
}

/// Lists rows with their ratios: `echo (0.97 ×)`. If a workload has several rows, each of them has
/// its detail, and they share the name.
fn list(rows: &[&MapRow], is_alone: &dyn Fn(&MapRow) -> bool) -> String {
    let mut named: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows {
        let cost = row.best().cost.median;
        let ratio = match (is_alone(row), &row.other_rival) {
            (true, Some(rival)) => format!("{cost:.2} × {rival}"),
            (true, None) => format!("{cost:.2} ×"),
            (false, _) => format!("{}: {cost:.2} ×", row.detail),
        };
        match named.iter_mut().find(|(name, _)| *name == row.workload) {
            Some((_, ratios)) => ratios.push(ratio),
            None => named.push((&row.workload, vec![ratio])),
        }
    }
    let named: Vec<String> =
        named.into_iter().map(|(name, ratios)| format!("{name} ({})", ratios.join("; "))).collect();
    match named.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
