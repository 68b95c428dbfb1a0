//! The common parts of all charts: the drawing area, the axes with their labels, and the finished
//! SVG.

use crate::axis::Axis;
use crate::ink::{Ink, with_classes};
use plotters::coord::Shift;
use plotters::element::{DynElement, IntoDynElement};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The width of a drawing in its own units, which are scaled to the width available on the page.
pub(crate) const WIDTH: u32 = 960;

/// The font size for the drawing library, which is 1.24 times the rendered size. The rendered text
/// is about 1/32 of the width, so labels can be read on a phone.
const FONT_SIZE: f64 = 37.0;

/// The estimated width of a character in a label.
const CHARACTER_WIDTH: u32 = 17;

type Plane<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;
type Element<'a> = DynElement<'static, SVGBackend<'a>, (f64, f64)>;

/// A mark in the plane, placed by its values on both axes.
pub(crate) enum Mark {
    /// A line through points, with its width.
    Path(Ink, u32, Vec<(f64, f64)>),
    /// A filled circle.
    Dot(Ink, (f64, f64)),
    /// A line of text that starts at this point.
    Text(String, (f64, f64)),
}

/// The height of one entry of the key.
const KEY_LINE_HEIGHT: u32 = 46;
const KEY_SAMPLE_LENGTH: i32 = 64;

pub(crate) fn key_height(entries: usize) -> u32 {
    KEY_LINE_HEIGHT * entries as u32
}

/// Draws `marks` in the plane of two axes, as SVG. The key is above the plane: each entry has a line
/// in an ink, and a name.
pub(crate) fn draw(
    size: (u32, u32),
    axes: (&Axis, &Axis),
    marks: &[Mark],
    key: &[(Ink, String)],
) -> String {
    let mut svg = String::new();
    try_draw(&mut svg, size, axes, marks, key)
        .expect("drawing in memory at finite positions failed");
    without_size(with_classes(svg))
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn try_draw<'a>(
    svg: &'a mut String,
    size: (u32, u32),
    (x, y): (&Axis, &Axis),
    marks: &[Mark],
    key: &[(Ink, String)],
) -> Drawn<'a> {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    let longest = y.labels().iter().map(|(_, label)| label.chars().count() as u32).max();
    let mut plane = ChartBuilder::on(&area)
        .margin_top(52 + key_height(key.len()))
        .margin_right(64)
        .x_label_area_size(96)
        // The first label of the horizontal axis also needs some room here.
        .y_label_area_size((longest.unwrap_or(0) * CHARACTER_WIDTH + 24).max(52))
        .build_cartesian_2d(x.clone(), y.clone())?;
    draw_axes(&mut plane)?;
    draw_titles(&area, (size.0, size.1), key_height(key.len()), (x, y))?;
    draw_key(&area, key)?;
    plane.draw_series(marks.iter().map(element))?;
    area.present()
}

fn text_style() -> TextStyle<'static> {
    ("sans-serif", FONT_SIZE).into_font().color(&Ink::Text.color())
}

fn draw_axes<'a>(plane: &mut Plane<'a>) -> Drawn<'a> {
    plane
        .configure_mesh()
        .bold_line_style(Ink::Grid.color().stroke_width(2))
        .light_line_style(TRANSPARENT)
        .axis_style(Ink::Axis.color().stroke_width(2))
        .label_style(text_style())
        .draw()
}

/// Draws the title of the vertical axis above it, so that it reads horizontally, and the title of
/// the horizontal axis at the bottom right.
fn draw_titles<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    (width, height): (u32, u32),
    top: u32,
    (x, y): (&Axis, &Axis),
) -> Drawn<'a> {
    let at = |horizontal, vertical| text_style().pos(Pos::new(horizontal, vertical));
    area.draw_text(y.title(), &at(HPos::Left, VPos::Top), (8, top as i32 + 4))?;
    let corner = (width as i32 - 8, height as i32 - 8);
    area.draw_text(x.title(), &at(HPos::Right, VPos::Bottom), corner)
}

fn draw_key<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, key: &[(Ink, String)]) -> Drawn<'a> {
    for (row, (ink, name)) in key.iter().enumerate() {
        let middle = (KEY_LINE_HEIGHT * row as u32 + KEY_LINE_HEIGHT / 2) as i32;
        let line = vec![(8, middle), (8 + KEY_SAMPLE_LENGTH, middle)];
        area.draw(&PathElement::new(line, ink.color().stroke_width(4)))?;
        let style = text_style().pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(name, &style, (8 + KEY_SAMPLE_LENGTH + 16, middle))?;
    }
    Ok(())
}

fn element<'a>(mark: &Mark) -> Element<'a> {
    match mark {
        Mark::Path(ink, width, points) => {
            PathElement::new(points.clone(), ink.color().stroke_width(*width)).into_dyn()
        }
        Mark::Dot(ink, place) => Circle::new(*place, 8, ink.color().filled()).into_dyn(),
        Mark::Text(text, place) => Text::new(text.clone(), *place, text_style()).into_dyn(),
    }
}

/// Removes the size of the picture, so that it fills the width available, and attributes that the
/// page does not need.
fn without_size(svg: String) -> String {
    let Some((_, rest)) = svg.split_once("viewBox") else { return svg };
    let shorter = [" opacity=\"1\"", " stroke=\"none\"", " xmlns=\"http://www.w3.org/2000/svg\""];
    let rest = shorter.into_iter().fold(rest.to_owned(), |text, part| text.replace(part, ""));
    format!("<svg viewBox{rest}")
}
