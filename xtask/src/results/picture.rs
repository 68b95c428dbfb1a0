//! The picture of all kept runs: one row per run and one mark per cell, on a logarithmic axis of
//! ratios. It has its own background and follows the reader's choice of light or dark.

use std::fmt::Write as _;

use serde_json::Value;

use super::Run;

/// The smallest and the largest ratio on the axis.
const RATIO_RANGE: (f64, f64) = (0.34, 1.3);
const TICKS: [f64; 7] = [0.35, 0.5, 0.6, 0.7, 0.8, 1.0, 1.2];

/// The width of the drawing, the ends of the axis, the space above the rows, and the height of a
/// row, in units of the drawing.
const WIDTH: f64 = 860.0;
const AXIS_RANGE: (f64, f64) = (450.0, 836.0);
const ROWS_TOP: f64 = 64.0;
const ROW_HEIGHT: f64 = 30.0;

/// Vertical offsets of marks, used in turn, so that marks of equal ratios do not hide each other.
const LANE_OFFSETS: [f64; 3] = [0.0, -6.0, 6.0];

const TITLE: &str = "CPU time per request ÷ that of the best other program in the cell";

const STYLE: &str = "\
.back{fill:#fff}.text{fill:#1d1f23}.muted{fill:#5c626b}.grid{stroke:#dfe1e5}.one{stroke:#5c626b}\
.better{fill:#1f6fb4}.same{fill:#6b7280}.worse{fill:#c2410c}.undecided{fill:none;stroke:#8b929c;stroke-width:1.5}\
@media(prefers-color-scheme:dark){.back{fill:#14161a}.text{fill:#e7e9ec}.muted{fill:#a1a8b3}.grid{stroke:#353a43}\
.one{stroke:#a1a8b3}.better{fill:#6cb0f0}.same{fill:#a1a8b3}.worse{fill:#ff9d5c}.undecided{stroke:#7d8590}}";

/// Draws the picture. Cells that cannot be compared have no mark.
pub(super) fn svg(compared: &[(&Run, Value)]) -> String {
    let bottom = ROWS_TOP + ROW_HEIGHT * compared.len() as f64;
    let height = bottom + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui,sans-serif\" role=\"img\">\n<title>CPU time per request: annulus divided by its best rival</title>\n\
         <style>{STYLE}</style>\n<rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n"
    );
    text(&mut svg, (20.0, 28.0), "text", "15", TITLE);
    legend(&mut svg);
    for tick in TICKS {
        let (at, class) = (x(tick), if tick == 1.0 { "one" } else { "grid" });
        _ = writeln!(svg, "<path class=\"{class}\" d=\"M{at:.1} {ROWS_TOP}V{bottom}\"/>");
        let label = format!("{tick}");
        text(&mut svg, (at, bottom + 18.0), "muted\" text-anchor=\"middle", "12", &label);
    }
    for (number, ((run, about), comparison)) in compared.iter().enumerate() {
        let middle = ROWS_TOP + ROW_HEIGHT * (number as f64 + 0.5);
        text(&mut svg, (20.0, middle + 4.0), "text\" font-weight=\"600", "13", run);
        text(&mut svg, (112.0, middle + 4.0), "muted", "11", about);
        marks(&mut svg, middle, comparison);
    }
    svg + "</svg>\n"
}

/// Draws the marks of a run's cells.
fn marks(svg: &mut String, middle: f64, comparison: &Value) {
    let cells = comparison["against"].as_array().into_iter().flatten();
    let mut shown: Vec<(f64, &str)> = cells
        .filter_map(|cell| Some((cell["cost"]["median"].as_f64()?, cell["verdict"].as_str()?)))
        .filter(|(_, verdict)| *verdict != "void")
        .collect();
    shown.sort_by(|one, other| one.0.total_cmp(&other.0));
    for ((ratio, verdict), lane) in shown.into_iter().zip(LANE_OFFSETS.into_iter().cycle()) {
        let (x, y) = (x(ratio.clamp(RATIO_RANGE.0, RATIO_RANGE.1)), middle + lane);
        _ = writeln!(svg, "<circle class=\"{verdict}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
    }
}

fn legend(svg: &mut String) {
    let words = [
        ("better", "annulus takes less"),
        ("same", "the same within 3 %"),
        ("worse", "takes more"),
        ("undecided", "undecided"),
    ];
    for ((class, words), x) in words.into_iter().zip([26.0, 176.0, 334.0, 432.0]) {
        _ = writeln!(svg, "<circle class=\"{class}\" cx=\"{x}\" cy=\"46\" r=\"4\"/>");
        text(svg, (x + 10.0, 50.0), "muted", "12", words);
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, size: &str, words: &str) {
    _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\">{words}</text>"
    );
}

/// Returns the horizontal position of a ratio.
fn x(ratio: f64) -> f64 {
    let share = (ratio / RATIO_RANGE.0).ln() / (RATIO_RANGE.1 / RATIO_RANGE.0).ln();
    AXIS_RANGE.0 + share * (AXIS_RANGE.1 - AXIS_RANGE.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comparable_cell_has_a_mark() {
        let cell = |verdict: &str, cost: f64| serde_json::json!({"verdict": verdict, "cost": {"median": cost}});
        let cells =
            [cell("better", 0.5), cell("worse", 1.2), cell("undecided", 1.0), cell("void", 1.0)];
        let run = ("files", "static files");
        let svg = svg(&[(&run, serde_json::json!({"against": cells}))]);
        // One of each is in the legend.
        let counts = ["better", "same", "worse", "undecided", "void"]
            .map(|verdict| svg.matches(&format!("<circle class=\"{verdict}\"")).count());
        assert_eq!(counts, [2, 1, 2, 2, 0]);
        assert!(x(0.5) < x(1.0) && x(RATIO_RANGE.1) <= WIDTH && svg.contains("static files"));
    }
}
