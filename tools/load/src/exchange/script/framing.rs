use crate::invalid::{InvalidValue, invalid};
use crate::mix::MAX_MESSAGE_BYTES;
use std::fmt;
use std::str::FromStr;

/// The maximum number of bytes before a length field.
pub const MAX_LENGTH_FIELD_OFFSET: usize = 4096;

/// How the end of a reply is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The reply ends with the first occurrence of these bytes.
    Delimiter(Vec<u8>),
    /// A field near the start of the reply determines its length.
    LengthField(LengthField),
    /// The reply has this many bytes: 1 to [`MAX_MESSAGE_BYTES`].
    Fixed(usize),
}

impl Framing {
    pub(super) fn validate(&self) -> Result<(), InvalidValue> {
        match self {
            Framing::Delimiter(delimiter) if delimiter.is_empty() => {
                Err(invalid("the delimiter is empty: give it at least one byte, such as \\n"))
            }
            Framing::Fixed(length) if !(1..=MAX_MESSAGE_BYTES).contains(length) => {
                let text = format!(
                    "a reply length of {length} bytes is out of range: use 1 to \
                    {MAX_MESSAGE_BYTES}"
                );
                Err(invalid(text))
            }
            Framing::LengthField(field) if field.offset > MAX_LENGTH_FIELD_OFFSET => {
                Err(invalid(format!(
                    "the length field is {} bytes from the start: use at most \
                     {MAX_LENGTH_FIELD_OFFSET}",
                    field.offset
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A number in a reply that determines the reply's length.
///
/// The text form is `u8`, `u16be`, `u16le`, `u32be`, `u32le`, `u64be` or `u64le`. If the field is
/// not at the start, `@` and the number of bytes before it follow. If it does not count exactly the
/// bytes after it, the number to add to it follows: `u32be-4` also counts its own four bytes.
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
    /// Number of bytes before the field: at most [`MAX_LENGTH_FIELD_OFFSET`].
    pub offset: usize,
    /// Width of the field in bytes: 1, 2, 4 or 8.
    pub width: usize,
    /// Whether the field is little-endian.
    pub is_little: bool,
    /// The number to add to the field's value to get the number of bytes after the field.
    pub added: i64,
}

impl LengthField {
    /// Returns the number of bytes up to the end of the field.
    pub(super) fn end(&self) -> usize {
        self.offset + self.width
    }

    /// Returns the number of bytes after the field, or `None` if it is negative or exceeds
    /// `u64::MAX`. `head` ends with the field.
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
                "'{text}' is not a length field: write u8, u16be, u16le, u32be, u32le, u64be or \
                 u64le, then @OFFSET (at most {MAX_LENGTH_FIELD_OFFSET}) if it is not at the \
                 start, then +N or -N if it counts other bytes than those after it"
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
