//! The report of a run as a page, as Markdown, as CSV and as JSON, and the index of several (ADR
//! 0048).
//!
//! All of these are rendered from a [`Document`], which needs no file: a report in memory is
//! enough.
//!
//! ```
//! use annulus_lab::bench::{Bench, Cell, Contenders, Plan, Record, Report, Rounds, Sample, Slice, cpu};
//! use annulus_lab::{environment::Environment, page::Document, process::Spec};
//!
//! let contenders = ["a", "b"].map(|name| Ok(Ok(Spec::of(name, "/bin/true"))));
//! let bench = Bench {
//!     plan: Plan { name: "example".into(), rounds: Rounds::fixed(1), seed: 1 },
//!     terms: String::new(),
//!     legend: "".into(),
//!     contenders: Contenders::gather(contenders, None)?,
//!     cells: vec![Cell::new([("connections", 50.into())])],
//!     metrics: vec![cpu()],
//!     sweep: None,
//!     idle: None,
//!     cores: None,
//!     parameters: Default::default(),
//! };
//! let mut record = Record::new();
//! let sample = Sample::from([("cpu_ns", 2e6), ("operations", 1000.0)]);
//! record.keep(Slice { round: 0, cell: 0, contender: 0 }, Ok(sample));
//! let report = Report::new(&bench, &record, &Environment::read());
//! let document = Document { name: "example", report: &report, suite: None, is_finished: false, forms: &[] };
//! assert!(document.html().contains("50 connections") && document.markdown().contains("Unfinished: 1 of 3 slices."));
//! assert!(document.csv().starts_with("contender,connections,metric,value,"));
//! # anyhow::Ok(())
//! ```

mod charts;
mod csv;
mod details;
mod files;
mod index;
mod tables;
#[cfg(test)]
mod tests;

use annulus_page::{Block, Link, Page, Section};
use serde_json::Value as Json;

use crate::bench::Report;
use crate::suite::SuiteReport;

pub use files::{LoadedRun, RenderedPage, ResultsDirectory, WrittenPages, files, write};
pub use index::{IndexEntry, index};

/// A run with its results, to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// The name of the results file, without the extension.
    pub name: &'a str,
    /// The results.
    pub report: &'a Report,
    /// The published tables with the measured figures; `None` unless the run is a suite.
    pub suite: Option<&'a SuiteReport>,
    /// Whether every slice was measured.
    pub is_finished: bool,
    /// The forms available under the same name, to which the page links.
    pub forms: &'a [Form],
}

/// The form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An HTML page.
    Html,
    /// The page as Markdown, without the pictures.
    Markdown,
    /// A row for each figure.
    Csv,
    /// Every figure, verdict and warning. The slices are only in the results file.
    Json,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 4] = [Form::Html, Form::Markdown, Form::Csv, Form::Json];

    /// Returns the extension of files of this form, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Form::Html => "html",
            Form::Markdown => "md",
            Form::Csv => "csv",
            Form::Json => "json",
        }
    }

    /// Returns the media type of this form.
    pub fn media_type(self) -> &'static str {
        match self {
            Form::Html => "text/html; charset=utf-8",
            Form::Markdown => "text/markdown; charset=utf-8",
            Form::Csv => "text/csv; charset=utf-8",
            Form::Json => "application/json",
        }
    }
}

impl Document<'_> {
    /// Returns the document in a form.
    ///
    /// ```
    /// # fn show(document: annulus_lab::page::Document<'_>) {
    /// use annulus_lab::page::Form;
    ///
    /// for form in Form::ALL {
    ///     println!("{}.{}: {} bytes", document.name, form.extension(), document.text(form).len());
    /// }
    /// # }
    /// ```
    pub fn text(&self, form: Form) -> String {
        match form {
            Form::Html => self.html(),
            Form::Markdown => self.markdown(),
            Form::Csv => self.csv(),
            Form::Json => self.json(),
        }
    }

    /// Returns the page: a single file that loads nothing and runs no scripts.
    pub fn html(&self) -> String {
        self.page().html()
    }

    /// Returns the page as Markdown, without the pictures.
    pub fn markdown(&self) -> String {
        self.page().markdown()
    }

    /// Returns the report as JSON; for a suite, the suite's report. Slices would be most of the
    /// text, so they are only in the results file.
    pub fn json(&self) -> String {
        let mut report = serde_json::to_value(self.report).expect("serialization failed");
        report.as_object_mut().expect("the report is not a JSON object").remove("samples");
        let json = match self.suite {
            Some(suite) => {
                let mut suite = serde_json::to_value(suite).expect("serialization failed");
                suite["comparison"] = report;
                suite
            }
            None => report,
        };
        format!("{json:#}\n")
    }

    fn page(&self) -> Page {
        let blocks = |block: Option<Block>| block.into_iter().collect::<Vec<_>>();
        let chart = charts::ratios(self.report).map(Block::Figure);
        let curves = charts::curves(self.report).into_iter().map(Block::Figure).collect();
        let memory = tables::memory(self.report).map(Block::Matrix);
        let arrivals = tables::arrivals(self.report).map(Block::Matrix);
        let mut sections = vec![
            Section::new("Latency against rate", curves),
            Section::new("Ratios", blocks(chart)),
            Section::new("Verdicts", blocks(self.verdicts())),
            Section::new("Published and measured", self.tables()).folded(),
            Section::new("Distance from the best", self.distances()).folded(),
            Section::new("Figures", vec![Block::Matrix(tables::all(self.report))]).folded(),
            Section::new("Memory", blocks(memory)).folded(),
            Section::new("Arrivals", blocks(arrivals)).folded(),
            Section::new("Missing here", self.missing()).folded(),
            Section::new("Commands", self.commands()).folded(),
            Section::new("Host", self.host()).folded(),
        ];
        sections.retain(|section| !section.blocks.is_empty());
        Page {
            title: self.title(),
            subtitle: self.verdict(),
            links: self.links(),
            notices: self.notices(),
            sections,
        }
    }

    fn title(&self) -> String {
        match self.suite {
            Some(suite) => format!("{} ({})", suite.suite.title, suite.suite.document),
            None => match self.report.settings.parameters.get("title").and_then(Json::as_str) {
                Some(title) if title != self.name => format!("{}: {title}", self.name),
                _ => self.name.to_owned(),
            },
        }
    }

    /// Returns the verdict on the whole run, preceded by the progress of an unfinished run and
    /// followed by the number of failed slices.
    pub fn verdict(&self) -> String {
        let report = self.report;
        let mut sentences = Vec::new();
        if !self.is_finished {
            let measured = report.samples.len();
            sentences
                .push(format!("Unfinished: {measured} of {} slices.", report.settings.planned()));
        }
        sentences.extend(report.answer());
        match failed(report) {
            0 => {}
            1 => sentences.push("1 slice failed.".into()),
            count => sentences.push(format!("{count} slices failed.")),
        }
        if sentences.is_empty() {
            sentences.push("Nothing was compared.".into());
        }
        sentences.join(" ")
    }

    /// Returns warnings and failures, and for a suite its notes.
    fn notices(&self) -> Vec<String> {
        let report = self.report;
        let own = || report.warnings.iter().cloned().chain(report.failures());
        let mut texts: Vec<String> = self.suite.map_or(Vec::new(), |suite| suite.notes.clone());
        texts.extend(own().filter(|text| !texts.contains(text)).collect::<Vec<_>>());
        texts.retain(|text| !report.settings.contenders.missing.contains(text));
        texts
    }

    /// Returns a heat map for each compared metric, if there is more than one contender.
    fn distances(&self) -> Vec<Block> {
        let all = self.report.envelopes.iter();
        all.filter_map(|of| tables::heat_map(self.report, of)).map(Block::Matrix).collect()
    }

    fn tables(&self) -> Vec<Block> {
        let tables = self.suite.map_or(&[][..], |suite| &suite.tables);
        tables.iter().map(|table| Block::Matrix(tables::published(table))).collect()
    }

    /// Returns links to the index and to the other forms of this document.
    fn links(&self) -> Vec<Link> {
        let others = [(Form::Markdown, "Markdown"), (Form::Csv, "CSV"), (Form::Json, "JSON")];
        let others = others.into_iter().filter(|(form, _)| self.forms.contains(form));
        let others =
            others.map(|(form, text)| Link { href: address(self.name, form), text: text.into() });
        let index = Link { href: "index.html".into(), text: "All runs".into() };
        [index].into_iter().chain(others).collect()
    }
}

/// Returns the URL-encoded name of a file beside the page.
fn address(name: &str, form: Form) -> String {
    let mut address = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                address.push(byte.into())
            }
            byte => address += &format!("%{byte:02X}"),
        }
    }
    format!("{address}.{}", form.extension())
}

fn failed(report: &Report) -> usize {
    report.rows().map(|row| row.failed).sum()
}
