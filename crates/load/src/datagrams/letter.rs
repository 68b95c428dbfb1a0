//! What datagrams carry: a number where there is room for one, then bytes that belong to that number.

use crate::pattern::Tape;

/// Bytes of a datagram's number. Shorter ones carry none, and are told apart by counting.
pub(crate) const HEAD: usize = 8;

/// How far apart the bytes of two datagrams lie.
const STEP: u64 = 17_911;

/// What the datagrams of one client carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Letter {
    tape: Tape,
    length: usize,
}

/// What is wrong with an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbled {
    /// It has this many bytes.
    Length(usize),
    /// The byte at this place is not what was sent.
    Byte(usize),
}

impl Letter {
    /// What `client` sends in datagrams of `length` bytes.
    pub(crate) fn new(seed: u64, client: usize, length: usize) -> Letter {
        Letter { tape: Tape::new(seed, client, length), length }
    }

    /// Whether datagrams carry their number.
    pub(crate) fn is_numbered(&self) -> bool {
        self.length >= HEAD
    }

    /// Appends the datagram of a number.
    pub(crate) fn write(&self, number: u64, bytes: &mut Vec<u8>) {
        let (mut rest, mut text) = (self.length, 0);
        if self.is_numbered() {
            bytes.extend_from_slice(&number.to_le_bytes());
            (rest, text) = (rest - HEAD, number);
        }
        bytes.extend_from_slice(self.body(text, rest));
    }

    /// The number of an echo, if it has one.
    ///
    /// # Errors
    /// Where its bytes are not those of any datagram.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Option<u64>, Garbled> {
        if bytes.len() != self.length {
            return Err(Garbled::Length(bytes.len()));
        }
        let head = bytes.first_chunk::<HEAD>().map(|head| u64::from_le_bytes(*head));
        let body = &bytes[if head.is_some() { HEAD } else { 0 }..];
        let expected = self.body(head.unwrap_or(0), body.len());
        if body == expected {
            return Ok(head);
        }
        let same = body.iter().zip(expected).take_while(|(a, b)| a == b).count();
        Err(Garbled::Byte(bytes.len() - body.len() + same))
    }

    /// Datagrams are never longer than the longest slice of a tape.
    fn body(&self, number: u64, length: usize) -> &'static [u8] {
        let mut tape = self.tape;
        // Modulo 2³² − 1 every bit of the number still tells.
        tape.advance((number % u64::from(u32::MAX) * STEP) as usize);
        tape.piece(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(letter: Letter, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        letter.write(number, &mut bytes);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        for length in [1, 7, 8, 9, 128, 65_507] {
            let letter = Letter::new(1, 3, length);
            for number in [0, 1, 65_521, u64::MAX] {
                let bytes = written(letter, number);
                assert_eq!(bytes.len(), length);
                let expected = (length >= HEAD).then_some(number);
                assert_eq!(letter.read(&bytes), Ok(expected), "{length} bytes, number {number}");
            }
        }
    }

    #[test]
    fn every_wrong_byte_shows() {
        let letter = Letter::new(1, 3, 100);
        for at in 0..100 {
            let mut bytes = written(letter, 5);
            bytes[at] ^= 1;
            // A number that is wrong does not go with the bytes that follow.
            let garbled = letter.read(&bytes).unwrap_err();
            assert!(at < HEAD || garbled == Garbled::Byte(at), "byte {at}: {garbled:?}");
        }
        assert_eq!(letter.read(&written(letter, 5)[..99]), Err(Garbled::Length(99)));
        assert_eq!(letter.read(&[]), Err(Garbled::Length(0)));
    }

    #[test]
    fn clients_send_different_bytes() {
        let letters: Vec<_> =
            (0..100).map(|client| written(Letter::new(1, client, 64), 0)).collect();
        for (place, letter) in letters.iter().enumerate() {
            assert!(!letters[..place].contains(letter), "client {place}");
        }
    }
}
