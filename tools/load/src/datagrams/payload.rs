//! The content of datagrams: a number if it fits, then bytes that depend on the number.

use crate::payload::Payload;

/// Length of a datagram's number. Shorter datagrams have no number, and their echoes are matched in
/// order.
pub(crate) const NUMBER_BYTES: usize = 8;

/// The distance in bytes between the starts of two consecutive datagrams in the payload.
const DATAGRAM_STEP: u64 = 17_911;

/// The content of one client's datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramPayload {
    payload: Payload,
    length: usize,
}

/// How an echo differs from the datagram that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The echo has this many bytes.
    Length(usize),
    /// The byte at this position is wrong.
    Byte(usize),
}

impl DatagramPayload {
    pub(crate) fn new(seed: u64, client: usize, length: usize) -> DatagramPayload {
        DatagramPayload { payload: Payload::new(seed, client, length), length }
    }

    pub(crate) fn is_numbered(&self) -> bool {
        self.length >= NUMBER_BYTES
    }

    /// Appends the datagram with this number to `bytes`.
    pub(crate) fn write(&self, number: u64, bytes: &mut Vec<u8>) {
        let (mut rest, mut text) = (self.length, 0);
        if self.is_numbered() {
            bytes.extend_from_slice(&number.to_le_bytes());
            (rest, text) = (rest - NUMBER_BYTES, number);
        }
        bytes.extend_from_slice(self.body(text, rest));
    }

    /// Returns the number of an echo, if it contains one.
    ///
    /// # Errors
    /// Fails if the bytes match no datagram.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Option<u64>, Mismatch> {
        if bytes.len() != self.length {
            return Err(Mismatch::Length(bytes.len()));
        }
        let head = bytes.first_chunk::<NUMBER_BYTES>().map(|head| u64::from_le_bytes(*head));
        let body = &bytes[if head.is_some() { NUMBER_BYTES } else { 0 }..];
        let expected = self.body(head.unwrap_or(0), body.len());
        if body == expected {
            return Ok(head);
        }
        let same = body.iter().zip(expected).take_while(|(a, b)| a == b).count();
        Err(Mismatch::Byte(bytes.len() - body.len() + same))
    }

    /// Returns the bytes that follow the number. A datagram is never longer than the longest slice
    /// of the payload.
    fn body(&self, number: u64, length: usize) -> &'static [u8] {
        let mut payload = self.payload;
        // The modulus is 2³² − 1, so that every bit of the number has an effect.
        payload.advance((number % u64::from(u32::MAX) * DATAGRAM_STEP) as usize);
        payload.piece(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(payload: DatagramPayload, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        payload.write(number, &mut bytes);
        bytes
    }

    #[test]
    fn datagram_round_trips() {
        for length in [1, 7, 8, 9, 128, 65_507] {
            let payload = DatagramPayload::new(1, 3, length);
            for number in [0, 1, 65_521, u64::MAX] {
                let bytes = written(payload, number);
                assert_eq!(bytes.len(), length);
                let expected = (length >= NUMBER_BYTES).then_some(number);
                assert_eq!(payload.read(&bytes), Ok(expected), "{length} bytes, number {number}");
            }
        }
    }

    #[test]
    fn datagram_read_detects_every_wrong_byte() {
        let payload = DatagramPayload::new(1, 3, 100);
        for at in 0..100 {
            let mut bytes = written(payload, 5);
            bytes[at] ^= 1;
            // A wrong number does not match the bytes that follow it.
            let mismatch = payload.read(&bytes).unwrap_err();
            assert!(at < NUMBER_BYTES || mismatch == Mismatch::Byte(at), "byte {at}: {mismatch:?}");
        }
        assert_eq!(payload.read(&written(payload, 5)[..99]), Err(Mismatch::Length(99)));
        assert_eq!(payload.read(&[]), Err(Mismatch::Length(0)));
    }

    #[test]
    fn clients_send_different_bytes() {
        let datagrams: Vec<_> =
            (0..100).map(|client| written(DatagramPayload::new(1, client, 64), 0)).collect();
        for (place, payload) in datagrams.iter().enumerate() {
            assert!(!datagrams[..place].contains(payload), "client {place}");
        }
    }
}
