//! Bytes up to a delimiter, or to the end of the stream.

use super::frame::above;
use super::recv::AsyncRecv;
use crate::bytes::lease::Lease;
use std::io::{self, BufRead, ErrorKind};

/// How many bytes there are up to a delimiter and with it; `None` if there is none.
fn find(delimiter: u8, bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    // Reading a slice cannot fail; the standard library looks at several bytes at once.
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
        let shown = from.peek(wanted).await?;
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
            len if len > limit => Err(above(&format!("a line of {len} bytes or more"), limit)),
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

/// The bytes as text.
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
    fn a_delimiter_is_counted() {
        let found = [&b""[..], b"\n", b"a", b"ab\nc\n", b"ab\n"].map(|bytes| find(b'\n', bytes));
        assert_eq!(found, [None, Some(1), None, Some(3), Some(3)]);
    }
}
