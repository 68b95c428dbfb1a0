//! The picture of the map.

use annulus_load::stats::Verdict;
use annulus_page::{MarkChart, MarkRow, RowMark, Shape, Tone};

use super::rows::MarkKind;
use super::{Map, MapMark, MapRow};

/// Returns the picture of a map.
pub(super) fn chart(map: &Map) -> MarkChart {
    MarkChart {
        title: "CPU time per request, ÷ tokio".into(),
        notes: map.hosts.clone(),
        directions: ["less is better".into(), "more".into()],
        rows: map.rows.iter().map(row).collect(),
    }
}

fn row(row: &MapRow) -> MarkRow {
    MarkRow {
        name: row.workload.clone(),
        detail: row.detail.clone(),
        value: row.best().shown_cost(),
        marks: row.marks.iter().map(mark).collect(),
    }
}

fn mark(mark: &MapMark) -> RowMark {
    let number = MarkKind::ALL.iter().position(|kind| *kind == mark.kind).unwrap_or(0);
    let interval = mark.cost.interval.map(|interval| interval.low..interval.high);
    RowMark {
        shape: Shape { number, name: mark.kind.name().into() },
        value: mark.cost.median,
        interval,
        tone: match mark.verdict {
            Verdict::Better => Tone::Better,
            Verdict::Same => Tone::Same,
            Verdict::Worse => Tone::Worse,
            Verdict::Undecided => Tone::Undecided,
            Verdict::Void => Tone::Void,
        },
    }
}
