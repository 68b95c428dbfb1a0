//! The replies of one connection, from any pieces.

use super::Framing;
use crate::exchange::kept::Kept;
use crate::fault::{Fault, Kind};
use crate::fault_log::FirstRefusal;
use crate::mix::MAX_LENGTH;
use memchr::memmem;

/// Splits the bytes of a connection into replies, and compares them with what is expected.
#[derive(Debug, Default)]
pub(super) struct Replies {
    kept: Kept,
    /// Bytes of what is kept that were searched for the delimiter.
    searched: usize,
    /// The reply that has begun, if its length is known.
    begun: Option<Begun>,
}

/// A reply of known length.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// Bytes that are missing.
    missing: u64,
    /// Bytes that have come, as long as they are the expected ones.
    matching: Option<usize>,
}

impl Replies {
    /// Takes bytes up to the end of a reply; returns their number, and, once it is complete, whether it is the expected one.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        framing: &Framing,
        expected: Option<&[u8]>,
        refusal: &FirstRefusal,
    ) -> Result<(usize, Option<bool>), Fault> {
        match framing {
            Framing::Delimiter(delimiter) => self.delimited(input, delimiter, expected, refusal),
            Framing::Fixed(length) => {
                self.begun.get_or_insert_with(|| Begun::new(*length as u64));
                Ok(self.rest(input, expected, refusal))
            }
            Framing::LengthField(field) => {
                if self.begun.is_some() {
                    return Ok(self.rest(input, expected, refusal));
                }
                let parse = |bytes: &[u8]| {
                    let Some(head) = bytes.get(..field.end()) else { return Ok(None) };
                    let missing = field.rest(head).ok_or_else(|| wrong_length(head))?;
                    let mut begun = Begun::new(missing);
                    begun.compare(head, expected, refusal);
                    Ok(Some((head.len(), begun)))
                };
                let (taken, begun) = self.kept.parse(input, field.end(), parse, || too_long(0))?;
                let Some(begun) = begun else { return Ok((taken, None)) };
                if begun.missing > MAX_LENGTH as u64 {
                    return Err(too_long(begun.missing));
                }
                self.begun = Some(begun);
                let (more, is_expected) = self.rest(&input[taken..], expected, refusal);
                Ok((taken + more, is_expected))
            }
        }
    }

    /// The connection has ended.
    pub(super) fn closed(&self) -> Result<(), Fault> {
        let missing = match self.begun {
            Some(begun) => format!("{} bytes of a reply", begun.missing),
            None if self.kept.len() > 0 => "the end of a reply".to_owned(),
            None => return Ok(()),
        };
        Err(Fault::new(Kind::CLOSED_EARLY, format!("the server closed before {missing}")))
    }

    fn delimited(
        &mut self,
        input: &[u8],
        delimiter: &[u8],
        expected: Option<&[u8]>,
        refusal: &FirstRefusal,
    ) -> Result<(usize, Option<bool>), Fault> {
        let searched = &mut self.searched;
        let parse = |bytes: &[u8]| {
            let from = searched.saturating_sub(delimiter.len() - 1);
            *searched = bytes.len();
            let Some(at) = memmem::find(&bytes[from..], delimiter) else { return Ok(None) };
            *searched = 0;
            let reply = &bytes[..from + at + delimiter.len()];
            let is_expected = expected.is_none_or(|expected| reply == expected);
            if !is_expected {
                refusal.note(|| reply);
            }
            Ok(Some((reply.len(), is_expected)))
        };
        self.kept.parse(input, MAX_LENGTH, parse, || too_long(MAX_LENGTH as u64 + 1))
    }

    /// Takes what has come of a reply whose length is known.
    fn rest(
        &mut self,
        input: &[u8],
        expected: Option<&[u8]>,
        refusal: &FirstRefusal,
    ) -> (usize, Option<bool>) {
        let Some(begun) = &mut self.begun else { return (0, None) };
        let taken =
            usize::try_from(begun.missing).map_or(input.len(), |missing| input.len().min(missing));
        begun.missing -= taken as u64;
        begun.compare(&input[..taken], expected, refusal);
        if begun.missing > 0 {
            return (taken, None);
        }
        let is_expected = begun.is_expected(expected);
        self.begun = None;
        (taken, Some(is_expected))
    }
}

impl Begun {
    fn new(missing: u64) -> Begun {
        Begun { missing, matching: Some(0) }
    }

    /// Compares the next bytes. The text of a reply that is not as expected is what is as expected in front, and the piece that is not.
    fn compare(&mut self, bytes: &[u8], expected: Option<&[u8]>, refusal: &FirstRefusal) {
        let Some((expected, at)) = expected.zip(self.matching) else { return };
        let is_same = expected.get(at..).is_some_and(|expected| expected.starts_with(bytes));
        self.matching = is_same.then_some(at + bytes.len());
        let is_short = self.missing == 0 && at + bytes.len() < expected.len();
        if !is_same || is_short {
            refusal.note(|| [&expected[..at], bytes].concat());
        }
    }

    fn is_expected(&self, expected: Option<&[u8]>) -> bool {
        expected.is_none_or(|expected| self.matching == Some(expected.len()))
    }
}

/// Whether these bytes are exactly one reply.
pub(super) fn whole(framing: &Framing, bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && matches!(Replies::default().take(bytes, framing, None, &FirstRefusal::default()), Ok((taken, Some(_))) if taken == bytes.len())
}

#[cold]
fn too_long(missing: u64) -> Fault {
    Fault::new(
        Kind::TOO_LONG,
        format!("a reply of {missing} bytes or more: at most {MAX_LENGTH} are read"),
    )
}

#[cold]
fn wrong_length(head: &[u8]) -> Fault {
    let shown = head.escape_ascii();
    Fault::new(
        Kind::WRONG_LENGTH,
        format!("a reply begins with \"{shown}\", whose length is below 0"),
    )
}
