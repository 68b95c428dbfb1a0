//! Records of TLS as they are on the stream.

use annulus::net::TcpStream;
use std::io;
use std::task::{Context, Poll, ready};

/// Bytes in front of each: content type, version, length.
pub(super) const HEADER: usize = 5;
/// The most bytes behind the header, of any version: 16 KiB, and what encryption and compression may add.
const MOST: usize = 16 * 1024 + 2048;
/// Change of cipher, alert, handshake, data.
const TYPES: std::ops::RangeInclusive<u8> = 20..=23;

/// Waits for a whole record, and shows it; nothing is taken from the stream. `None` at its end, also in the middle of a record. Of what
/// cannot be a record only the header is shown.
pub(super) fn poll_record<'a>(
    stream: &'a mut TcpStream,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Option<&'a [u8]>>> {
    let shown = ready!(stream.poll_peek(cx, HEADER))?;
    let Some(len) = record_len(shown) else { return Poll::Ready(Ok(None)) };
    let shown = ready!(stream.poll_peek(cx, len))?;
    Poll::Ready(Ok(shown.get(..len)))
}

/// Bytes of the record that begins here; `None` if its header is not complete.
fn record_len(shown: &[u8]) -> Option<usize> {
    let header = shown.first_chunk::<HEADER>()?;
    let payload = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let is_record = TYPES.contains(&header[0]) && payload <= MOST;
    Some(if is_record { HEADER + payload } else { HEADER })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_record_is_not_waited_for() {
        assert_eq!(record_len(&[23, 3, 3, 1]), None);
        assert_eq!(record_len(&[23, 3, 3, 1, 2, 0]), Some(HEADER + 258));
        assert_eq!(record_len(b"GET / HTTP/1.1\r\n"), Some(HEADER));
        assert_eq!(record_len(&[23, 3, 3, 0xff, 0xff]), Some(HEADER));
    }
}
