//! Self-contained HTML pages with charts, for results of measurements.
//!
//! A [`Page`] is data: figures to grasp at once ([`Tile`]), reservations, and sections of texts, tables, commands and
//! figures ([`Block`]). [`Page::html`] makes one file of it that needs no network and no script, follows the reader's choice of light and
//! dark, and can be read on a phone and in print; [`Page::markdown`] has the same without the pictures. Charts are SVG: [`LineChart`], [`HeatMap`] and [`IntervalChart`]. Their colours are
//! classes, to which the page's style gives values.
//!
//! ```
//! use annulus_page::{Axis, Block, Line, LineChart, Page, Section, text};
//!
//! let rates = [(0.0, 80_000.0), (1.0, 84_000.0), (2.0, 83_500.0)];
//! let chart = LineChart {
//!     title: "Rate".into(),
//!     note: String::new(),
//!     x: Axis::linear("time in s", 0.0..3.0, text::number),
//!     y: Axis::linear("requests a second", 0.0..100_000.0, text::number),
//!     lines: vec![Line::steps("answered", 0, rates.map(|(at, rate)| (at..at + 1.0, rate)))],
//! };
//! let page = Page {
//!     title: "A run".into(),
//!     sections: vec![Section::new("Over time", vec![Block::Figure(chart.figure())])],
//!     ..Page::default()
//! };
//! let html = page.html();
//! assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<polyline"));
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod axis;
mod canvas;
mod figure;
mod heat_map;
mod ink;
mod interval_chart;
mod line_chart;
mod markdown;
mod page;
pub mod text;

pub use axis::Axis;
pub use figure::{Figure, Key};
pub use heat_map::{Cell, HeatMap};
pub use ink::{HEATS, SERIES};
pub use interval_chart::{IntervalChart, IntervalRow};
pub use line_chart::{Line, LineChart};
pub use page::{
    Block, Entry, Link, Matrix, MatrixCell, MatrixRow, Notice, Page, Section, Table, Tile,
};
