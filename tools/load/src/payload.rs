//! The payload of messages: one pseudo-random pattern, so that sending copies nothing and verifying
//! is a comparison.
//!
//! The pattern repeats after a prime number of bytes. A connection sends it from its own start
//! position, and each message is the next part of the pattern. Any number of messages is therefore
//! one slice to send and one to compare with. Up to 65,519 connections start at different
//! positions, and so do up to 65,519 consecutive messages of a connection. Bytes that are shifted
//! by the size of a buffer (a power of two) are also at a different position. A stamp at the start
//! of a fixed text would not reveal stale bytes after it.

use fastrand::Rng;
use std::sync::LazyLock;

/// Lengths of the patterns: the two largest primes below 2¹⁶. The second pattern is for messages
/// whose length is a multiple of the first prime, which would otherwise all be equal.
const PATTERN_PERIODS: [usize; 2] = [65_521, 65_519];
/// The maximum length of a slice of the pattern.
const MAX_SLICE: usize = 65_536;
/// The distance between the start positions of consecutive clients.
const CLIENT_STEP: usize = 40_503;

static PATTERNS: [LazyLock<Vec<u8>>; 2] =
    [LazyLock::new(|| pattern(PATTERN_PERIODS[0])), LazyLock::new(|| pattern(PATTERN_PERIODS[1]))];

fn pattern(period: usize) -> Vec<u8> {
    let mut random = Rng::with_seed(0x616e_6e75_6c75_7321);
    let once: Vec<u8> = (0..period).map(|_| random.u8(..)).collect();
    once.iter().copied().cycle().take(period + MAX_SLICE).collect()
}

/// The payload of one connection from its current position, to send or to expect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload {
    pattern: &'static [u8],
    period: usize,
    at: usize,
}

impl Payload {
    /// Returns the payload of `client` from its start, for messages of `length` bytes.
    pub(crate) fn new(seed: u64, client: usize, length: usize) -> Payload {
        let which = usize::from(length.is_multiple_of(PATTERN_PERIODS[0]));
        let period = PATTERN_PERIODS[which];
        let origin = Rng::with_seed(seed).usize(..period);
        let at = (origin + client % period * CLIENT_STEP) % period;
        Payload { pattern: &PATTERNS[which], period, at }
    }

    /// Returns the next bytes as one slice: as many as possible up to `most`.
    pub(crate) fn piece(&self, most: usize) -> &'static [u8] {
        &self.pattern[self.at..self.at + most.min(MAX_SLICE)]
    }

    pub(crate) fn advance(&mut self, count: usize) {
        self.at = (self.at + count) % self.period;
    }

    /// Compares received bytes with the next bytes of the payload, and skips them.
    ///
    /// # Errors
    /// Returns the position of the first byte that differs.
    pub(crate) fn check(&mut self, bytes: &[u8]) -> Result<(), usize> {
        for (number, bytes) in bytes.chunks(MAX_SLICE).enumerate() {
            let expected = self.piece(bytes.len());
            if bytes != expected {
                return Err(number * MAX_SLICE + first_difference(bytes, expected));
            }
            self.advance(bytes.len());
        }
        Ok(())
    }
}

#[cold]
fn first_difference(received: &[u8], expected: &[u8]) -> usize {
    received.iter().zip(expected).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn take(payload: &mut Payload, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let piece = payload.piece(length - bytes.len());
            bytes.extend_from_slice(piece);
            payload.advance(piece.len());
        }
        bytes
    }

    #[test]
    fn the_same_message_number_differs_between_connections() {
        let mut seen = HashSet::new();
        for client in 0..10_000 {
            let message = take(&mut Payload::new(1, client, 16), 16);
            assert!(
                seen.insert(message),
                "client {client} sends the same message as another client"
            );
        }
    }

    #[test]
    fn connection_does_not_repeat_within_1000_messages() {
        for length in [1, 16, 512, 65_519, 65_521, 65_536, 131_042] {
            let mut payload = Payload::new(1, 0, length);
            let mut positions = HashSet::new();
            for message in 0..1000 {
                assert!(
                    positions.insert(payload.at),
                    "message {message} of {length} bytes repeats"
                );
                payload.advance(length);
            }
        }
    }

    #[test]
    fn payload_depends_on_the_seed() {
        assert_ne!(Payload::new(1, 0, 64).piece(64), Payload::new(2, 0, 64).piece(64));
    }

    #[test]
    fn payload_check_accepts_sent_bytes_in_any_pieces() {
        let payload = Payload::new(3, 5, 300_000);
        let bytes = take(&mut payload.clone(), 300_000);
        for cut in [1, 7, 4096, 65_536, 200_000, 300_000] {
            let mut expected = payload;
            bytes.chunks(cut).for_each(|chunk| expected.check(chunk).unwrap());
        }
    }

    #[test]
    fn payload_check_reports_position_of_wrong_byte() {
        let payload = Payload::new(3, 5, 200_000);
        let mut bytes = take(&mut payload.clone(), 200_000);
        bytes[150_000] ^= 1;
        assert_eq!(payload.clone().check(&bytes), Err(150_000));
    }

    #[test]
    fn payload_check_detects_repeated_and_dropped_buffers() {
        let payload = Payload::new(3, 5, 1 << 20);
        let bytes = take(&mut payload.clone(), 1 << 20);
        for size in [512, 2048, 4096, 16_384, 65_536] {
            let mut expected = payload;
            expected.check(&bytes[..size]).unwrap();
            assert!(expected.check(&bytes[..size]).is_err(), "{size} repeated bytes were accepted");
            let mut expected = payload;
            assert!(
                expected.check(&bytes[size..]).is_err(),
                "{size} dropped bytes were not noticed"
            );
        }
    }
}
