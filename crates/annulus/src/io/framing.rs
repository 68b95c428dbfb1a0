//! Splitting a stream into frames (by length), parts (by a delimiter or the end of the stream) and
//! lines of text.

use super::recv::AsyncRecv;
use crate::bytes::lease::Lease;
use std::io::{self, BufRead, ErrorKind};

/// What the shown bytes say about the next frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The stream has ended, and no frame has started.
    End,
    /// More bytes are needed to find the length.
    Unknown,
    /// The length of the frame, which may not have arrived completely.
    Of(usize),
}

/// Determines the next frame: calls `length` with the shown bytes. Fewer than `wanted` bytes are
/// shown only if the stream ends after them.
///
/// # Errors
/// The errors of [`AsyncRecv::read_frame`](super::AsyncRecv::read_frame).
pub(super) fn check_frame(
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
        None if there >= limit => {
            Err(above(&format!("a frame of unknown length, with {there} bytes so far,"), limit))
        }
        None => Ok(Frame::Unknown),
    }
}

pub(super) fn above(what: &str, limit: usize) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{what} is above the limit of {limit}"))
}

/// Lines of text without their `\n` or `\r\n`, created by [`AsyncRecv::lines`].
///
/// ```
/// use annulus::io::AsyncRecv;
///
/// # annulus::run(async {
/// let mut lines = b"one\r\ntwo\n\nno end"[..].lines(80);
/// while let Some(line) = lines.next_line().await? {
///     println!("{line}");
/// }
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    limit: usize,
}

impl<R: AsyncRecv> Lines<R> {
    pub(super) fn new(from: R, limit: usize) -> Self {
        Self { from, limit }
    }

    /// Returns the next line, or `None` at the end of the stream. The last line need not end with
    /// `\n`.
    ///
    /// Cancel-safe: nothing is consumed until the whole line has arrived.
    ///
    /// # Errors
    /// Errors from receiving. `InvalidData` for a line that is longer than the limit: the line
    /// stays in the stream, and [`skip_until`](AsyncRecv::skip_until) skips it. `InvalidData` also
    /// for a line that is not UTF-8: the next call continues after that line.
    pub async fn next_line(&mut self) -> io::Result<Option<String>> {
        let Some(bytes) = self.from.recv_until(b'\n', self.limit).await? else { return Ok(None) };
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let line =
            if line.len() < bytes.len() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        text(line).map(|line| Some(line.to_owned()))
    }

    /// Returns the underlying stream.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.from
    }

    /// Returns the underlying stream. Bytes that were not returned are still in it.
    pub fn into_inner(self) -> R {
        self.from
    }
}

/// Returns the number of bytes up to and including the delimiter, or `None` if it does not occur.
fn find(delimiter: u8, bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    // Reading a slice cannot fail. The standard library searches several bytes at a time.
    let count = BufRead::skip_until(&mut rest, delimiter).unwrap_or_default();
    (count > 0 && bytes[count - 1] == delimiter).then_some(count)
}

pub(super) async fn recv_until(
    from: &mut impl AsyncRecv,
    delimiter: u8,
    limit: usize,
) -> io::Result<Option<Lease>> {
    let mut searched = 0;
    loop {
        let wanted = searched + 1;
        let shown = from.fill_at_least(wanted).await?;
        let len = match find(delimiter, &shown[searched..]) {
            Some(count) => searched + count,
            None if shown.len() > limit => shown.len(),
            None if shown.len() < wanted => shown.len(),
            None => {
                searched = shown.len();
                continue;
            }
        };
        return match len {
            0 => Ok(None),
            len if len > limit => {
                let what = if delimiter == b'\n' { "a line" } else { "a part" };
                Err(above(&format!("{what} of {len} bytes or more"), limit))
            }
            len => from.recv_exact(len).await.map(Some),
        };
    }
}

pub(super) async fn read_until(
    from: &mut impl AsyncRecv,
    delimiter: u8,
    buf: &mut Vec<u8>,
    limit: usize,
) -> io::Result<usize> {
    let mut total = 0;
    loop {
        let shown = from.fill_buf().await?;
        let found = find(delimiter, shown);
        let count = found.unwrap_or(shown.len());
        if count > limit - total {
            return Err(above(&format!("a part of {} bytes or more", total + count), limit));
        }
        buf.extend_from_slice(&shown[..count]);
        from.consume(count);
        total += count;
        if found.is_some() || count == 0 {
            return Ok(total);
        }
    }
}

pub(super) async fn read_line(
    from: &mut impl AsyncRecv,
    line: &mut String,
    limit: usize,
) -> io::Result<usize> {
    let Some(bytes) = recv_until(from, b'\n', limit).await? else { return Ok(0) };
    line.push_str(text(&bytes)?);
    Ok(bytes.len())
}

pub(super) fn text(bytes: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let text = format!("a line of {} bytes is not UTF-8: {error}", bytes.len());
        io::Error::new(ErrorKind::InvalidData, text)
    })
}

pub(super) async fn read_to_end(
    from: &mut impl AsyncRecv,
    buf: &mut Vec<u8>,
    limit: usize,
) -> io::Result<usize> {
    let mut total = 0;
    loop {
        let shown = from.fill_buf().await?;
        let count = shown.len().min(limit - total);
        if shown.is_empty() {
            return Ok(total);
        }
        if count == 0 {
            return Err(above(
                &format!("a stream of {} bytes or more", total + shown.len()),
                limit,
            ));
        }
        buf.extend_from_slice(&shown[..count]);
        from.consume(count);
        total += count;
    }
}

pub(super) async fn skip_until(from: &mut impl AsyncRecv, delimiter: u8) -> io::Result<usize> {
    let mut total = 0;
    loop {
        let shown = from.fill_buf().await?;
        let found = find(delimiter, shown);
        let count = found.unwrap_or(shown.len());
        from.consume(count);
        total += count;
        if found.is_some() || count == 0 {
            return Ok(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn find_counts_the_delimiter() {
        let found = [&b""[..], b"\n", b"a", b"ab\nc\n", b"ab\n"].map(|bytes| find(b'\n', bytes));
        assert_eq!(found, [None, Some(1), None, Some(3), Some(3)]);
    }
}
