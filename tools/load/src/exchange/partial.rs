//! Buffers a *part* of a reply, such as its head or the size of a chunk, until the part is
//! complete.

use crate::fault::Fault;

/// The result of parsing a part from its start: its length and value, or `None` while its end is
/// missing. A parser that fails on some bytes must also fail on all input that starts with them.
pub(super) type Parsed<T> = Result<Option<(usize, T)>, Fault>;

/// Up to this length, [`PartialInput::parse_lines`] parses a part at the end of each line.
const MAX_PARSED_BYTES: usize = 4096;

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

    /// Like [`parse`](Self::parse), but for a part that ends with a line, and with an empty line if
    /// it is longer than [`MAX_PARSED_BYTES`]. It parses again only when a line ends, so a part
    /// that arrives byte by byte is parsed once per line, and less often if there are many lines.
    /// If the connection ends, the caller must call [`check_rest`](Self::check_rest) for the rest.
    pub(super) fn parse_lines<T>(
        &mut self,
        input: &[u8],
        limit: usize,
        parse: impl FnOnce(&[u8]) -> Parsed<T>,
        too_long: impl FnOnce() -> Fault,
    ) -> Result<(usize, Option<T>), Fault> {
        let had = self.0.len();
        if had > 0 && had + input.len() <= limit && !self.may_complete(input) {
            self.0.extend_from_slice(input);
            return Ok((input.len(), None));
        }
        self.parse(input, limit, parse, too_long)
    }

    /// Returns true if the part may end within `input`, or should be parsed to find an error.
    fn may_complete(&self, input: &[u8]) -> bool {
        if !input.contains(&b'\n') {
            return false;
        }
        let had = self.0.len();
        // Parsing whenever the length has grown by a sixteenth to an eighth takes linear time in
        // total.
        let step = had.next_power_of_two() / 16;
        if had < MAX_PARSED_BYTES || had / step != (had + input.len()) / step {
            return true;
        }
        // Look for an empty line that ends within the input.
        let before = self.0[had.saturating_sub(2)..].iter();
        let mut is_line_start = false;
        before.chain(input).any(|&byte| {
            let is_empty_line = byte == b'\n' && is_line_start;
            is_line_start = byte == b'\n' || (byte == b'\r' && is_line_start);
            is_empty_line
        })
    }

    /// Parses the buffered bytes again to find an error in them.
    pub(super) fn check_rest<T>(
        &self,
        parse: impl FnOnce(&[u8]) -> Parsed<T>,
    ) -> Result<(), Fault> {
        if self.0.is_empty() { Ok(()) } else { parse(&self.0).map(drop) }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of times that a head is parsed if it arrives in pieces of `size` bytes.
    fn parses(head: &str, size: usize) -> usize {
        let (mut partial, mut count) = (PartialInput::default(), 0);
        let mut complete = None;
        for piece in head.as_bytes().chunks(size) {
            assert_eq!(complete, None);
            let parse = |bytes: &[u8]| {
                count += 1;
                let end = ["\n\n", "\n\r\n"].iter().filter_map(|end| {
                    let at = memchr::memmem::find(bytes, end.as_bytes())?;
                    Some(at + end.len())
                });
                Ok(end.min().map(|end| (end, ())))
            };
            let result = partial.parse_lines(piece, 1 << 20, parse, || unreachable!());
            complete = result.unwrap().1;
        }
        assert_eq!((complete, partial.len()), (Some(()), 0));
        count
    }

    #[test]
    fn part_of_many_lines_is_parsed_rarely() {
        for end in ["\n", "\r\n"] {
            let head = format!("x: y{end}").repeat(20_000) + end;
            for size in [1, 2, 3, 7] {
                let count = parses(&head, size);
                assert!((100..1500).contains(&count), "parsed {count} times in pieces of {size}");
            }
        }
    }
}
