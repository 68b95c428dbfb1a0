//! What lies between two ends of a connection, or a datagram's sender and its receiver.

use crate::random::Random;
use crate::timeline::{Nanos, nanos};
use std::time::Duration;

/// A datagram that is held up takes at most so much longer, and two journeys.
const LONGEST_DETOUR: Nanos = 100_000;

/// The network: the same for all connections, each direction on its own. Loss, duplication and reordering are for
/// datagrams: on a connection they would show as latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// From one end to the other.
    pub latency: Duration,
    /// Up to this much more, as it comes; bytes never overtake each other.
    pub jitter: Duration,
    /// Bytes a second a connection; zero is no limit.
    pub bandwidth: u64,
    /// Most bytes that travel together.
    pub segment: u32,
    /// Bytes that the receiving end keeps unread.
    pub receive_buffer: u32,
    /// Bytes that the sending end keeps until they have arrived.
    pub send_buffer: u32,
    /// Of a thousand datagrams, so many are lost.
    pub loss: u16,
    /// So many arrive twice.
    pub duplication: u16,
    /// So many are held up, and overtaken by later ones.
    pub reordering: u16,
}

impl Link {
    /// A network of `random`'s choice: near or far, wide or narrow, with buffers of any size.
    pub fn any(random: &mut Random) -> Self {
        Self {
            latency: Duration::from_nanos(random.pick(&[0, 1_000, 25_000, 500_000, 20_000_000])),
            jitter: Duration::from_nanos(random.pick(&[0, 0, 10_000, 5_000_000])),
            bandwidth: random.pick(&[0, 0, 1_250_000_000, 12_500_000]),
            segment: random.pick(&[100, 1448, 65_536]),
            receive_buffer: random.pick(&[2_000, 16_384, 131_072]),
            send_buffer: random.pick(&[2_000, 16_384, 131_072]),
            loss: random.pick(&[0, 0, 10, 200]),
            duplication: random.pick(&[0, 0, 10, 200]),
            reordering: random.pick(&[0, 0, 10, 200]),
        }
    }

    /// How long `bytes` occupy the wire.
    #[inline]
    pub(crate) fn time_on_wire(&self, bytes: u32) -> Nanos {
        (u64::from(bytes) * 1_000_000_000).checked_div(self.bandwidth).unwrap_or(0)
    }

    /// How long something travels.
    #[inline]
    pub(crate) fn delay(&self, random: &mut Random) -> Nanos {
        let jitter = nanos(self.jitter);
        nanos(self.latency) + if jitter == 0 { 0 } else { random.between(0, jitter) }
    }

    /// How much longer a datagram travels that others may overtake; mostly not at all.
    pub(crate) fn detour(&self, random: &mut Random) -> Nanos {
        let late = random.chance(self.reordering);
        if late { random.between(1, 2 * nanos(self.latency) + LONGEST_DETOUR) } else { 0 }
    }
}

impl Default for Link {
    /// A quiet local network: 25 µs, 10 Gbit/s, buffers of 128 KiB.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(25),
            jitter: Duration::ZERO,
            bandwidth: 1_250_000_000,
            segment: 65_536,
            receive_buffer: 131_072,
            send_buffer: 131_072,
            loss: 0,
            duplication: 0,
            reordering: 0,
        }
    }
}
