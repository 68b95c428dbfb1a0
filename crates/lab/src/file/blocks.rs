//! Blocks of one file, read and written for a while with many under way at once: what fio measures.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Burst;
use crate::contest::Question;

/// What is waited for beyond a slice: setting up, and the moods of a machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// In which order, and what is done with each block.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Reads, one after the other.
    Read,
    /// Writes, one after the other.
    Write,
    /// Reads, anywhere.
    RandRead,
    /// Writes, anywhere.
    RandWrite,
    /// Reads and writes in turn, anywhere.
    Mixed,
    /// The whole file, to a stream.
    Send,
    /// The whole file, from a stream.
    Receive,
}

impl Pattern {
    /// Every pattern, by name.
    pub const ALL: [(&'static str, Pattern); 7] = [
        ("read", Pattern::Read),
        ("write", Pattern::Write),
        ("randread", Pattern::RandRead),
        ("randwrite", Pattern::RandWrite),
        ("mixed", Pattern::Mixed),
        ("send", Pattern::Send),
        ("receive", Pattern::Receive),
    ];

    /// Whether blocks come one after the other.
    pub fn is_sequential(self) -> bool {
        matches!(self, Pattern::Read | Pattern::Write) || self.is_of_streams()
    }

    /// Whether it is about whole files that go over streams, not about blocks of one.
    pub fn is_of_streams(self) -> bool {
        matches!(self, Pattern::Send | Pattern::Receive)
    }

    /// Whether a worker's operation of this number is a write.
    pub fn writes(self, number: u64) -> bool {
        match self {
            Pattern::Read | Pattern::RandRead | Pattern::Send => false,
            Pattern::Write | Pattern::RandWrite | Pattern::Receive => true,
            Pattern::Mixed => number % 2 == 1,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Pattern::ALL.iter().find(|(_, pattern)| pattern == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(name: &str) -> Result<Pattern, String> {
        let found = Pattern::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, pattern)| *pattern).ok_or_else(|| {
            let names = Pattern::ALL.map(|(name, _)| name).join(", ");
            format!("unknown pattern `{name}`; choose one of {names}")
        })
    }
}

/// A cell: so many blocks of this size, or streams that take pieces of it, under way at once. Asked as `PATTERN DEPTH BYTES SECONDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Blocks {
    /// In which order.
    pub pattern: Pattern,
    /// Operations at once.
    pub depth: u64,
    /// Bytes of a block.
    pub bytes: u64,
}

impl Blocks {
    /// Reads a question: the cell, and for how long; `None` where it makes no sense.
    pub fn parse(question: &str) -> Option<(Blocks, Duration)> {
        let mut words = question.split(' ');
        let pattern = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse().ok().filter(|&number: &u64| number > 0);
        let (depth, bytes) = (number()?, number()?);
        let slice = Duration::try_from_secs_f64(words.next()?.parse().ok()?).ok()?;
        words.next().is_none().then_some((Blocks { pattern, depth, bytes }, slice))
    }
}

impl Question for Blocks {
    type Answer = Burst;

    fn line(&self, slice: Duration) -> String {
        let Blocks { pattern, depth, bytes } = self;
        format!("{pattern} {depth} {bytes} {}", slice.as_secs_f64())
    }

    fn read(&self, answer: &str) -> Option<Burst> {
        Burst::parse(answer)
    }

    fn patience(&self, slice: Duration) -> Duration {
        slice * 2 + PATIENCE
    }
}

impl fmt::Display for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Blocks { pattern, depth, bytes } = self;
        write!(f, "{pattern} × {bytes} bytes × {depth} at once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_comes_back() {
        for (_, pattern) in Pattern::ALL {
            let cell = Blocks { pattern, depth: 32, bytes: 4096 };
            let slice = Duration::from_millis(300);
            assert_eq!(Blocks::parse(&cell.line(slice)), Some((cell, slice)));
        }
        for wrong in ["", "randread", "dance 1 1 1", "read 0 1 1", "read 1 1 -1", "read 1 1 1 1"] {
            assert_eq!(Blocks::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn half_of_a_mixture_is_writes() {
        assert_eq!((0..10).filter(|number| Pattern::Mixed.writes(*number)).count(), 5);
        let error = "dance".parse::<Pattern>().expect_err("no such pattern");
        assert!(error.contains("`dance`") && error.contains("randread"), "{error}");
    }
}
