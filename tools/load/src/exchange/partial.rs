//! A part of a reply that arrives in pieces.

use crate::fault::Fault;

/// The result of parsing the bytes of a part from its start: its length with its value, or nothing as long as its end is
/// missing. A parser that fails for some bytes fails for whatever begins with them.
pub(super) type Parsed<T> = Result<Option<(usize, T)>, Fault>;

/// The bytes so far of a part whose end is missing. Empty unless a part was cut.
#[derive(Debug, Default)]
pub(super) struct PartialInput(Vec<u8>);

impl PartialInput {
    /// Parses what is kept and `input` as one. Returns how many bytes of `input` the part takes, with its value; without
    /// the end of the part it takes all of them.
    ///
    /// Parsers see one byte more than `limit` at most: a part that has no end by then is `too_long`.
    ///
    /// # Errors
    /// The errors of the parser, and `too_long`. They do not depend on how the input is cut.
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

    /// As [`parse`](Self::parse), for a part that ends with a line: looks again only when a line ends, so that a part that comes byte
    /// by byte takes no more time than it has lines. If the connection ends, the caller has to [`check_rest`](Self::look) at the last one.
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

    /// Parses what is kept once more, for its fault.
    pub(super) fn check_rest<T>(
        &self,
        parse: impl FnOnce(&[u8]) -> Parsed<T>,
    ) -> Result<(), Fault> {
        if self.0.is_empty() { Ok(()) } else { parse(&self.0).map(drop) }
    }

    /// How many bytes are kept.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
