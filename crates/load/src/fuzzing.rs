//! Entry points of the fuzz targets to what is private here. They are no part of the crate's promises.

use crate::datagrams::payload::DatagramPayload;
use crate::payload::Payload;

/// Verifies `bytes` as what came back: as a datagram, and as a stream in pieces. The first byte tells which client's they
/// are taken for and how long the pieces are.
pub fn echo(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let (client, length) = (usize::from(first >> 4), bytes.len());
    let datagrams = DatagramPayload::new(1, client, length);
    if let Ok(number) = datagrams.read(bytes) {
        let mut sent = Vec::new();
        datagrams.write(number.unwrap_or_default(), &mut sent);
        assert_eq!(sent, bytes, "only what was sent is taken for it");
    }
    let mut whole = Payload::new(1, client, length);
    let told = whole.check(bytes);
    let mut pieces = Payload::new(1, client, length);
    let size = usize::from(first & 15) + 1;
    let mut checked = 0;
    let found = bytes.chunks(size).find_map(|piece| {
        let wrong = pieces.check(piece).err().map(|at| checked + at);
        checked += piece.len();
        wrong
    });
    assert_eq!(told.err(), found, "pieces change nothing");
}
