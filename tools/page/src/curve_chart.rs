//! A chart of curves over a common axis, with a limit and the places where curves reach it.

use crate::axis::Axis;
use crate::canvas::{self, Mark};
use crate::figure::Figure;
use crate::ink::{Ink, SERIES};

/// The height of the plane of the curves with its axes.
const PLANE_HEIGHT: u32 = 620;

/// The number of colours; each has a solid and a dashed line.
const COLOURS: usize = SERIES / 2;

/// A chart of curves. Its key is above them.
#[derive(Clone, Debug)]
pub struct CurveChart {
    /// The caption above the picture.
    pub title: String,
    /// A sentence below the chart; may be empty.
    pub note: String,
    /// The horizontal axis, which all curves share.
    pub x: Axis,
    /// The vertical axis, which all curves share.
    pub y: Axis,
    /// A value of the vertical axis that curves should stay below, and its name.
    pub limit: Option<(f64, String)>,
    /// The curves, in the order of the key.
    pub curves: Vec<ChartCurve>,
}

/// A curve of a [`CurveChart`].
#[derive(Clone, Debug)]
pub struct ChartCurve {
    /// The name in the key.
    pub name: String,
    /// The points, from the left.
    pub points: Vec<(f64, f64)>,
    /// Index of the colour. The colours repeat after the sixth.
    pub colour: usize,
    /// Whether the line is dashed and the points are hollow.
    pub is_dashed: bool,
    /// The horizontal position at which the curve reaches the limit, marked by a vertical line.
    pub breaks_at: Option<f64>,
}

impl ChartCurve {
    fn ink(&self) -> Ink {
        let dashed = if self.is_dashed { COLOURS } else { 0 };
        Ink::Series(self.colour % COLOURS + dashed)
    }
}

impl CurveChart {
    /// Draws the chart as SVG, with its title and note.
    pub fn figure(&self) -> Figure {
        let (left, right) = self.x.ends();
        let limit = self.limit.iter().map(|(limit, name)| {
            (
                Mark::Path(Ink::Axis, 3, vec![(left, *limit), (right, *limit)]),
                (Ink::Axis, name.clone()),
            )
        });
        let (mut marks, mut key): (Vec<Mark>, Vec<(Ink, String)>) = limit.unzip();
        for curve in &self.curves {
            let ink = curve.ink();
            marks.push(Mark::Path(ink, 4, curve.points.clone()));
            marks.extend(curve.points.iter().map(|&point| Mark::Dot(ink, point)));
            if let Some((x, (limit, _))) = curve.breaks_at.zip(self.limit.as_ref()) {
                let (bottom, _) = self.y.ends();
                marks.push(Mark::Path(ink, 3, vec![(x, bottom), (x, *limit)]));
            }
            key.push((ink, curve.name.clone()));
        }
        let size = (canvas::WIDTH, PLANE_HEIGHT + canvas::key_height(key.len()));
        Figure {
            title: self.title.clone(),
            note: self.note.clone(),
            has_data: self.curves.iter().any(|curve| !curve.points.is_empty()),
            svg: canvas::draw(size, (&self.x, &self.y), &marks, &key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn curves_have_a_key_and_mark_where_they_reach_the_limit() {
        let curve = |name: &str, is_dashed, breaks_at| ChartCurve {
            name: name.into(),
            points: vec![(1e4, 2e5), (2e4, 3e5), (3e4, 9e6)],
            colour: 1,
            is_dashed,
            breaks_at,
        };
        let mut chart = CurveChart {
            title: String::new(),
            note: String::new(),
            x: Axis::linear("requests/s", 0.0..3e4, text::short),
            y: Axis::logarithmic("latency", 2e5..9e6, text::nanoseconds),
            limit: Some((5e6, "p99 below 5 ms".into())),
            curves: vec![curve("A p99", false, Some(2.8e4)), curve("A p50", true, None)],
        };
        let svg = chart.figure().svg;
        // Each curve has three dots. Its strokes are the line, the sample in the key and, for the
        // first curve, the mark at the limit.
        let count = |class: &str| svg.matches(&format!("\"{class}\"")).count();
        assert_eq!((count("fill-s1"), count("fill-s7")), (3, 3), "{svg}");
        assert_eq!((count("stroke-s1"), count("stroke-s7")), (3, 2), "{svg}");
        for part in ["requests/s", "latency", "A p99", "A p50", "p99 below 5 ms", "1 ms", "20k"] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(chart.figure().has_data);
        chart.curves.clear();
        assert!(!chart.figure().has_data);
    }
}
