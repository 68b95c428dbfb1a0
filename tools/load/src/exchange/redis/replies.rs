//! The replies of one connection, from any pieces.

use crate::exchange::kept::{Kept, Parsed};
use crate::fault::{Fault, Kind};

/// Most bytes of a line: an error, a number, a simple string.
const MAX_LINE: usize = 64 << 10;
/// Most bytes of a bulk string: the limit of Redis itself.
const MAX_BULK: u64 = 512 << 20;
/// Most elements of one aggregate.
const MAX_ELEMENTS: u64 = 1 << 32;

/// Where in a reply the next byte is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// At the line that begins an element.
    Line,
    /// In a bulk string with so many bytes left.
    Bulk(u64),
    /// In the line end behind a bulk string.
    BulkEnd,
}

/// A complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Without an error.
    Ok,
    /// An error, or a reply that contains one.
    Error,
    /// A message that the server pushes, which answers no command.
    Push,
}

/// The element that a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// An element that ends with the line.
    Value,
    Error,
    /// A bulk string of so many bytes; an error or not.
    Bulk {
        length: u64,
        is_error: bool,
    },
    /// An array, a set or a map, of so many elements.
    Aggregate(u64),
    /// A pushed message, of so many elements.
    Push(u64),
    /// So many attributes of the element that follows.
    Attribute(u64),
}

/// Splits the bytes of a connection into replies. Elements are counted, whatever their nesting, so that a reply of any depth
/// takes the same memory.
#[derive(Debug)]
pub(super) struct Replies {
    state: State,
    kept: Kept,
    /// Elements of this reply that are missing; 0 between replies.
    missing: u64,
    /// The kind of the reply as far as it has come.
    reply: Reply,
}

impl Replies {
    pub(super) fn new() -> Replies {
        Replies { state: State::Line, kept: Kept::default(), missing: 0, reply: Reply::Ok }
    }

    /// Takes bytes up to the end of a reply; returns their number, and the reply once it is complete. Lines of errors are
    /// shown to `error`.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        error: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, Option<Reply>), Fault> {
        let mut taken = 0;
        while taken < input.len() {
            let (count, ended) = self.step(&input[taken..], error)?;
            taken += count;
            if ended && self.missing == 0 {
                return Ok((taken, Some(std::mem::replace(&mut self.reply, Reply::Ok))));
            }
        }
        Ok((taken, None))
    }

    /// Whether the next byte is the first one of a reply.
    pub(super) fn is_between(&self) -> bool {
        self.missing == 0 && self.kept.len() == 0 && matches!(self.state, State::Line)
    }

    /// The fault if the connection ends now, with the part of a reply that is missing.
    pub(super) fn closed_early(&self) -> Fault {
        let what = match self.state {
            State::Line if self.missing == 0 => "the end of a reply".to_owned(),
            State::Line => format!("{} elements of a reply", self.missing),
            State::Bulk(left) => format!("{left} bytes of a string"),
            State::BulkEnd => "the line end behind a string".to_owned(),
        };
        Fault::new(Kind::ClosedEarly, format!("the server closed before {what}"))
    }

    /// Takes the next part of a reply; returns its length, and whether it ends an element.
    fn step(
        &mut self,
        input: &[u8],
        error: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, bool), Fault> {
        match self.state {
            State::Line => self.line(input, error),
            State::Bulk(left) => {
                let taken = usize::try_from(left).map_or(input.len(), |left| input.len().min(left));
                let left = left - taken as u64;
                self.state = if left == 0 { State::BulkEnd } else { State::Bulk(left) };
                Ok((taken, false))
            }
            State::BulkEnd => {
                let (taken, end) = self.kept.parse(input, 2, bulk_end, no_line_end)?;
                if end.is_some() {
                    self.state = State::Line;
                }
                Ok((taken, end.is_some()))
            }
        }
    }

    fn line(
        &mut self,
        input: &[u8],
        error: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, bool), Fault> {
        let parse = |bytes: &[u8]| {
            let Some((length, line)) = split_line(bytes)? else { return Ok(None) };
            let begun = begin(line)?;
            if begun == Line::Error {
                error(line);
            }
            Ok(Some((length, begun)))
        };
        let (taken, line) = self.kept.parse_lines(input, MAX_LINE, parse, endless_line)?;
        let ended = line.map(|line| self.note(line)).transpose()?;
        Ok((taken, ended.unwrap_or(false)))
    }

    /// Counts what a line begins; returns whether it ends an element.
    fn note(&mut self, line: Line) -> Result<bool, Fault> {
        let is_first = self.missing == 0;
        self.missing = self.missing.max(1);
        match line {
            Line::Push(_) if !is_first => return Err(malformed("a push within a reply".into())),
            Line::Push(_) => self.reply = Reply::Push,
            Line::Error | Line::Bulk { is_error: true, .. } if self.reply == Reply::Ok => {
                self.reply = Reply::Error;
            }
            _ => {}
        }
        // An attribute is no element itself.
        self.missing -= u64::from(!matches!(line, Line::Attribute(_)));
        match line {
            Line::Value | Line::Error => Ok(true),
            Line::Bulk { length, .. } => {
                self.state = if length == 0 { State::BulkEnd } else { State::Bulk(length) };
                Ok(false)
            }
            Line::Aggregate(elements) | Line::Push(elements) | Line::Attribute(elements) => {
                self.missing += elements;
                match self.missing <= MAX_ELEMENTS {
                    true => Ok(true),
                    false => Err(too_long(format!("{} elements", self.missing))),
                }
            }
        }
    }
}

/// The length of the first line with its end, and the line without it.
fn split_line(bytes: &[u8]) -> Result<Option<(usize, &[u8])>, Fault> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    match bytes[..end].strip_suffix(b"\r") {
        Some(line) => Ok(Some((end + 1, line))),
        None => Err(malformed(format!("\"{}\" without a carriage return", shown(&bytes[..end])))),
    }
}

/// Parses a line: the element that it begins.
fn begin(line: &[u8]) -> Result<Line, Fault> {
    let wrong = || malformed(format!("\"{}\" begins no reply", shown(line)));
    let (kind, rest) = line.split_first().ok_or_else(wrong)?;
    let text = std::str::from_utf8(rest);
    let number = || text.ok().and_then(|text| text.parse::<i64>().ok()).ok_or_else(wrong);
    let is_well_formed = match kind {
        b'+' => true,
        b'-' => return Ok(Line::Error),
        b'$' | b'=' | b'!' => return bulk(number()?, *kind == b'!').ok_or_else(wrong)?,
        b'*' | b'~' | b'%' | b'>' | b'|' => {
            return aggregate(*kind, number()?).ok_or_else(wrong)?;
        }
        b':' => number().is_ok(),
        b'_' => rest.is_empty(),
        b'#' => matches!(rest, b"t" | b"f"),
        b',' => text.is_ok_and(|text| text.parse::<f64>().is_ok()),
        b'(' => is_big_number(rest),
        _ => false,
    };
    if is_well_formed { Ok(Line::Value) } else { Err(wrong()) }
}

/// A string of so many bytes; one of -1 is null.
fn bulk(length: i64, is_error: bool) -> Option<Result<Line, Fault>> {
    match u64::try_from(length) {
        Ok(length) if length > MAX_BULK => {
            Some(Err(too_long(format!("a string of {length} bytes"))))
        }
        Ok(length) => Some(Ok(Line::Bulk { length, is_error })),
        Err(_) => (length == -1 && !is_error).then_some(Ok(Line::Value)),
    }
}

/// An aggregate of so many elements, of which a map has two each; an array of -1 is null.
fn aggregate(kind: u8, count: i64) -> Option<Result<Line, Fault>> {
    let Ok(count) = u64::try_from(count) else {
        return (count == -1 && kind == b'*').then_some(Ok(Line::Value));
    };
    let elements = count.saturating_mul(if matches!(kind, b'%' | b'|') { 2 } else { 1 });
    if elements > MAX_ELEMENTS {
        return Some(Err(too_long(format!("{elements} elements"))));
    }
    Some(Ok(match kind {
        b'>' => Line::Push(elements),
        b'|' => Line::Attribute(elements),
        _ => Line::Aggregate(elements),
    }))
}

fn is_big_number(digits: &[u8]) -> bool {
    let digits = digits.strip_prefix(b"-").or(digits.strip_prefix(b"+")).unwrap_or(digits);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// The line end behind a string.
fn bulk_end(bytes: &[u8]) -> Parsed<()> {
    match bytes {
        [b'\r', b'\n', ..] => Ok(Some((2, ()))),
        [] | [b'\r'] => Ok(None),
        _ => Err(no_line_end()),
    }
}

/// The first bytes of a line.
fn shown(line: &[u8]) -> impl std::fmt::Display {
    const SHOWN: usize = 32;
    line[..line.len().min(SHOWN)].escape_ascii()
}

#[cold]
fn no_line_end() -> Fault {
    Fault::new(Kind::WrongLength, "a string is longer than its length")
}

#[cold]
fn endless_line() -> Fault {
    too_long(format!("a line of over {MAX_LINE} bytes"))
}

#[cold]
fn too_long(what: String) -> Fault {
    Fault::new(Kind::TooLong, format!("a reply has {what}, which is not read"))
}

#[cold]
fn malformed(what: String) -> Fault {
    Fault::new(Kind::Malformed, format!("not of Redis's protocol: {what}"))
}
