//! The replies of one connection, from any pieces.

use super::head::{self, Body, Head, HeadReader, MAX_HEAD, too_long};
use crate::exchange::kept::{Kept, Parsed};
use crate::fault::{Fault, Kind};
use httparse::Status;

/// Most bytes of the line with a chunk's size.
const MAX_CHUNK_LINE: usize = 4096;
/// Most interim replies (1xx) in front of one reply.
const MAX_INTERIM: u32 = 32;

/// Where in a reply the next byte is.
#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    /// In a body with so many bytes left.
    Body(u64),
    UntilClose,
    ChunkSize,
    /// In a chunk with so many bytes left.
    Chunk(u64),
    /// In the line end behind a chunk.
    ChunkEnd,
    Trailers,
}

/// Splits the bytes of a connection into replies.
#[derive(Debug)]
pub(super) struct Replies {
    state: State,
    kept: Kept,
    status: u16,
    is_last: bool,
    /// Interim replies since the last reply.
    interim: u32,
}

impl Replies {
    pub(super) fn new() -> Replies {
        let (state, kept) = (State::Head, Kept::default());
        Replies { state, kept, status: 0, is_last: false, interim: 0 }
    }

    /// Whether the server closes the connection behind the reply that came last, or that has begun.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Whether the next byte is the first one of a reply.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.state, State::Head) && self.kept.len() == 0
    }

    /// Takes bytes up to the end of a reply; returns their number, and the status once the reply is complete.
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
                (self.state, self.interim) = (State::Head, 0);
                return Ok((taken, Some(self.status)));
            }
        }
        Ok((taken, None))
    }

    /// The connection has ended: completes a reply that ends so. `to_head` says whether it is one to HEAD.
    pub(super) fn closed(&mut self, to_head: bool) -> Result<u16, Fault> {
        match self.state {
            State::Head => self.kept.look(|bytes| head::parse(bytes, to_head))?,
            State::ChunkSize => self.kept.look(chunk_size)?,
            State::Trailers => self.kept.look(head::parse_trailers)?,
            _ => {}
        }
        let missing = match self.state {
            State::UntilClose => {
                self.state = State::Head;
                return Ok(self.status);
            }
            State::Head if self.kept.len() == 0 => "a reply".to_owned(),
            State::Head => format!("the end of a head, of which {} bytes came", self.kept.len()),
            State::Body(left) => format!("{left} bytes of the body"),
            State::Chunk(left) => format!("{left} bytes of a chunk"),
            State::ChunkSize | State::ChunkEnd | State::Trailers => "the last chunk".to_owned(),
        };
        Err(Fault::new(Kind::CLOSED_EARLY, format!("the server closed before {missing}")))
    }

    /// Takes the next part of a reply; returns its length, and whether it completes the reply.
    fn step(&mut self, input: &[u8], heads: HeadReader<'_>) -> Result<(usize, bool), Fault> {
        match self.state {
            State::Head => self.head(input, heads),
            State::UntilClose => Ok((input.len(), false)),
            State::Body(left) => {
                let (taken, left) = skip(input, left);
                self.state = State::Body(left);
                Ok((taken, left == 0))
            }
            State::Chunk(left) => {
                let (taken, left) = skip(input, left);
                self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                Ok((taken, false))
            }
            State::ChunkSize => self.chunk_size(input),
            State::ChunkEnd => self.chunk_end(input),
            State::Trailers => {
                let too_long = || too_long("the trailers");
                let (taken, end) =
                    self.kept.parse_lines(input, MAX_HEAD, head::parse_trailers, too_long)?;
                Ok((taken, end.is_some()))
            }
        }
    }

    fn head(&mut self, input: &[u8], heads: HeadReader<'_>) -> Result<(usize, bool), Fault> {
        let parse = |bytes: &[u8]| heads.parse(bytes);
        let (taken, head) = self.kept.parse_lines(input, MAX_HEAD, parse, || too_long("a head"))?;
        let Some(Head { status, body, is_last }) = head else { return Ok((taken, false)) };
        if status < 200 {
            self.note_interim(status)?;
            return Ok((taken, false));
        }
        (self.status, self.is_last) = (status, is_last);
        self.state = match body {
            Body::Length(length) => State::Body(length),
            Body::Chunked => State::ChunkSize,
            Body::UntilClose => State::UntilClose,
        };
        Ok((taken, body == Body::Length(0)))
    }

    fn note_interim(&mut self, status: u16) -> Result<(), Fault> {
        if status == 101 {
            let text = "the server switched to another protocol, which no request asked for";
            return Err(Fault::new(Kind::MALFORMED, text));
        }
        self.interim += 1;
        if self.interim > MAX_INTERIM {
            let text =
                format!("more than {MAX_INTERIM} interim replies (status {status}) to one request");
            return Err(Fault::new(Kind::ENDLESS_HEAD, text));
        }
        Ok(())
    }

    fn chunk_size(&mut self, input: &[u8]) -> Result<(usize, bool), Fault> {
        let too_long = || chunk(format!("a line with a size of over {MAX_CHUNK_LINE} bytes"));
        let (taken, size) = self.kept.parse_lines(input, MAX_CHUNK_LINE, chunk_size, too_long)?;
        match size {
            None => {}
            Some(0) => self.state = State::Trailers,
            Some(size) => self.state = State::Chunk(size),
        }
        Ok((taken, false))
    }

    fn chunk_end(&mut self, input: &[u8]) -> Result<(usize, bool), Fault> {
        let (taken, end) = self.kept.parse(input, 2, chunk_end, no_chunk_end)?;
        if end.is_some() {
            self.state = State::ChunkSize;
        }
        Ok((taken, false))
    }
}

/// How many bytes of a part are there, and how many are left.
fn skip(input: &[u8], left: u64) -> (usize, u64) {
    let taken = usize::try_from(left).map_or(input.len(), |left| input.len().min(left));
    (taken, left - taken as u64)
}

/// The size of a chunk, with its line.
fn chunk_size(bytes: &[u8]) -> Parsed<u64> {
    let wrong = || {
        let shown = bytes[..bytes.len().min(20)].escape_ascii();
        chunk(format!("\"{shown}\" in place of the size of a chunk"))
    };
    // httparse takes an empty line for a size of zero.
    if bytes.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    match httparse::parse_chunk_size(bytes) {
        Ok(Status::Complete(line)) => Ok(Some(line)),
        Ok(Status::Partial) => Ok(None),
        Err(_) => Err(wrong()),
    }
}

/// The line end behind a chunk.
fn chunk_end(bytes: &[u8]) -> Parsed<()> {
    match bytes {
        [b'\r', b'\n', ..] => Ok(Some((2, ()))),
        [] | [b'\r'] => Ok(None),
        _ => Err(no_chunk_end()),
    }
}

#[cold]
fn no_chunk_end() -> Fault {
    chunk("a chunk is longer than its size".to_owned())
}

#[cold]
fn chunk(what: String) -> Fault {
    Fault::new(Kind::CHUNK, what)
}
