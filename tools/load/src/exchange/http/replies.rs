//! Splits the bytes of one connection into replies, in pieces of any size.

use super::head::{self, BodyFraming, HeadReader, MAX_HEAD_BYTES, ReplyHead, too_long};
use crate::exchange::partial::{Parsed, PartialInput};
use crate::fault::{Fault, FaultKind};
use httparse::Status;

/// The maximum length of the line with a chunk's size.
const MAX_CHUNK_LINE_BYTES: usize = 4096;
/// The maximum number of bytes of a malformed chunk that an error shows.
const MAX_SHOWN_BYTES: usize = 20;
/// The maximum number of interim replies (1xx) before one final reply.
const MAX_INTERIM_REPLIES: u32 = 32;

/// Where in a reply the next byte is.
#[derive(Clone, Copy, Debug)]
enum ReplyState {
    Head,
    /// In a body, with this many bytes left.
    Body(u64),
    UntilClose,
    ChunkSize,
    /// In a chunk, with this many bytes left.
    Chunk(u64),
    /// In the line ending after a chunk.
    ChunkEnd,
    Trailers,
}

#[derive(Debug)]
pub(super) struct ReplyParser {
    state: ReplyState,
    partial: PartialInput,
    status: u16,
    must_close: bool,
    /// Interim replies since the last final reply.
    interim: u32,
}

impl ReplyParser {
    pub(super) fn new() -> ReplyParser {
        let (state, partial) = (ReplyState::Head, PartialInput::default());
        ReplyParser { state, partial, status: 0, must_close: false, interim: 0 }
    }

    /// Returns true if the server closes the connection after the current reply, or after the last
    /// one if none has begun.
    pub(super) fn must_close(&self) -> bool {
        self.must_close
    }

    /// Returns the status of the current reply, or of the last one if none has begun.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Returns true while the parser is in a body that ends with the connection.
    pub(super) fn is_until_close(&self) -> bool {
        matches!(self.state, ReplyState::UntilClose)
    }

    /// Returns true if the next byte is the first of a reply.
    pub(super) fn is_between_replies(&self) -> bool {
        matches!(self.state, ReplyState::Head) && self.partial.len() == 0
    }

    /// Takes bytes up to the end of a reply. Returns how many it took, and the status once the
    /// reply is complete.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        heads: HeadReader<'_>,
    ) -> Result<(usize, Option<u16>), Fault> {
        let mut taken = 0;
        while taken < input.len() {
            let (count, complete) = self.step(&input[taken..], heads)?;
            taken += count;
            if complete {
                (self.state, self.interim) = (ReplyState::Head, 0);
                return Ok((taken, Some(self.status)));
            }
        }
        Ok((taken, None))
    }

    /// Handles the end of the connection. Returns the status of a reply that ends with the
    /// connection, and fails for any other reply. `is_to_head` says whether the reply answers a
    /// HEAD request.
    pub(super) fn on_close(&mut self, is_to_head: bool) -> Result<u16, Fault> {
        match self.state {
            ReplyState::Head => self.partial.check_rest(|bytes| head::parse(bytes, is_to_head))?,
            ReplyState::ChunkSize => self.partial.check_rest(chunk_size)?,
            ReplyState::Trailers => self.partial.check_rest(head::parse_trailers)?,
            _ => {}
        }
        let missing = match self.state {
            ReplyState::UntilClose => {
                self.state = ReplyState::Head;
                return Ok(self.status);
            }
            ReplyState::Head if self.partial.len() == 0 => "a reply".to_owned(),
            ReplyState::Head => {
                format!("the end of a head, after {} bytes", self.partial.len())
            }
            ReplyState::Body(left) => format!("{left} bytes of the body"),
            ReplyState::Chunk(left) => format!("{left} bytes of a chunk"),
            ReplyState::ChunkSize | ReplyState::ChunkEnd | ReplyState::Trailers => {
                "the last chunk".to_owned()
            }
        };
        Err(Fault::new(FaultKind::CLOSED_EARLY, format!("the server closed before {missing}")))
    }

    /// Takes the next part of a reply. Returns its length, and whether it completes the reply.
    fn step(&mut self, input: &[u8], heads: HeadReader<'_>) -> Result<(usize, bool), Fault> {
        match self.state {
            ReplyState::Head => self.head(input, heads),
            ReplyState::UntilClose => {
                heads.take_body(input);
                Ok((input.len(), false))
            }
            ReplyState::Body(left) => {
                let (taken, left) = skip(input, left);
                heads.take_body(&input[..taken]);
                self.state = ReplyState::Body(left);
                Ok((taken, left == 0))
            }
            ReplyState::Chunk(left) => {
                let (taken, left) = skip(input, left);
                heads.take_body(&input[..taken]);
                self.state = if left == 0 { ReplyState::ChunkEnd } else { ReplyState::Chunk(left) };
                Ok((taken, false))
            }
            ReplyState::ChunkSize => self.chunk_size(input),
            ReplyState::ChunkEnd => self.chunk_end(input),
            ReplyState::Trailers => {
                let too_long = || too_long("the trailers");
                let (taken, end) = self.partial.parse_lines(
                    input,
                    MAX_HEAD_BYTES,
                    head::parse_trailers,
                    too_long,
                )?;
                Ok((taken, end.is_some()))
            }
        }
    }

    fn head(&mut self, input: &[u8], heads: HeadReader<'_>) -> Result<(usize, bool), Fault> {
        let parse = |bytes: &[u8]| heads.parse(bytes);
        let (taken, head) =
            self.partial.parse_lines(input, MAX_HEAD_BYTES, parse, || too_long("a head"))?;
        let Some(ReplyHead { status, body, must_close }) = head else { return Ok((taken, false)) };
        if status < 200 {
            self.count_interim(status)?;
            return Ok((taken, false));
        }
        (self.status, self.must_close) = (status, must_close);
        self.state = match body {
            BodyFraming::Length(length) => ReplyState::Body(length),
            BodyFraming::Chunked => ReplyState::ChunkSize,
            BodyFraming::UntilClose => ReplyState::UntilClose,
        };
        Ok((taken, body == BodyFraming::Length(0)))
    }

    fn count_interim(&mut self, status: u16) -> Result<(), Fault> {
        if status == 101 {
            let text = "the server switched to another protocol (status 101), which the load does not speak";
            return Err(Fault::new(FaultKind::MALFORMED, text));
        }
        self.interim += 1;
        if self.interim > MAX_INTERIM_REPLIES {
            let text = format!(
                "more than {MAX_INTERIM_REPLIES} interim replies (status {status}) to one request"
            );
            return Err(Fault::new(FaultKind::ENDLESS_HEAD, text));
        }
        Ok(())
    }

    fn chunk_size(&mut self, input: &[u8]) -> Result<(usize, bool), Fault> {
        let too_long = || {
            chunk_fault(format!(
                "the line with a chunk's size is longer than {MAX_CHUNK_LINE_BYTES} bytes"
            ))
        };
        let (taken, size) =
            self.partial.parse_lines(input, MAX_CHUNK_LINE_BYTES, chunk_size, too_long)?;
        match size {
            None => {}
            Some(0) => self.state = ReplyState::Trailers,
            Some(size) => self.state = ReplyState::Chunk(size),
        }
        Ok((taken, false))
    }

    fn chunk_end(&mut self, input: &[u8]) -> Result<(usize, bool), Fault> {
        let (taken, end) = self.partial.parse(input, 2, chunk_end, || missing_chunk_end(input))?;
        if end.is_some() {
            self.state = ReplyState::ChunkSize;
        }
        Ok((taken, false))
    }
}

/// Returns how many of the next `left` bytes are in `input`, and how many are still missing.
fn skip(input: &[u8], left: u64) -> (usize, u64) {
    let taken = usize::try_from(left).map_or(input.len(), |left| input.len().min(left));
    (taken, left - taken as u64)
}

fn chunk_size(bytes: &[u8]) -> Parsed<u64> {
    let wrong = || {
        let shown = bytes[..bytes.len().min(MAX_SHOWN_BYTES)].escape_ascii();
        chunk_fault(format!("\"{shown}\" is not the size of a chunk"))
    };
    // httparse would accept an empty line as a size of zero.
    if bytes.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    match httparse::parse_chunk_size(bytes) {
        // httparse would accept a line feed in an extension.
        Ok(Status::Complete((length, _))) if bytes[..length - 1].contains(&b'\n') => Err(wrong()),
        Ok(Status::Complete(line)) => Ok(Some(line)),
        Ok(Status::Partial) => Ok(None),
        Err(_) => Err(wrong()),
    }
}

fn chunk_end(bytes: &[u8]) -> Parsed<()> {
    match bytes {
        [b'\r', b'\n', ..] => Ok(Some((2, ()))),
        [] | [b'\r'] => Ok(None),
        _ => Err(missing_chunk_end(bytes)),
    }
}

#[cold]
fn missing_chunk_end(bytes: &[u8]) -> Fault {
    let shown = bytes[..bytes.len().min(MAX_SHOWN_BYTES)].escape_ascii();
    chunk_fault(format!("a chunk is longer than its size: \"{shown}\" follows it"))
}

#[cold]
fn chunk_fault(what: String) -> Fault {
    Fault::new(FaultKind::CHUNK, what)
}
