//! The picture of all kept runs: one row per run and one mark per cell, on a logarithmic axis of
//! ratios. It has its own background, follows the reader's choice of light or dark, and is narrow
//! enough to be read on a phone.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::{Run, VERDICTS};

/// The values that are labelled if they are within the range of the axis.
const TICKS: [f64; 9] = [0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0];

/// The range that the axis covers at least.
const MIN_RANGE: [f64; 2] = [0.5, 1.4];

/// The width of the drawing. All lengths are in units of the drawing.
const WIDTH: f64 = 480.0;
const MARGIN: f64 = 16.0;
const ROWS_TOP: f64 = 116.0;
const ROW_HEIGHT: f64 = 46.0;

/// The horizontal ends of the axis. Marks of cells without a ratio are to the right of it.
const AXIS: [f64; 2] = [24.0, 430.0];
const NO_RATIO_X: f64 = 458.0;

/// The distance from the top of a row to the middle of its marks.
const MARKS_Y: f64 = 32.0;

/// Vertical offsets of marks, used in turn, so that marks of equal ratios do not hide each other.
const LANE_OFFSETS: [f64; 3] = [0.0, -6.0, 6.0];

/// The meaning of each mark, in the order of the verdicts.
const MEANINGS: [&str; 5] = ["less", "same (± 3 %)", "more", "undecided", "void"];

const STYLE: &str = "\
.back{fill:#fff}.text{fill:#1d1f23}.muted{fill:#5c626b}.grid{stroke:#dfe1e5}.one{stroke:#5c626b}\
.better{fill:#1f6fb4}.same{fill:#6b7280}.worse{fill:#c2410c}.undecided,.void{fill:none;stroke:#8b929c;stroke-width:1.5}.void{stroke:#b8337a}\
@media(prefers-color-scheme:dark){.back{fill:#14161a}.text{fill:#e7e9ec}.muted{fill:#a1a8b3}.grid{stroke:#353a43}\
.one{stroke:#a1a8b3}.better{fill:#6cb0f0}.same{fill:#a1a8b3}.worse{fill:#ff9d5c}.undecided{stroke:#7d8590}.void{stroke:#f283bb}}";

/// The axis of ratios.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// Returns an axis with all ratios of these runs.
    fn of(compared: &[(&Run, Value)]) -> Axis {
        let cells = compared.iter().flat_map(|(_, comparison)| cells(comparison));
        let ratios = cells.filter_map(|(ratio, _)| ratio);
        let [low, high] =
            ratios.fold(MIN_RANGE, |[low, high], ratio| [low.min(ratio), high.max(ratio)]);
        Axis { low: low / 1.03, high: high * 1.03 }
    }

    /// Returns the horizontal position of a ratio.
    fn x(&self, ratio: f64) -> f64 {
        let share = (ratio / self.low).ln() / (self.high / self.low).ln();
        AXIS[0] + share * (AXIS[1] - AXIS[0])
    }
}

/// Draws the picture: a mark for each cell of each run.
pub(super) fn svg(compared: &[(&Run, Value)]) -> String {
    let axis = Axis::of(compared);
    let bottom = ROWS_TOP + ROW_HEIGHT * compared.len() as f64;
    let height = bottom + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui,sans-serif\" role=\"img\">\n<title>CPU time per request: annulus divided by its best rival</title>\n\
         <style>{STYLE}</style>\n<rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n"
    );
    text(
        &mut svg,
        (MARGIN, 26.0),
        "text\" font-weight=\"600",
        "15",
        "CPU time per request, our best driver ÷ the best rival",
    );
    for (line, y) in hosts(compared).into_iter().zip([46.0, 62.0]) {
        text(&mut svg, (MARGIN, y), "muted", "12", &line);
    }
    legend(&mut svg);
    let one = axis.x(1.0);
    text(&mut svg, (one - 8.0, 106.0), "text\" text-anchor=\"end", "12", "← annulus takes less");
    text(&mut svg, (one + 8.0, 106.0), "text", "12", "takes more →");
    for tick in TICKS.into_iter().filter(|tick| (axis.low..=axis.high).contains(tick)) {
        let (at, class) = (axis.x(tick), if tick == 1.0 { "one" } else { "grid" });
        _ = writeln!(svg, "<path class=\"{class}\" d=\"M{at:.1} {ROWS_TOP}V{bottom}\"/>");
        let label = format!("{tick}");
        text(&mut svg, (at, bottom + 18.0), "muted\" text-anchor=\"middle", "12", &label);
    }
    for (number, ((run, about), comparison)) in compared.iter().enumerate() {
        let top = ROWS_TOP + ROW_HEIGHT * number as f64;
        let name = format!("<tspan class=\"text\" font-weight=\"600\">{run}</tspan> {about}");
        text(&mut svg, (MARGIN, top + 14.0), "muted", "12", &name);
        _ = writeln!(svg, "<g id=\"{run}\">");
        marks(&mut svg, &axis, top + MARKS_Y, comparison);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

/// Returns the processors and kernels of the runs, one line for each.
fn hosts(compared: &[(&Run, Value)]) -> Vec<String> {
    let host = |(_, comparison): &(&Run, Value)| {
        let environment = &comparison["environment"];
        let [cpu, kernel] = ["cpu", "kernel"].map(|key| environment[key].as_str().unwrap_or("?"));
        let cores = environment["cores"].as_array().map_or(0, Vec::len);
        format!("{cpu}, {cores} cores, Linux {kernel}")
    };
    compared.iter().map(host).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the ratio and the verdict of each cell.
fn cells(comparison: &Value) -> impl Iterator<Item = (Option<f64>, &str)> {
    let cells = comparison["verdicts"].as_array().into_iter().flatten();
    cells.filter_map(|cell| Some((cell["cost"]["median"].as_f64(), cell["verdict"].as_str()?)))
}

/// Draws the marks of a run's cells.
fn marks(svg: &mut String, axis: &Axis, middle: f64, comparison: &Value) {
    let x = |ratio: Option<f64>| ratio.map_or(NO_RATIO_X, |ratio| axis.x(ratio));
    let mut shown: Vec<(f64, &str)> =
        cells(comparison).map(|(ratio, verdict)| (x(ratio), verdict)).collect();
    shown.sort_by(|one, other| one.0.total_cmp(&other.0));
    for ((x, verdict), lane) in shown.into_iter().zip(LANE_OFFSETS.into_iter().cycle()) {
        mark(svg, verdict, (x, middle + lane));
    }
}

/// Draws a dot, or a cross for a void cell.
fn mark(svg: &mut String, verdict: &str, (x, y): (f64, f64)) {
    let written = match verdict {
        "void" => writeln!(
            svg,
            "<path class=\"void\" d=\"M{:.1} {:.1}l7 7m0 -7l-7 7\"/>",
            x - 3.5,
            y - 3.5
        ),
        _ => writeln!(svg, "<circle class=\"{verdict}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
    };
    written.expect("writing to a string failed");
}

fn legend(svg: &mut String) {
    let places = [22.0, 76.0, 184.0, 242.0, 334.0];
    for ((verdict, words), x) in VERDICTS.into_iter().zip(MEANINGS).zip(places) {
        mark(svg, verdict, (x, 80.0));
        text(svg, (x + 10.0, 84.0), "muted", "12", words);
    }
    text(svg, (384.0, 84.0), "muted", "12", "(no verdict)");
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, size: &str, words: &str) {
    _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\">{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_has_a_mark_and_all_are_on_the_axis() {
        let cell = |verdict: &str, cost: f64| serde_json::json!({"verdict": verdict, "cost": {"median": cost}});
        let failed = serde_json::json!({"verdict": "void", "cost": null});
        let cells = serde_json::json!([
            cell("better", 0.3),
            cell("worse", 1.2),
            cell("undecided", 1.0),
            cell("void", 1.65),
            failed
        ]);
        let run = ("files", "static files");
        let host = serde_json::json!({"cpu": "EPYC", "cores": [0, 1], "kernel": "6.18"});
        let compared = [(&run, serde_json::json!({"verdicts": cells, "environment": host}))];
        let svg = svg(&compared);
        // The legend has one mark of each verdict.
        let counts = VERDICTS.map(|verdict| svg.matches(&format!(" class=\"{verdict}\"")).count());
        assert_eq!(counts, [2, 1, 2, 2, 3]);
        let axis = Axis::of(&compared);
        assert!(axis.x(0.3) > AXIS[0] && axis.x(1.65) < AXIS[1]);
        for part in ["static files", "EPYC, 2 cores, Linux 6.18", "← annulus takes less"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }
}
