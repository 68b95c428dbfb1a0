//! Entry points for the fuzz targets into private code. Not part of the public interface.

use crate::datagrams::payload::DatagramPayload;
use crate::payload::Payload;
use crate::recording::{Alignment, CsvLog, Recording, merge};

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

/// Reads `bytes` as a recording. If they are one, it is written so that the same is read, and can be merged with another.
pub fn recording(bytes: &[u8]) {
    let recording = match Recording::read(bytes) {
        Ok(recording) => recording,
        Err(error) => return assert_eq!(error.to_string().lines().count(), 1, "not one line"),
    };
    let mut text = Vec::new();
    recording.write(&mut text).expect("memory can be written to");
    let again = Recording::read(&text[..]).expect("what was written can be read");
    assert_eq!(again, recording, "what was written is what is read");
    let mut rows = CsvLog::new(Vec::new()).expect("memory can be written to");
    recording.intervals.iter().for_each(|interval| rows.write(interval).expect("as above"));
    let mut other = recording.clone();
    other.run.machine.host.push('2');
    let both = [("one".to_owned(), recording), ("other".to_owned(), other)];
    if let Ok(merged) = merge(&both, Alignment::Starts) {
        let mut sum = both[0].1.total().response;
        sum.add(&both[1].1.total().response);
        assert_eq!(merged.total().response, sum, "merging adds");
    }
}
