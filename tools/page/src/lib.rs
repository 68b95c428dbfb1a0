//! Self-contained HTML pages with charts, for results of measurements.
//!
//! A [`Page`] is data: warnings, and sections of text, tables, commands and figures ([`Block`]).
//! [`Page::html`] renders it as one file that needs no network and no script, follows the reader's
//! choice of light or dark, and can be read on a phone and in print. [`Page::markdown`] renders the
//! same without the pictures. Charts ([`IntervalChart`], [`CurveChart`]) are SVG. Their colours are
//! classes that the page's style sheet defines. A [`MarkChart`] is an SVG file of its own, for
//! documents.
//!
//! ```
//! use annulus_page::{Axis, Block, IntervalChart, IntervalRow, Page, Section, text};
//!
//! let row = IntervalRow { name: "50 connections".into(), value: Some(0.9), interval: Some(0.8..0.95), series: 2 };
//! let chart = IntervalChart {
//!     title: "CPU time".into(),
//!     note: String::new(),
//!     x: Axis::linear("ratio", 0.5..1.5, text::number),
//!     marks: vec![1.0],
//!     rows: vec![row],
//! };
//! let page = Page {
//!     title: "A run".into(),
//!     sections: vec![Section::new("Ratios", vec![Block::Figure(chart.figure())])],
//!     ..Page::default()
//! };
//! let html = page.html();
//! assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<svg"));
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod axis;
mod canvas;
mod curve_chart;
mod figure;
mod ink;
mod interval_chart;
mod mark_chart;
mod markdown;
mod page;
pub mod text;

pub use axis::Axis;
pub use curve_chart::{ChartCurve, CurveChart};
pub use figure::Figure;
pub use ink::{HEATS, SERIES};
pub use interval_chart::{IntervalChart, IntervalRow};
pub use mark_chart::{MarkChart, MarkRow, RowMark, Shape, Tone};
pub use page::{Block, Entry, Link, Matrix, MatrixCell, MatrixRow, Page, Section, Table};
