//! The title, the verdict and the notices of a page.

use annulus_page::Notice;
use serde_json::Value as Json;

use super::Document;
use crate::bench::Report;

impl Document<'_> {
    pub(super) fn title(&self) -> String {
        match self.suite {
            Some(suite) => format!("{} ({})", suite.suite.title, suite.suite.document),
            None => match self.report.settings.parameters.get("title").and_then(Json::as_str) {
                Some(title) if title != self.name => format!("{}: {title}", self.name),
                _ => self.name.to_owned(),
            },
        }
    }

    /// The verdict on the whole run, in a sentence or three.
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

    /// Warnings, failures, and what was left out.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let report = self.report;
        let own = || report.warnings.iter().cloned().chain(report.failures());
        let mut texts: Vec<String> = self.suite.map_or(Vec::new(), |suite| suite.notes.clone());
        texts.extend(own().filter(|text| !texts.contains(text)).collect::<Vec<_>>());
        texts.retain(|text| !report.settings.contenders.missing.contains(text));
        texts.into_iter().map(|text| Notice { text, advice: String::new() }).collect()
    }
}

pub(super) fn failed(report: &Report) -> usize {
    report.rows().map(|row| row.failed).sum()
}
