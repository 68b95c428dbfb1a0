//! Counts of replies by what they say.

use crate::outcome::Outcome;
use std::collections::BTreeMap;

/// The names of the kinds in results.
const NAMES: [&str; 7] = ["ok", "2xx", "3xx", "4xx", "5xx", "other status", "error reply"];

/// Replies by what they say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes([u64; NAMES.len()]);

impl Outcomes {
    pub(crate) fn add(&mut self, outcome: Outcome) {
        let kind = match outcome {
            Outcome::Ok => 0,
            Outcome::Status(status @ 200..=599) => usize::from(status / 100 - 1),
            Outcome::Status(_) => 5,
            Outcome::ErrorReply => 6,
        };
        self.0[kind] += 1;
    }

    /// The outcomes that occurred, by name, with their counts.
    pub(crate) fn by_name(&self) -> BTreeMap<String, u64> {
        let counted = NAMES.iter().zip(self.0).filter(|(_, count)| *count > 0);
        counted.map(|(name, count)| ((*name).to_owned(), count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_counted_by_class() {
        let mut outcomes = Outcomes::default();
        for status in [200, 204, 299, 301, 404, 599, 600, 999] {
            outcomes.add(Outcome::Status(status));
        }
        outcomes.add(Outcome::Ok);
        outcomes.add(Outcome::ErrorReply);
        let expected = [
            ("2xx", 3),
            ("3xx", 1),
            ("4xx", 1),
            ("5xx", 1),
            ("error reply", 1),
            ("ok", 1),
            ("other status", 2),
        ];
        assert_eq!(
            outcomes.by_name(),
            expected.map(|(name, count)| (name.to_owned(), count)).into()
        );
    }
}
