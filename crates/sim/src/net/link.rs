//! The network between two ends of a connection, or between sender and receiver of a datagram.

use crate::random::Random;
use crate::timeline::{Nanos, nanos};
use std::time::Duration;

/// The most that a reordered datagram is delayed, beside two latencies.
const MAX_EXTRA_DELAY: Nanos = 100_000;

/// The network, the same for all connections, each direction separately. Loss, duplication and reordering apply to
/// datagrams: on a connection they would show as latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// From one end to the other.
    pub latency: Duration,
    /// Up to so much more, at random; bytes are not reordered.
    pub jitter: Duration,
    /// Bytes a second of a connection; zero is no limit.
    pub bandwidth: u64,
    /// Most bytes of one segment.
    pub segment: u32,
    /// Bytes that the receiving end stores unread.
    pub receive_buffer: u32,
    /// Bytes that the sending end stores until they have arrived.
    pub send_buffer: u32,
    /// So many of a thousand datagrams are lost.
    pub loss: u16,
    /// So many arrive twice.
    pub duplication: u16,
    /// So many are delayed, and overtaken by later ones.
    pub reordering: u16,
}

impl Link {
    /// A network chosen by `random`: any latency, bandwidth and buffer size.
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

    /// How long `bytes` occupy the link.
    #[inline]
    pub(crate) fn time_on_wire(&self, bytes: u32) -> Nanos {
        (u64::from(bytes) * 1_000_000_000).checked_div(self.bandwidth).unwrap_or(0)
    }

    /// The latency of one transmission.
    #[inline]
    pub(crate) fn delay(&self, random: &mut Random) -> Nanos {
        let jitter = nanos(self.jitter);
        nanos(self.latency) + if jitter == 0 { 0 } else { random.between(0, jitter) }
    }

    /// The extra delay of a datagram that may be reordered; mostly zero.
    pub(crate) fn extra_delay(&self, random: &mut Random) -> Nanos {
        let late = random.chance(self.reordering);
        if late { random.between(1, 2 * nanos(self.latency) + MAX_EXTRA_DELAY) } else { 0 }
    }
}

impl Default for Link {
    /// A local network without load: 25 µs, 10 Gbit/s, buffers of 128 KiB.
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
