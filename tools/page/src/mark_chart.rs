//! A picture of ratios in a file of its own: one row per subject, with several marks each.

use std::fmt::Write as _;
use std::ops::Range;

/// The values that are labelled if they are within the range of the axis.
const TICKS: [f64; 13] = [0.01, 0.02, 0.05, 0.1, 0.2, THIRD, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0, 10.0];
const THIRD: f64 = 1.0 / 3.0;

/// The range that the axis covers at least, and the factor by which it extends beyond the marks.
const MIN_RANGE: [f64; 2] = [0.5, 1.4];
const AXIS_SLACK: f64 = 1.04;

/// The width of the drawing. All lengths are in units of the drawing, which is narrow enough to be
/// read on a phone.
const WIDTH: f64 = 480.0;
const MARGIN: f64 = 14.0;
/// The horizontal ends of the axis. The legend is to the right of it.
const AXIS_ENDS: [f64; 2] = [24.0, 366.0];
const LEGEND_X: f64 = 386.0;
const LINE_HEIGHT: f64 = 17.0;
/// The distances from the top of a row to its text, to its first mark and to the first lane of
/// other marks. Marks with similar values are in different lanes, so that they do not hide each
/// other.
const ROW_TEXT_Y: f64 = 13.0;
const FIRST_MARK_Y: f64 = 26.0;
const LANES_Y: f64 = 38.0;
const LANE_HEIGHT: f64 = 9.0;
/// The height of a row below its last marks.
const ROW_GAP: f64 = 11.0;
const MAX_LANES: usize = 5;
/// The smallest distance between two marks in a lane.
const MIN_MARK_DISTANCE: f64 = 10.0;

/// Estimated width of a character in the line of tones.
const CHARACTER_WIDTH: f64 = 6.3;

const STYLE: &str = "\
.back{fill:#fff}.text{fill:#1d1f23}.muted{fill:#5c626b}.grid{stroke:#e3e5e9}.one{stroke:#5c626b}.third{stroke:#8b929c;stroke-dasharray:3 3}\
.better{fill:#1f6fb4;stroke:#1f6fb4}.same{fill:#6b7280;stroke:#6b7280}.worse{fill:#c2410c;stroke:#c2410c}\
.undecided{fill:#fff;stroke:#7b828c}.void{fill:#fff;stroke:#b8337a}.plain{fill:#5c626b;stroke:#5c626b}\
.halo{stroke:#fff;stroke-width:3;paint-order:stroke}.mark{stroke-width:1.6}.line{stroke-width:3;fill:none}\
@media screen and (prefers-color-scheme:dark){.back{fill:#14161a}.halo{stroke:#14161a}.text{fill:#e7e9ec}.muted{fill:#a1a8b3}.grid{stroke:#2b2f37}\
.one{stroke:#a1a8b3}.third{stroke:#7d8590}.better{fill:#6cb0f0;stroke:#6cb0f0}.same{fill:#a1a8b3;stroke:#a1a8b3}\
.worse{fill:#ff9d5c;stroke:#ff9d5c}.undecided{fill:#14161a;stroke:#8d95a0}.void{fill:#14161a;stroke:#f283bb}.plain{fill:#a1a8b3;stroke:#a1a8b3}}\
@media print{*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

/// A chart of ratios on a logarithmic axis. Unlike the charts of a [`Page`](crate::Page), it has
/// its own background and colours, which follow the reader's choice of light or dark.
#[derive(Clone, Debug)]
pub struct MarkChart {
    /// The title, at the top of the picture.
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    /// The words to the left of 1 and to the right of it.
    pub directions: [String; 2],
    /// The rows, from the top.
    pub rows: Vec<MarkRow>,
}

/// A row of a [`MarkChart`].
#[derive(Clone, Debug)]
pub struct MarkRow {
    /// The name of the row.
    pub name: String,
    /// A few words after the name.
    pub detail: String,
    /// The value of the first mark as text.
    pub value: String,
    /// The marks. The first one has a lane of its own, and shows its interval.
    pub marks: Vec<RowMark>,
}

/// A mark in a [`MarkRow`].
#[derive(Clone, Debug)]
pub struct RowMark {
    /// The shape of the mark.
    pub shape: Shape,
    /// The ratio.
    pub value: f64,
    /// The interval of the ratio, if there is one.
    pub interval: Option<Range<f64>>,
    /// The verdict on the ratio, which decides the colour.
    pub tone: Tone,
}

/// The shape of a mark. The legend names each shape that occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of the shape, from 0 to 6.
    pub number: usize,
    /// The name of the shape in the legend.
    pub name: String,
}

/// The colour of a mark. The first three are filled, the others are hollow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The ratio is lower than 1.
    Better,
    /// The ratio is 1 within the margin.
    Same,
    /// The ratio is higher than 1.
    Worse,
    /// The interval is too wide to tell, or is missing.
    Undecided,
    /// Nothing can be compared.
    Void,
}

impl Tone {
    const ALL: [Tone; 5] = [Tone::Better, Tone::Same, Tone::Worse, Tone::Undecided, Tone::Void];

    fn class(self) -> &'static str {
        match self {
            Tone::Better => "better",
            Tone::Same => "same",
            Tone::Worse => "worse",
            Tone::Undecided => "undecided",
            Tone::Void => "void",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Tone::Better => "less",
            Tone::Same => "same (± 3 %)",
            Tone::Worse => "more",
            Tone::Undecided => "undecided",
            Tone::Void => "void",
        }
    }
}

/// A logarithmic axis.
struct RatioAxis([f64; 2]);

impl RatioAxis {
    fn of(rows: &[MarkRow]) -> RatioAxis {
        let marks = rows.iter().flat_map(|row| &row.marks);
        let ends = marks.flat_map(|mark| {
            let interval = mark.interval.clone().unwrap_or(mark.value..mark.value);
            [mark.value, interval.start, interval.end]
        });
        let ends = ends.filter(|end| end.is_finite() && *end > 0.0);
        let [low, high] = ends.fold(MIN_RANGE, |[low, high], end| [low.min(end), high.max(end)]);
        RatioAxis([low / AXIS_SLACK, high * AXIS_SLACK])
    }

    fn x(&self, ratio: f64) -> f64 {
        let RatioAxis([low, high]) = *self;
        let share = (ratio.clamp(low, high) / low).ln() / (high / low).ln();
        AXIS_ENDS[0] + share * (AXIS_ENDS[1] - AXIS_ENDS[0])
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let RatioAxis([low, high]) = *self;
        TICKS.into_iter().filter(move |tick| (low..=high).contains(tick))
    }
}

impl MarkChart {
    /// Draws the picture as an SVG file.
    pub fn svg(&self) -> String {
        let axis = RatioAxis::of(&self.rows);
        let tones_y = 46.0 + LINE_HEIGHT * self.notes.len() as f64;
        let directions_y = tones_y + 28.0;
        let top = directions_y + 24.0;
        let shapes = self.shapes();
        let rows: Vec<PlacedRow<'_>> =
            self.rows.iter().map(|row| PlacedRow::new(&axis, row)).collect();
        let rows_height: f64 = rows.iter().map(PlacedRow::height).sum();
        let legend_height = LINE_HEIGHT * (shapes.len() + 1) as f64;
        let bottom = top + rows_height.max(legend_height);
        let mut svg = Drawing::new(bottom + 26.0, &self.title);
        svg.text([MARGIN, 26.0], "text\" font-weight=\"600", 15, &self.title);
        for (line, note) in self.notes.iter().enumerate() {
            svg.text([MARGIN, 46.0 + LINE_HEIGHT * line as f64], "muted", 12, note);
        }
        svg.tones(tones_y);
        let one = axis.x(1.0);
        let [left, right] = &self.directions;
        svg.text([one - 8.0, directions_y], "text\" text-anchor=\"end", 12, &format!("← {left}"));
        svg.text([one + 8.0, directions_y], "text", 12, &format!("{right} →"));
        for tick in axis.ticks() {
            let (class, label) = match tick {
                1.0 => ("one", "1".to_owned()),
                THIRD => ("third", "⅓".to_owned()),
                _ => ("grid", tick.to_string()),
            };
            let at = axis.x(tick);
            svg.path(class, &format!("M{at:.1} {top:.1}V{bottom:.1}"));
            for y in [top - 4.0, bottom + 16.0] {
                svg.text([at, y], "muted\" text-anchor=\"middle", 11, &label);
            }
        }
        for (line, shape) in shapes.iter().enumerate() {
            let y = top + 6.0 + LINE_HEIGHT * line as f64;
            svg.mark(shape.number, "plain", [LEGEND_X, y]);
            svg.text([LEGEND_X + 10.0, y + 4.0], "muted", 12, &shape.name);
        }
        let mut y = top;
        for row in &rows {
            svg.row(&axis, y, row);
            y += row.height();
        }
        svg.0 + "</svg>\n"
    }

    /// Returns each shape that occurs once, sorted by number.
    fn shapes(&self) -> Vec<Shape> {
        let marks = self.rows.iter().flat_map(|row| &row.marks);
        let mut shapes: Vec<Shape> = marks.map(|mark| mark.shape.clone()).collect();
        shapes.sort_by_key(|shape| shape.number);
        shapes.dedup();
        shapes
    }
}

/// A row whose marks have places.
struct PlacedRow<'a> {
    row: &'a MarkRow,
    /// The marks after the first one, each with its lane and its horizontal position.
    others: Vec<(usize, f64, &'a RowMark)>,
}

impl PlacedRow<'_> {
    fn new<'a>(axis: &RatioAxis, row: &'a MarkRow) -> PlacedRow<'a> {
        let mut others: Vec<&RowMark> = row.marks.iter().skip(1).collect();
        others.sort_by(|one, other| one.value.total_cmp(&other.value));
        let mut last = [f64::NEG_INFINITY; MAX_LANES];
        let place = |mark: &'a RowMark| {
            let x = axis.x(mark.value);
            let free = last.iter().position(|last| x - last >= MIN_MARK_DISTANCE);
            let lane = free.unwrap_or(MAX_LANES - 1);
            last[lane] = x;
            (lane, x, mark)
        };
        PlacedRow { row, others: others.into_iter().map(place).collect() }
    }

    fn height(&self) -> f64 {
        let lowest = self.others.iter().map(|(lane, ..)| LANES_Y + LANE_HEIGHT * *lane as f64);
        lowest.fold(FIRST_MARK_Y, f64::max) + ROW_GAP
    }
}

/// An SVG file without its end.
struct Drawing(String);

impl Drawing {
    fn new(height: f64, title: &str) -> Drawing {
        let title = escaped(title);
        Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"system-ui,sans-serif\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n"
        ))
    }

    /// Draws the row whose top is at this height.
    fn row(&mut self, axis: &RatioAxis, top: f64, PlacedRow { row, others }: &PlacedRow<'_>) {
        let MarkRow { name, detail, value, marks } = row;
        self.0 += "<g>\n";
        let y = top + ROW_TEXT_Y;
        let [name, detail] = [name, detail].map(|text| escaped(text));
        _ = writeln!(
            self.0,
            "<text class=\"muted halo\" x=\"{MARGIN}\" y=\"{y:.1}\" font-size=\"12\"><tspan class=\"text\" font-weight=\"600\" \
             font-size=\"13\">{name}</tspan>  {detail}</text>"
        );
        self.text([AXIS_ENDS[1] + 6.0, y], "text halo\" text-anchor=\"end", 12, value);
        for (lane, x, mark) in others {
            let y = top + LANES_Y + LANE_HEIGHT * *lane as f64;
            self.mark(mark.shape.number, mark.tone.class(), [*x, y]);
        }
        if let Some(first) = marks.first() {
            let (class, y) = (first.tone.class(), top + FIRST_MARK_Y);
            if let Some(interval) = &first.interval {
                let [low, high] = [interval.start, interval.end].map(|end| axis.x(end));
                self.path(&format!("{class} line"), &format!("M{low:.1} {y:.1}H{high:.1}"));
            }
            self.mark(first.shape.number, class, [axis.x(first.value), y]);
        }
        self.0 += "</g>\n";
    }

    /// Draws the meaning of each tone in a line.
    fn tones(&mut self, y: f64) {
        let mut x = MARGIN + 6.0;
        for tone in Tone::ALL {
            self.mark(0, tone.class(), [x, y]);
            self.text([x + 10.0, y + 4.0], "muted", 12, tone.meaning());
            x += 30.0 + CHARACTER_WIDTH * tone.meaning().chars().count() as f64;
        }
    }

    fn mark(&mut self, shape: usize, class: &str, [x, y]: [f64; 2]) {
        let class = format!("{class} mark");
        let path = |path: String| format!("<path class=\"{class}\" d=\"{path}\"/>\n");
        self.0 += &match shape {
            0 => format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>\n"),
            1 => path(format!("M{x:.1} {:.1}l4.6 4.6l-4.6 4.6l-4.6 -4.6z", y - 4.6)),
            2 => path(format!("M{x:.1} {:.1}l4.4 7.4h-8.8z", y - 4.4)),
            3 => path(format!("M{x:.1} {:.1}l4.4 -7.4h-8.8z", y + 4.4)),
            4 => path(format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5)),
            5 => path(format!("M{:.1} {:.1}h4v3h3v4h-3v3h-4v-3h-3v-4h3z", x - 2.0, y - 5.0)),
            _ => format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>\n"),
        };
    }

    fn path(&mut self, class: &str, path: &str) {
        _ = writeln!(self.0, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    fn text(&mut self, [x, y]: [f64; 2], class: &str, size: u32, text: &str) {
        let text = escaped(text);
        _ = writeln!(
            self.0,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\">{text}</text>"
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: usize, value: f64, tone: Tone) -> RowMark {
        let shape = Shape { number, name: format!("shape <{number}>") };
        RowMark { shape, value, interval: Some(value * 0.9..value * 1.1), tone }
    }

    fn chart(marks: Vec<RowMark>) -> MarkChart {
        let row = MarkRow {
            name: "echo".into(),
            detail: "50 & more".into(),
            value: "0.50 [0.45, 0.55]".into(),
            marks,
        };
        MarkChart {
            title: "CPU time".into(),
            notes: vec!["a host".into(), "another host".into()],
            directions: ["less".into(), "more".into()],
            rows: vec![row.clone(), row],
        }
    }

    /// Returns the horizontal positions of the marks of a shape and a tone that are circles.
    fn circles(svg: &str, class: &str) -> Vec<f64> {
        let start = format!("<circle class=\"{class} mark\" cx=\"");
        let places = svg.split(&start).skip(1);
        places.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn each_mark_is_drawn_and_each_shape_is_named_once() {
        let marks = [Tone::Better, Tone::Same, Tone::Worse, Tone::Undecided, Tone::Void];
        let marks = marks.into_iter().enumerate().map(|(number, tone)| mark(number, 1.0, tone));
        let svg = chart(marks.collect()).svg();
        for number in 0..5 {
            assert_eq!(svg.matches(&format!("shape &lt;{number}&gt;")).count(), 1, "{svg}");
        }
        // The line of tones, and two rows with one mark of each tone.
        for class in ["better", "same", "worse", "undecided", "void"] {
            assert_eq!(svg.matches(&format!("class=\"{class} mark\"")).count(), 3, "{class}");
        }
        for part in ["echo", "50 &amp; more", "another host", "← less", "more →"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(!svg.contains("⅓"), "a third is not within the range: {svg}");
        assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn axis_covers_all_marks_and_intervals_and_is_logarithmic() {
        let svg = chart(vec![mark(0, 0.1, Tone::Better), mark(6, 2.0, Tone::Worse)]).svg();
        let (low, high) = (circles(&svg, "better")[1], circles(&svg, "worse")[1]);
        assert!(low > AXIS_ENDS[0] && high < AXIS_ENDS[1], "{low} {high}");
        assert!(svg.contains("⅓"), "{svg}");
        let axis = RatioAxis([0.1, 10.0]);
        assert_eq!(axis.x(1.0), f64::midpoint(AXIS_ENDS[0], AXIS_ENDS[1]));
    }

    #[test]
    fn marks_with_the_same_value_have_lanes_of_their_own() {
        let near = [0.5, 0.50001].map(|value| mark(6, value, Tone::Same));
        let marks = [vec![mark(0, 0.5, Tone::Better)], near.to_vec()].concat();
        let svg = chart(marks).svg();
        let heights: std::collections::BTreeSet<&str> =
            svg.split("cy=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        // Two shapes in the legend, the line of tones, and three lanes in each of two rows.
        assert_eq!(heights.len(), 2 + 1 + 2 * 3, "{heights:?}");
    }
}
