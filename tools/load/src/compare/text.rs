//! Comparisons in words.

use super::{Bounds, Comparison, MetricRatio, Verdict};
use std::fmt;

impl Comparison {
    /// What the intervals support, in a sentence or two.
    pub fn sentence(&self) -> String {
        let with = |wanted: fn(Verdict) -> bool| {
            let found = self
                .ratios
                .iter()
                .filter(move |ratio| ratio.ratio.is_some() && wanted(ratio.verdict));
            found.collect::<Vec<_>>()
        };
        let margin = self.margin * 100.0;
        let parts = [
            ("B differs from A".to_owned(), with(Verdict::is_different), true),
            (format!("Equal within {margin} %"), with(|verdict| verdict == Verdict::Equal), false),
            ("Undecided".to_owned(), with(|verdict| verdict == Verdict::Undecided), false),
        ];
        let sentence = |(what, ratios, has_size): (String, Vec<&MetricRatio>, bool)| {
            let names: Vec<String> =
                ratios.into_iter().map(|ratio| name(ratio, has_size)).collect();
            (!names.is_empty()).then(|| format!("{what}: {}.", names.join(", ")))
        };
        parts.into_iter().filter_map(sentence).collect::<Vec<_>>().join(" ")
    }
}

/// The metric, with how far it differs if that is wanted.
fn name(ratio: &MetricRatio, has_size: bool) -> String {
    let size = ratio.ratio.filter(|_| has_size);
    let size = size.map(|value| match value {
        ..1.0 => format!(" {:.1} % lower", (1.0 - value) * 100.0),
        ..10.0 => format!(" {:.1} % higher", (value - 1.0) * 100.0),
        _ => format!(" {value:.0} times as high"),
    });
    format!("{}{}", ratio.metric, size.unwrap_or_default())
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Three decimals, or one from 10 on; a very wide interval in powers of ten.
        let decimals = if self.high < 10.0 { 3 } else { 1 };
        if self.high < 1e4 {
            write!(f, "[{:.decimals$}, {:.decimals$}]", self.low, self.high)
        } else {
            write!(f, "[{:.0e}, {:.0e}]", self.low, self.high)
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Higher => "different: higher",
            Verdict::Lower => "different: lower",
            Verdict::Equal => "equal",
            Verdict::Undecided => "undecided",
        })
    }
}
