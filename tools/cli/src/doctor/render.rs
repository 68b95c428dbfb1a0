//! The findings as text.

use super::findings::{Findings, Uring};
use crate::text::Listing;

pub(super) fn page(findings: &Findings) -> String {
    let Findings { version, kernel, io_uring, driver, limits, missing, advice } = findings;
    let mut page = Listing::new();
    page.row("annulus", version);
    page.row("kernel", kernel);
    page.row("io_uring", &summary(io_uring));
    page.row("driver", &format!("{}: {}", driver.kind, driver.reason));
    features(&mut page, io_uring);
    page.line("");
    page.indent(31);
    for limit in limits {
        page.row(limit.name, &limit.value);
        page.row("", &limit.meaning);
    }
    page.line("");
    page.indent(13);
    if missing.is_empty() {
        page.row("missing", "nothing");
    }
    missing.iter().for_each(|what| page.row("missing", what));
    advice.iter().for_each(|line| page.row("advice", line));
    page.finish()
}

fn summary(uring: &Uring) -> String {
    match &uring.error {
        Some(error) => format!("not available: {error}"),
        None => {
            let present = uring.features.iter().filter(|line| line.present).count();
            format!("available, {present} of {} features", uring.features.len())
        }
    }
}

fn features(page: &mut Listing, uring: &Uring) {
    if uring.features.is_empty() {
        return;
    }
    page.line("");
    page.line(&format!("{:<22}{:<8}{:<6}{}", "feature", "since", "here", "what it buys"));
    for line in &uring.features {
        let here = if line.present { "yes" } else { "no" };
        page.line(&format!("{:<22}{:<8}{here:<6}{}", line.name, line.since, line.buys));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_at_most_80_columns_wide() {
        let text = page(&Findings::gather());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for part in
            ["kernel", "io_uring", "driver", "open files", "kernel.io_uring_disabled", "missing"]
        {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
