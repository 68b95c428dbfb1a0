//! Cycles of open, write, read, close: what the published table has.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Burst;
use crate::contest::Question;

/// The slowest device that is waited for, in bytes and cycles a second.
const SLOWEST_BYTES: u64 = 1 << 20;
const SLOWEST_CYCLES: u64 = 100;
/// What is waited for in any case.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cell: workers, each with a file of its own, which it opens, writes, reads and closes again and again. Asked as
/// `WORKERS CYCLES BYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cycles {
    /// Threads or tasks at once.
    pub workers: u64,
    /// Cycles of each.
    pub cycles: u64,
    /// Bytes that a cycle writes and reads.
    pub bytes: u64,
}

impl Cycles {
    /// All workers' cycles; `None` where that is beyond counting.
    pub fn total(&self) -> Option<u64> {
        self.workers.checked_mul(self.cycles)
    }

    /// The files' size together; `None` where that is beyond counting.
    pub fn files(&self) -> Option<u64> {
        self.workers.checked_mul(self.bytes)
    }

    /// Reads a question; `None` where it makes no sense.
    pub fn parse(question: &str) -> Option<Cycles> {
        let number = |word: &str| word.parse().ok().filter(|&number| number > 0);
        let numbers: Vec<u64> = question.split(' ').map(number).collect::<Option<_>>()?;
        let &[workers, cycles, bytes] = numbers.as_slice() else { return None };
        let cell = Cycles { workers, cycles, bytes };
        cell.total()?.checked_mul(bytes)?.checked_mul(2).map(|_| cell)
    }
}

impl Question for Cycles {
    type Answer = Burst;

    fn line(&self, _slice: Duration) -> String {
        format!("{} {} {}", self.workers, self.cycles, self.bytes)
    }

    fn read(&self, answer: &str) -> Option<Burst> {
        Burst::parse(answer)
    }

    fn patience(&self, _slice: Duration) -> Duration {
        let cycles = self.total().unwrap_or(u64::MAX);
        let bytes = cycles.saturating_mul(self.bytes);
        PATIENCE + Duration::from_secs(cycles / SLOWEST_CYCLES + bytes / SLOWEST_BYTES)
    }
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cycles { workers, cycles, bytes } = self;
        write!(f, "{workers} workers × {cycles} cycles × {bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_comes_back() {
        let cell = Cycles { workers: 20, cycles: 40_960, bytes: 4096 };
        assert_eq!(Cycles::parse(&cell.line(Duration::ZERO)), Some(cell));
        assert_eq!((cell.total(), cell.files()), (Some(819_200), Some(81_920)));
        assert!(cell.patience(Duration::ZERO) > Duration::from_secs(3600));
    }

    #[test]
    fn nonsense_and_what_cannot_be_counted_is_refused() {
        for wrong in ["", "20 1", "0 1 1", "1 0 1", "1 1 0", "1 1 1 1", "a b c"] {
            assert_eq!(Cycles::parse(wrong), None, "{wrong}");
        }
        let beyond = format!("{} {} 16", 1u64 << 32, 1u64 << 31);
        assert_eq!(Cycles::parse(&beyond), None);
    }
}
