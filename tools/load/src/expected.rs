//! Expected bodies of replies, and the check of a body as it arrives.

use crate::invalid::{InvalidValue, invalid};
use crate::mix::MAX_MESSAGE_BYTES;
use regex::bytes::Regex;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use std::fmt::Write;
use std::str::FromStr;

/// The body that a reply should have. Other bodies count as errors.
///
/// The text form is the body itself, `length:N`, `regex:EXPRESSION` or `sha256:HEX`. Write `text:`
/// before a body that starts with one of these prefixes or with `text:`.
///
/// ```
/// use annulus_load::Expected;
///
/// assert_eq!("length:5".parse(), Ok(Expected::Length(5)));
/// assert_eq!("hello".parse(), Ok(Expected::Text(b"hello".to_vec())));
/// assert_eq!("text:length:5".parse(), Ok(Expected::Text(b"length:5".to_vec())));
/// let error = "sha256:12".parse::<Expected>().unwrap_err().to_string();
/// assert_eq!(error, "'12' is not a SHA-256 hash: write its 64 hexadecimal digits");
/// ```
#[derive(Clone, Debug)]
pub enum Expected {
    /// Exactly these bytes.
    Text(Vec<u8>),
    /// This many bytes.
    Length(u64),
    /// Bytes that contain a match of this expression. The body may have at most
    /// [`MAX_MESSAGE_BYTES`].
    Matches(Regex),
    /// Bytes with this SHA-256 hash.
    Sha256([u8; SHA256_OUTPUT_LEN]),
}

/// Expressions are equal if their texts are.
impl PartialEq for Expected {
    fn eq(&self, other: &Expected) -> bool {
        match (self, other) {
            (Expected::Text(one), Expected::Text(other)) => one == other,
            (Expected::Length(one), Expected::Length(other)) => one == other,
            (Expected::Matches(one), Expected::Matches(other)) => one.as_str() == other.as_str(),
            (Expected::Sha256(one), Expected::Sha256(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Expected {}

impl FromStr for Expected {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Expected, InvalidValue> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Ok(Expected::Text(text.as_bytes().to_vec()));
        };
        match kind {
            "text" => Ok(Expected::Text(rest.as_bytes().to_vec())),
            "length" => rest.parse().map(Expected::Length).map_err(|_| {
                invalid(format!("'{rest}' is not a number of bytes: write length:128"))
            }),
            "regex" => Regex::new(rest).map(Expected::Matches).map_err(|error| {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
                invalid(format!("'{rest}' is not a regular expression: {why}"))
            }),
            "sha256" => parse_hash(rest).map(Expected::Sha256).ok_or_else(|| {
                invalid(format!("'{rest}' is not a SHA-256 hash: write its 64 hexadecimal digits"))
            }),
            _ => Ok(Expected::Text(text.as_bytes().to_vec())),
        }
    }
}

/// Parses a SHA-256 hash of 64 hexadecimal digits.
#[doc(hidden)]
pub fn parse_hash(text: &str) -> Option<[u8; SHA256_OUTPUT_LEN]> {
    let is_hash =
        text.len() == 2 * SHA256_OUTPUT_LEN && text.bytes().all(|b| b.is_ascii_hexdigit());
    let mut hash = [0; SHA256_OUTPUT_LEN];
    for (place, byte) in hash.iter_mut().enumerate().filter(|_| is_hash) {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    is_hash.then_some(hash)
}

#[doc(hidden)]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The check of one body, which arrives in pieces of any size.
pub(crate) struct BodyCheck {
    /// The number of bytes so far.
    length: u64,
    state: CheckState,
}

enum CheckState {
    /// Only the length matters.
    Counting,
    /// `Ok` while all bytes are the expected ones. `Err` has the bytes before the first different
    /// piece, followed by that piece.
    Comparing(Result<(), Vec<u8>>),
    /// The body so far. A piece that would make it longer than [`MAX_MESSAGE_BYTES`] is not added.
    Collecting(Vec<u8>),
    Hashing(Box<Context>),
}

impl BodyCheck {
    pub(crate) fn new(expected: &Expected) -> BodyCheck {
        let state = match expected {
            Expected::Text(_) => CheckState::Comparing(Ok(())),
            Expected::Length(_) => CheckState::Counting,
            Expected::Matches(_) => CheckState::Collecting(Vec::new()),
            Expected::Sha256(_) => CheckState::Hashing(Box::new(Context::new(&SHA256))),
        };
        BodyCheck { length: 0, state }
    }

    pub(crate) fn take(&mut self, expected: &Expected, bytes: &[u8]) {
        let at = self.length;
        self.length += bytes.len() as u64;
        match (&mut self.state, expected) {
            (CheckState::Comparing(same @ Ok(())), Expected::Text(expected)) => {
                let at = at as usize;
                if !expected.get(at..).is_some_and(|rest| rest.starts_with(bytes)) {
                    *same = Err([&expected[..at.min(expected.len())], bytes].concat());
                }
            }
            (CheckState::Collecting(body), _) if self.length <= MAX_MESSAGE_BYTES as u64 => {
                body.extend_from_slice(bytes);
            }
            (CheckState::Hashing(context), _) => context.update(bytes),
            _ => {}
        }
    }

    /// Checks the complete body.
    ///
    /// # Errors
    /// Returns the start of the body, or what differs. Messages put `the body ` or `the reply `
    /// before it.
    pub(crate) fn finish(self, expected: &Expected) -> Result<(), Vec<u8>> {
        let length = self.length;
        match (self.state, expected) {
            (CheckState::Comparing(Err(found)), _) => Err(found),
            (_, Expected::Text(text)) if length != text.len() as u64 => {
                Err(text[..text.len().min(length as usize)].to_vec())
            }
            (_, Expected::Length(expected)) if length != *expected => {
                Err(format!("has {length} bytes instead of {expected}").into())
            }
            (_, Expected::Matches(_)) if length > MAX_MESSAGE_BYTES as u64 => {
                Err(format!("has {length} bytes, more than {MAX_MESSAGE_BYTES}").into())
            }
            (CheckState::Collecting(body), Expected::Matches(regex)) if !regex.is_match(&body) => {
                Err(body)
            }
            (CheckState::Hashing(context), Expected::Sha256(expected)) => {
                let found = context.finish();
                if found.as_ref() == expected {
                    return Ok(());
                }
                Err(format!("has the SHA-256 hash {}", hex(found.as_ref())).into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of `hello`.
    const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn check(expected: &str, body: &[u8], piece: usize) -> Result<(), String> {
        let expected: Expected = expected.parse().unwrap();
        let mut check = BodyCheck::new(&expected);
        body.chunks(piece).for_each(|bytes| check.take(&expected, bytes));
        check.finish(&expected).map_err(|found| String::from_utf8(found).unwrap())
    }

    #[test]
    fn expected_bodies_are_accepted_in_any_pieces() {
        let hash = format!("sha256:{HASH}");
        for expected in ["hello", "text:hello", "length:5", "regex:^h.l+o$", "regex:ell", &hash] {
            for piece in 1..6 {
                assert_eq!(check(expected, b"hello", piece), Ok(()), "{expected}");
            }
        }
        assert_eq!((check("", b"", 1), check("length:0", b"", 1)), (Ok(()), Ok(())));
    }

    #[test]
    fn other_bodies_are_described() {
        let hash = format!("sha256:{HASH}");
        for piece in 1..7 {
            for (expected, body, said) in [
                ("hello", "help!", "help"),
                ("hello", "hell", "hell"),
                ("hello", "hello!", "hello!"),
                ("length:5", "hello!", "has 6 bytes instead of 5"),
                ("regex:^el", "hello", "hello"),
                (&hash, "help", "has the SHA-256 hash "),
            ] {
                let found = check(expected, body.as_bytes(), piece).unwrap_err();
                assert!(found.starts_with(said), "{expected}: {found}");
            }
            assert!(check("hello", b"", 1).is_err() && check(&hash, b"", 1).is_err());
        }
    }

    #[test]
    fn invalid_expectation_says_what_to_write() {
        for (text, part) in [
            ("length:x", "write length:128"),
            ("regex:(", "is not a regular expression: unclosed group"),
            ("sha256:xyz", "64 hexadecimal digits"),
        ] {
            let error = text.parse::<Expected>().unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{text}: {error}");
        }
        assert_eq!("http://a".parse(), Ok(Expected::Text(b"http://a".to_vec())));
        assert_eq!("text:text:a".parse(), Ok(Expected::Text(b"text:a".to_vec())));
    }
}
