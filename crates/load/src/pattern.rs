//! What the clients say: slices of one pseudo-random pattern, so that sending copies nothing and checking is a compare.
//!
//! The pattern repeats every [`PERIOD`] bytes, a prime. A message is the pattern from some place on: each message of a
//! connection starts one step further, each connection starts elsewhere. So two connections never say the same at the
//! same message number, a connection does not repeat itself for 65,521 messages, and bytes shifted by any buffer size
//! (a power of two below 268 MB) never match. A stamp at the head of a fixed text would miss stale bytes behind it.

use std::sync::LazyLock;

/// Bytes until the pattern repeats: the largest prime below 2¹⁶.
const PERIOD: usize = 65_521;
/// The longest piece of a message that is one slice.
const SPAN: usize = 65_536;
/// How far apart the starts of two messages, and of two connections, lie.
const MESSAGE_STEP: usize = 17_911;
const CLIENT_STEP: usize = 40_503;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random(0x616e_6e75_6c75_7321);
    let period: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
    period.iter().copied().cycle().take(PERIOD + SPAN).collect()
});

/// The messages of one connection, one after the other.
#[derive(Debug)]
pub(crate) struct Script {
    at: usize,
    length: usize,
}

impl Script {
    pub(crate) fn new(seed: u64, client: usize, length: usize) -> Script {
        let origin = Random(seed).next() % PERIOD as u64;
        let at = (origin + client as u64 % PERIOD as u64 * CLIENT_STEP as u64) % PERIOD as u64;
        Script { at: at as usize, length }
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Text {
        let text = Text { pattern: &PATTERN, at: self.at, left: self.length };
        self.at = (self.at + MESSAGE_STEP) % PERIOD;
        text
    }
}

/// What is left of one message, to send or to expect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pattern: &'static [u8],
    at: usize,
    left: usize,
}

/// How received bytes departed from the expected text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The byte that is this many bytes before the end of the message is not the one sent.
    Differs { left: usize },
    /// There are this many bytes more than the message had.
    Surplus { bytes: usize },
}

impl Text {
    /// Bytes still to come.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// The next piece as one slice; empty at the end.
    pub(crate) fn piece(&self) -> &'static [u8] {
        &self.pattern[self.at..self.at + self.left.min(SPAN)]
    }

    /// Steps over `count` bytes of [`Text::piece`].
    pub(crate) fn advance(&mut self, count: usize) {
        self.at = (self.at + count) % PERIOD;
        self.left -= count;
    }

    /// Compares what came with what should come next, and steps over it.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) -> Result<(), Departure> {
        while !bytes.is_empty() {
            let expected = self.piece();
            let count = expected.len().min(bytes.len());
            if count == 0 {
                return Err(Departure::Surplus { bytes: bytes.len() });
            }
            if bytes[..count] != expected[..count] {
                return Err(self.differs(&bytes[..count], expected));
            }
            self.advance(count);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    #[cold]
    fn differs(&self, came: &[u8], expected: &[u8]) -> Departure {
        let same = came.iter().zip(expected).take_while(|(a, b)| a == b).count();
        Departure::Differs { left: self.left - same }
    }
}

/// splitmix64: small, seeded, good enough to tell bytes apart.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn whole(mut text: Text) -> Vec<u8> {
        let mut bytes = Vec::new();
        while text.left() > 0 {
            bytes.extend_from_slice(text.piece());
            text.advance(text.piece().len());
        }
        bytes
    }

    #[test]
    fn every_message_of_every_connection_differs() {
        let mut seen = HashSet::new();
        for client in 0..100 {
            let mut script = Script::new(1, client, 16);
            for message in 0..100 {
                assert!(
                    seen.insert(whole(script.next())),
                    "client {client}, message {message} repeats"
                );
            }
        }
    }

    #[test]
    fn another_seed_says_something_else() {
        assert_ne!(whole(Script::new(1, 0, 64).next()), whole(Script::new(2, 0, 64).next()));
    }

    #[test]
    fn what_was_sent_is_accepted_however_it_is_cut() {
        let text = Script::new(3, 5, 300_000).next();
        let bytes = whole(text);
        for cut in [1, 7, 4096, 65_536, 200_000, 300_000] {
            let mut expected = text;
            bytes.chunks(cut).for_each(|chunk| expected.check(chunk).unwrap());
            assert_eq!(expected.left(), 0);
        }
    }

    #[test]
    fn one_wrong_bit_is_found_where_it_is() {
        let text = Script::new(3, 5, 200_000).next();
        let mut bytes = whole(text);
        bytes[150_000] ^= 1;
        let mut expected = text;
        assert_eq!(expected.check(&bytes), Err(Departure::Differs { left: 50_000 }));
    }

    #[test]
    fn a_surplus_is_counted() {
        let text = Script::new(3, 5, 10).next();
        let mut bytes = whole(text);
        bytes.extend_from_slice(b"abc");
        let mut expected = text;
        assert_eq!(expected.check(&bytes), Err(Departure::Surplus { bytes: 3 }));
    }

    #[test]
    fn a_repeated_or_dropped_buffer_does_not_match() {
        let text = Script::new(3, 5, 1 << 20).next();
        let bytes = whole(text);
        for size in [512, 2048, 4096, 16_384, 65_536] {
            let mut expected = text;
            expected.check(&bytes[..size]).unwrap();
            assert!(expected.check(&bytes[..size]).is_err(), "{size} bytes came twice");
            let mut expected = text;
            assert!(expected.check(&bytes[size..]).is_err(), "{size} bytes were dropped");
        }
    }
}
