use super::Framing;
use crate::exchange::partial::PartialInput;
use crate::fault::FirstRefusal;
use crate::fault::{Fault, FaultKind};
use crate::mix::MAX_MESSAGE_BYTES;
use memchr::memmem;

/// Splits the bytes of a connection into replies, and compares them with the expected ones.
#[derive(Debug, Default)]
pub(super) struct ReplyParser {
    partial: PartialInput,
    /// Number of buffered bytes that have been searched for the delimiter.
    searched: usize,
    /// The current reply, if its length is known.
    reply: Option<PartialReply>,
}

#[derive(Clone, Copy, Debug)]
struct PartialReply {
    /// Number of missing bytes.
    missing: u64,
    /// Number of received bytes while they match the expected reply; `None` after a difference.
    matching: Option<usize>,
}

impl ReplyParser {
    /// Takes bytes up to the end of a reply. Returns how many it took, and, once the reply is
    /// complete, whether it is the expected one.
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
                self.reply.get_or_insert_with(|| PartialReply::new(*length as u64));
                Ok(self.rest(input, expected, refusal))
            }
            Framing::LengthField(field) => {
                if self.reply.is_some() {
                    return Ok(self.rest(input, expected, refusal));
                }
                let parse = |bytes: &[u8]| {
                    let Some(head) = bytes.get(..field.end()) else { return Ok(None) };
                    let missing = field.rest(head).ok_or_else(|| wrong_length(head))?;
                    let mut reply = PartialReply::new(missing);
                    reply.compare(head, expected, refusal);
                    Ok(Some((head.len(), reply)))
                };
                let (taken, reply) =
                    self.partial.parse(input, field.end(), parse, || too_long(0))?;
                let Some(reply) = reply else { return Ok((taken, None)) };
                if reply.missing > MAX_MESSAGE_BYTES as u64 {
                    return Err(too_long(reply.missing));
                }
                self.reply = Some(reply);
                let (more, is_expected) = self.rest(&input[taken..], expected, refusal);
                Ok((taken + more, is_expected))
            }
        }
    }

    /// Handles the end of the connection: fails if a reply is incomplete.
    pub(super) fn on_close(&self) -> Result<(), Fault> {
        let missing = match self.reply {
            Some(reply) => format!("{} bytes of a reply", reply.missing),
            None if self.partial.len() > 0 => "the end of a reply".to_owned(),
            None => return Ok(()),
        };
        Err(Fault::new(FaultKind::CLOSED_EARLY, format!("the server closed before {missing}")))
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
                refusal.record(|| reply);
            }
            Ok(Some((reply.len(), is_expected)))
        };
        self.partial
            .parse(input, MAX_MESSAGE_BYTES, parse, || too_long(MAX_MESSAGE_BYTES as u64 + 1))
    }

    /// Takes bytes of a reply whose length is known.
    fn rest(
        &mut self,
        input: &[u8],
        expected: Option<&[u8]>,
        refusal: &FirstRefusal,
    ) -> (usize, Option<bool>) {
        let Some(reply) = &mut self.reply else { return (0, None) };
        let taken =
            usize::try_from(reply.missing).map_or(input.len(), |missing| input.len().min(missing));
        reply.missing -= taken as u64;
        reply.compare(&input[..taken], expected, refusal);
        if reply.missing > 0 {
            return (taken, None);
        }
        let is_expected = reply.is_expected(expected);
        self.reply = None;
        (taken, Some(is_expected))
    }
}

impl PartialReply {
    fn new(missing: u64) -> PartialReply {
        PartialReply { missing, matching: Some(0) }
    }

    /// Compares the next bytes with the expected reply. If they differ, records the matching bytes
    /// and the piece that differs.
    fn compare(&mut self, bytes: &[u8], expected: Option<&[u8]>, refusal: &FirstRefusal) {
        let Some((expected, at)) = expected.zip(self.matching) else { return };
        let is_same = expected.get(at..).is_some_and(|expected| expected.starts_with(bytes));
        self.matching = is_same.then_some(at + bytes.len());
        let is_short = self.missing == 0 && at + bytes.len() < expected.len();
        if !is_same || is_short {
            refusal.record(|| [&expected[..at], bytes].concat());
        }
    }

    fn is_expected(&self, expected: Option<&[u8]>) -> bool {
        expected.is_none_or(|expected| self.matching == Some(expected.len()))
    }
}

pub(super) fn is_exactly_one_reply(framing: &Framing, bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && matches!(ReplyParser::default().take(bytes, framing, None, &FirstRefusal::default()), Ok((taken, Some(_))) if taken == bytes.len())
}

#[cold]
fn too_long(missing: u64) -> Fault {
    Fault::new(
        FaultKind::TOO_LONG,
        format!("a reply has at least {missing} bytes, but the limit is {MAX_MESSAGE_BYTES}"),
    )
}

#[cold]
fn wrong_length(head: &[u8]) -> Fault {
    let shown = head.escape_ascii();
    Fault::new(
        FaultKind::WRONG_LENGTH,
        format!("a reply starts with \"{shown}\", which is a length below 0"),
    )
}
