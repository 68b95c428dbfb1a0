//! Entry points for the fuzz targets into private code. Not part of the public interface.

use crate::datagrams::payload::DatagramPayload;
use crate::payload::Payload;

/// Verifies `bytes` as an echo: as a datagram, and as a stream in pieces. The first byte selects the client and the
/// length of the pieces.
pub fn echo(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let (client, length) = (usize::from(first >> 4), bytes.len());
    let datagrams = DatagramPayload::new(1, client, length);
    if let Ok(number) = datagrams.read(bytes) {
        let mut sent = Vec::new();
        datagrams.write(number.unwrap_or_default(), &mut sent);
        assert_eq!(sent, bytes, "only a datagram that was sent is accepted");
    }
    let mut whole = Payload::new(1, client, length);
    let at_once = whole.check(bytes);
    let mut pieces = Payload::new(1, client, length);
    let size = usize::from(first & 15) + 1;
    let mut checked = 0;
    let found = bytes.chunks(size).find_map(|piece| {
        let wrong = pieces.check(piece).err().map(|at| checked + at);
        checked += piece.len();
        wrong
    });
    assert_eq!(at_once.err(), found, "the same result in pieces");
}
