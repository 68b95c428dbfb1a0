//! Buffers a part of a reply that arrives in pieces.

use crate::fault::Fault;

/// The result of parsing a part from its start: its length and value, or `None` while its end is
/// missing. A parser that fails on some bytes must also fail on all input that starts with them.
pub(super) type Parsed<T> = Result<Option<(usize, T)>, Fault>;

/// The bytes received so far of a part whose end is missing. Empty unless a part was split.
#[derive(Debug, Default)]
pub(super) struct PartialInput(Vec<u8>);

impl PartialInput {
    /// Parses the buffered bytes followed by `input`. Returns how many bytes of `input` belong to
    /// the part, and its value; if the end of the part is missing, it takes all of `input`.
    ///
    /// The parser sees at most one byte more than `limit`. A part that has not ended by then is
    /// `too_long`.
    ///
    /// # Errors
    /// Returns the parser's error, or `too_long`. Errors do not depend on how the input is split.
    pub(super) fn parse<T>(
        &mut self,
        input: &[u8],
        limit: usize,
        parse: impl FnOnce(&[u8]) -> Parsed<T>,
        too_long: impl FnOnce() -> Fault,
    ) -> Result<(usize, Option<T>), Fault> {
        let had = self.0.len();
        if had > 0 {
            self.0.extend_from_slice(&input[..input.len().min(limit + 1 - had)]);
        }
        let bytes = if had > 0 { &self.0[..] } else { &input[..input.len().min(limit + 1)] };
        match parse(bytes)? {
            Some((length, value)) if length <= limit => {
                self.0 = Vec::new();
                Ok((length - had, Some(value)))
            }
            None if bytes.len() <= limit => {
                if had == 0 {
                    self.0.extend_from_slice(input);
                }
                Ok((input.len(), None))
            }
            _ => Err(too_long()),
        }
    }

    /// Like [`parse`](Self::parse), but for a part that ends with a line. It parses again only when
    /// a line ends, so a part that arrives byte by byte is parsed once per line. If the connection
    /// ends, the caller must call [`check_rest`](Self::check_rest) for the last line.
    pub(super) fn parse_lines<T>(
        &mut self,
        input: &[u8],
        limit: usize,
        parse: impl FnOnce(&[u8]) -> Parsed<T>,
        too_long: impl FnOnce() -> Fault,
    ) -> Result<(usize, Option<T>), Fault> {
        let had = self.0.len();
        if had > 0 && had + input.len() <= limit && !input.contains(&b'\n') {
            self.0.extend_from_slice(input);
            return Ok((input.len(), None));
        }
        self.parse(input, limit, parse, too_long)
    }

    /// Parses the buffered bytes again to find an error in them.
    pub(super) fn check_rest<T>(
        &self,
        parse: impl FnOnce(&[u8]) -> Parsed<T>,
    ) -> Result<(), Fault> {
        if self.0.is_empty() { Ok(()) } else { parse(&self.0).map(drop) }
    }

    /// Returns the number of buffered bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
