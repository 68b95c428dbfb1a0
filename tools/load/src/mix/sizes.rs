//! Sizes of messages: fixed, uniform, or drawn from a list.

use fastrand::Rng;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Most sizes in a list.
const MAX_SIZES: usize = 1_000_000;
/// Most bytes of a file of sizes.
const MAX_FILE: u64 = 32 << 20;

/// Most bytes in a message of a stream: 64 MiB.
pub const MAX_LENGTH: usize = 64 << 20;

/// How many bytes messages have: each 1 to [`MAX_LENGTH`].
///
/// It is parsed from `512` or `16K` (fixed), from `100..2000` (each size equally likely), and from `@FILE`, which is read: a
/// size on each line, and each line equally likely; empty lines and those that begin with `#` do not count.
///
/// ```
/// use annulus_load::Sizes;
///
/// assert_eq!("16K".parse::<Sizes>().unwrap(), Sizes::Fixed(16_384));
/// assert_eq!("100..2000".parse::<Sizes>().unwrap(), Sizes::Uniform(100, 2000));
/// assert_eq!(Sizes::listed("64\n64\n1500\n").unwrap().mean(), 542.666_666_666_666_6);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All the same.
    Fixed(usize),
    /// From the first to the second.
    Uniform(usize, usize),
    /// One of these.
    Listed(Arc<[usize]>),
}

impl Sizes {
    /// The sizes in a text, one on each line.
    ///
    /// # Errors
    /// If there is none, or a line is no size.
    pub fn listed(text: &str) -> Result<Sizes, SizesError> {
        let mut sizes = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let size = parse_size(line)
                .map_err(|error| SizesError::Line(number + 1, error.to_string()))?;
            sizes.push(size);
        }
        match sizes.len() {
            0 => Err(SizesError::Empty),
            1..=MAX_SIZES => Ok(Sizes::Listed(sizes.into())),
            more => Err(SizesError::TooMany(more)),
        }
    }

    /// Reads a file of sizes.
    ///
    /// # Errors
    /// As [`listed`](Sizes::listed), or if the file cannot be read or has more than 32 MiB.
    pub fn read(path: &Path) -> Result<Sizes, SizesError> {
        let failed = |error: io::Error| SizesError::File(path.to_owned(), error.to_string());
        let length = std::fs::metadata(path).map_err(failed)?.len();
        if length > MAX_FILE {
            return Err(failed(io::Error::other(format!(
                "it has {length} bytes: the most are {MAX_FILE}"
            ))));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Sizes::listed(&text).map_err(|error| SizesError::File(path.to_owned(), error.to_string()))
    }

    /// The smallest.
    pub fn min(&self) -> usize {
        match self {
            Sizes::Fixed(size) | Sizes::Uniform(size, _) => *size,
            Sizes::Listed(sizes) => sizes.iter().copied().min().unwrap_or_default(),
        }
    }

    /// The largest.
    pub fn max(&self) -> usize {
        match self {
            Sizes::Fixed(size) | Sizes::Uniform(_, size) => *size,
            Sizes::Listed(sizes) => sizes.iter().copied().max().unwrap_or_default(),
        }
    }

    /// The expected size.
    pub fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(size) => *size as f64,
            Sizes::Uniform(least, most) => (*least as f64 + *most as f64) / 2.0,
            Sizes::Listed(sizes) => {
                sizes.iter().map(|&size| size as f64).sum::<f64>() / sizes.len() as f64
            }
        }
    }

    /// Draws a size.
    pub(crate) fn draw(&self, random: &mut Rng) -> usize {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Uniform(least, most) => random.usize(*least..=*most),
            Sizes::Listed(sizes) => sizes[random.usize(..sizes.len())],
        }
    }
}

impl From<usize> for Sizes {
    fn from(size: usize) -> Sizes {
        Sizes::Fixed(size)
    }
}

/// `512`, `16K`, `100..2000` or `@FILE`.
impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Sizes, SizesError> {
        if let Some(path) = text.strip_prefix('@') {
            return Sizes::read(Path::new(path));
        }
        let Some((least, most)) = text.split_once("..") else {
            return parse_size(text).map(Sizes::Fixed);
        };
        let (least, most) = (parse_size(least)?, parse_size(most)?);
        if least > most {
            return Err(SizesError::Reversed(text.into()));
        }
        Ok(Sizes::Uniform(least, most))
    }
}

/// A size: bytes, or with a unit of 1024.
fn parse_size(text: &str) -> Result<usize, SizesError> {
    let (number, factor) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let size = number.parse::<usize>().ok().and_then(|number| number.checked_mul(factor));
    let size = size.ok_or_else(|| SizesError::NoSize(text.into()))?;
    if (1..=MAX_LENGTH).contains(&size) { Ok(size) } else { Err(SizesError::Range(text.into())) }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(size) => write!(f, "{size} bytes"),
            Sizes::Uniform(least, most) => write!(f, "{least} to {most} bytes"),
            Sizes::Listed(sizes) => {
                write!(f, "{} to {} bytes, of a list of {}", self.min(), self.max(), sizes.len())
            }
        }
    }
}

/// Sizes that do not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizesError {
    /// The text is no number of bytes.
    #[error("'{0}' is not a size: write 512, 16K, 100..2000, or @FILE with a size a line")]
    NoSize(String),
    /// Zero bytes, or more than [`MAX_LENGTH`].
    #[error("{0} is no valid number of bytes: a message has 1 to {MAX_LENGTH}")]
    Range(String),
    /// The larger size is written first.
    #[error("'{0}' ends before it begins: write the smaller size first")]
    Reversed(String),
    /// A line of a list, counted from 1, and what is wrong with it.
    #[error("line {0}: {1}")]
    Line(usize, String),
    /// A list without a size.
    #[error("there is no size: write one on each line")]
    Empty,
    /// A list of so many.
    #[error("{0} sizes: the most are {MAX_SIZES}")]
    TooMany(usize),
    /// The file, and what is wrong with it.
    #[error("{0}: {1}")]
    File(PathBuf, String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, generator};

    #[test]
    fn drawn_sizes_are_within_their_bounds_and_reach_them() {
        let listed = Sizes::listed("# sizes\n7\n\n 1K \n7\n").unwrap();
        for (sizes, expected) in [
            (Sizes::Fixed(9), vec![9]),
            (Sizes::Uniform(3, 5), vec![3, 4, 5]),
            (listed.clone(), vec![7, 1024]),
        ] {
            let mut random = generator(1, 2, Purpose::Sizes);
            let drawn: Vec<_> = (0..3000).map(|_| sizes.draw(&mut random)).collect();
            let mean = drawn.iter().sum::<usize>() as f64 / 3000.0;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.1, "{mean} of {}", sizes.mean());
            let distinct: std::collections::BTreeSet<_> = drawn.into_iter().collect();
            assert!(distinct.iter().eq(expected.iter()), "{distinct:?}");
            assert_eq!((sizes.min(), sizes.max()), (expected[0], expected[expected.len() - 1]));
        }
        assert_eq!(listed.to_string(), "7 to 1024 bytes, of a list of 3");
    }

    #[test]
    fn invalid_sizes_are_named_with_a_remedy() {
        for (text, part) in [
            ("", "'' is not a size: write 512"),
            ("12x", "'12x' is not a size"),
            ("0", "0 is no valid number of bytes: a message has 1 to"),
            ("65M", "65M is no valid number"),
            ("9..3", "'9..3' ends before it begins"),
            ("9..", "'' is not a size"),
            ("@/nonexistent/sizes", "/nonexistent/sizes: No such file"),
        ] {
            let error = text.parse::<Sizes>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(Sizes::listed("# none\n"), Err(SizesError::Empty));
        let error = Sizes::listed("5\n\nfive\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3: 'five' is not a size"), "{error}");
    }
}
