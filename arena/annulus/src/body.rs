//! Where the body of a request ends.

use crate::refusal::Refusal;
use httparse::Status;

/// Maximum number of bytes of a chunk's first line, which only extensions make long.
const MAX_CHUNK_LINE_BYTES: usize = 1 << 10;
/// Maximum number of header lines, and of their bytes, after the last chunk.
const MAX_TRAILERS: usize = 16;
const MAX_TRAILER_BYTES: usize = 4 << 10;

/// What is left of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// This many bytes.
    Length(u64),
    /// A chunk, from the line with its length.
    Chunk,
    /// This many bytes of a chunk, and further chunks.
    ChunkData(u64),
    /// The end of a chunk's last line, and further chunks.
    ChunkEnd,
    /// Header lines after the last chunk, and an empty line.
    Trailers,
}

impl Framing {
    pub(crate) fn is_done(self) -> bool {
        self == Self::Length(0)
    }

    /// Takes the next piece of the body. Returns its length and the content in it, or `None` if
    /// more bytes are needed.
    pub(crate) fn next<'a>(
        &mut self,
        received: &'a [u8],
    ) -> Result<Option<(usize, &'a [u8])>, Refusal> {
        let (Self::Length(left) | Self::ChunkData(left)) = self else {
            return Ok(self.line(received)?.map(|length| (length, &received[..0])));
        };
        let length = received.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= length as u64;
        if *self == Self::ChunkData(0) {
            *self = Self::ChunkEnd;
        }
        Ok((length > 0).then(|| (length, &received[..length])))
    }

    /// Takes a line around chunks. Returns its length.
    fn line(&mut self, received: &[u8]) -> Result<Option<usize>, Refusal> {
        let (length, next) = match (&*self, received) {
            (_, [] | b"\r") => return Ok(None),
            (Self::ChunkEnd, [b'\r', b'\n', ..]) => (2, Self::Chunk),
            (Self::ChunkEnd, _) => return Err(Refusal::BAD_REQUEST),
            (Self::Trailers, [b'\r', b'\n', ..]) => (2, Self::Length(0)),
            (Self::Trailers, _) => {
                let mut headers = [httparse::EMPTY_HEADER; MAX_TRAILERS];
                let shown = &received[..received.len().min(MAX_TRAILER_BYTES)];
                match httparse::parse_headers(shown, &mut headers) {
                    Ok(Status::Complete((length, _))) => (length, Self::Length(0)),
                    Ok(Status::Partial) if shown.len() < MAX_TRAILER_BYTES => return Ok(None),
                    _ => return Err(Refusal::BAD_REQUEST),
                }
            }
            // httparse takes a line without a digit for the last chunk.
            (_, [first, ..]) if !first.is_ascii_hexdigit() => return Err(Refusal::BAD_REQUEST),
            _ => {
                let shown = &received[..received.len().min(MAX_CHUNK_LINE_BYTES)];
                match httparse::parse_chunk_size(shown) {
                    // httparse allows a line feed in an extension. A proxy that ends the line there
                    // would take a part of the body for a request.
                    Ok(Status::Complete((length, _))) if shown[..length - 1].contains(&b'\n') => {
                        return Err(Refusal::BAD_REQUEST);
                    }
                    Ok(Status::Complete((length, 0))) => (length, Self::Trailers),
                    Ok(Status::Complete((length, size))) => (length, Self::ChunkData(size)),
                    Ok(Status::Partial) if shown.len() < MAX_CHUNK_LINE_BYTES => return Ok(None),
                    _ => return Err(Refusal::BAD_REQUEST),
                }
            }
        };
        *self = next;
        Ok(Some(length))
    }
}
