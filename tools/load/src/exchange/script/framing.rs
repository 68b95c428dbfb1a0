//! Where a reply ends.

use crate::invalid::{InvalidValue, invalid};
use crate::mix::MAX_MESSAGE_BYTES;
use std::fmt;
use std::str::FromStr;

/// Most bytes in front of a length field.
pub const MAX_LENGTH_FIELD_OFFSET: usize = 4096;

/// Where a reply ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Behind these bytes, which do not occur earlier.
    Delimiter(Vec<u8>),
    /// As a field near its start says.
    LengthField(LengthField),
    /// After so many bytes: 1 to [`MAX_MESSAGE_BYTES`].
    Fixed(usize),
}

impl Framing {
    pub(super) fn validate(&self) -> Result<(), InvalidValue> {
        match self {
            Framing::Delimiter(delimiter) if delimiter.is_empty() => {
                Err(invalid("a delimiter without a byte: give it some, such as \\n"))
            }
            Framing::Fixed(length) if !(1..=MAX_MESSAGE_BYTES).contains(length) => {
                let text = format!("replies of {length} bytes: ask for 1 to {MAX_MESSAGE_BYTES}");
                Err(invalid(text))
            }
            Framing::LengthField(field) if field.offset > MAX_LENGTH_FIELD_OFFSET => {
                Err(invalid(format!(
                    "a length field {} bytes from the start: ask for at most {MAX_LENGTH_FIELD_OFFSET}",
                    field.offset
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A number in a reply that says how long the reply is.
///
/// As text: `u8`, `u16be`, `u16le`, `u32be`, `u32le`, `u64be` or `u64le`; then, if it is not at the start, `@` and the bytes in front of
/// it; then, if it does not count the bytes behind itself, what to add to it. `u32be-4` counts its own four bytes as well.
///
/// ```
/// use annulus_load::LengthField;
///
/// let field: LengthField = "u16le@2-4".parse().unwrap();
/// assert_eq!((field.offset, field.width, field.is_little, field.added), (2, 2, true, -4));
/// assert_eq!(field.to_string(), "u16le@2-4");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthField {
    /// Bytes in front of the field: at most [`MAX_LENGTH_FIELD_OFFSET`].
    pub offset: usize,
    /// The width of the field in bytes: 1, 2, 4 or 8.
    pub width: usize,
    /// Whether its first byte is the least significant one.
    pub is_little: bool,
    /// The number to add to the field's value for the number of bytes behind the field.
    pub added: i64,
}

impl LengthField {
    /// Bytes up to the end of the field.
    pub(super) fn end(&self) -> usize {
        self.offset + self.width
    }

    /// The bytes behind the field, if they are not fewer than none. `head` ends with the field.
    pub(super) fn rest(&self, head: &[u8]) -> Option<u64> {
        let field = &head[self.offset..self.end()];
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let value = match self.is_little {
            true => field.iter().rev().fold(0, add),
            false => field.iter().fold(0, add),
        };
        value.checked_add_signed(self.added)
    }
}

impl FromStr for LengthField {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<LengthField, InvalidValue> {
        parse(text).ok_or_else(|| {
            invalid(format!(
                "'{text}' is no length field: write u8, u16be, u16le, u32be, u32le, u64be or u64le, then @OFFSET (at \
                 most {MAX_LENGTH_FIELD_OFFSET}) if it is not at the start, then +N or -N if it counts other bytes than those behind it"
            ))
        })
    }
}

fn parse(text: &str) -> Option<LengthField> {
    let (number, added) = match text.find(['+', '-']) {
        Some(at) => (&text[..at], text[at..].parse().ok()?),
        None => (text, 0),
    };
    let (number, offset) = match number.split_once('@') {
        Some((number, offset)) => {
            (number, offset.parse().ok().filter(|offset| *offset <= MAX_LENGTH_FIELD_OFFSET)?)
        }
        None => (number, 0),
    };
    let (bits, order) = number.strip_prefix('u')?.split_at_checked(number.len().min(3) - 1)?;
    let field = |width, is_little| Some(LengthField { offset, width, is_little, added });
    match (bits, order) {
        ("16", "be") => field(2, false),
        ("16", "le") => field(2, true),
        ("32", "be") => field(4, false),
        ("32", "le") => field(4, true),
        ("64", "be") => field(8, false),
        ("64", "le") => field(8, true),
        ("8", "") => field(1, false),
        _ => None,
    }
}

impl fmt::Display for LengthField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LengthField { offset, width, is_little, added } = self;
        write!(f, "u{}", width * 8)?;
        if *width > 1 {
            write!(f, "{}", if *is_little { "le" } else { "be" })?;
        }
        if *offset > 0 {
            write!(f, "@{offset}")?;
        }
        if *added != 0 {
            write!(f, "{added:+}")?;
        }
        Ok(())
    }
}
