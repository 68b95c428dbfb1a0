//! The length of a frame, from its first bytes.

pub(crate) use crate::net::ended;
use std::io::{self, ErrorKind};

/// The next frame, as far as the bytes that are shown determine it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The stream has ended before a frame.
    End,
    /// More bytes are needed to find the length.
    Unknown,
    /// The length of the frame, of which all or a part is there.
    Of(usize),
}

/// Asks `length` about the bytes that are shown; fewer than `wanted` are the last of the stream.
///
/// # Errors
/// See [`AsyncRecv::read_frame`](super::AsyncRecv::read_frame).
pub(super) fn check(
    shown: &[u8],
    wanted: usize,
    limit: usize,
    length: &mut dyn FnMut(&[u8]) -> io::Result<Option<usize>>,
) -> io::Result<Frame> {
    let there = shown.len();
    if there == 0 {
        return Ok(Frame::End);
    }
    if there < wanted {
        let text = format!("the stream ended after {there} bytes of a frame");
        return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
    }
    match length(shown)? {
        Some(0) => {
            let text = "a frame of 0 bytes: its length counts all of its bytes, header included";
            Err(io::Error::new(ErrorKind::InvalidInput, text))
        }
        Some(len) if len > limit => Err(above(&format!("a frame of {len} bytes"), limit)),
        Some(len) => Ok(Frame::Of(len)),
        None if there >= limit => Err(above(
            &format!("a frame of unknown length, of which {there} bytes have come,"),
            limit,
        )),
        None => Ok(Frame::Unknown),
    }
}

/// More came than the limit allows.
pub(super) fn above(what: &str, limit: usize) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{what} is above the limit of {limit}"))
}
