//! The network between the two ends of a connection, or between the sender and the receiver of a
//! datagram.

use crate::random::Random;
use crate::timeline::{Nanos, nanos};
use std::time::Duration;

/// Maximum extra delay of a reordered datagram, in addition to two latencies.
const MAX_EXTRA_DELAY: Nanos = 100_000;
/// Bytes of a connection are put on the link at most this long before the link has capacity for
/// them, so that a link that is no longer slow delivers the rest at its new bandwidth.
const MAX_AHEAD: Nanos = 100_000_000;

/// The properties of the network, which apply to each direction of each connection separately.
/// Loss, duplication and reordering only affect datagrams; on a connection they would appear as
/// latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The time from one end to the other.
    pub latency: Duration,
    /// Maximum random addition to the latency. Bytes are not reordered.
    pub jitter: Duration,
    /// Bytes per second of each connection, and of the datagrams from a socket to one address. A
    /// datagram that would wait for more than a second is lost. Zero means no limit.
    pub bandwidth: u64,
    /// Maximum bytes per segment.
    pub segment: u32,
    /// Unread bytes that the receiving end can store.
    pub receive_buffer: u32,
    /// Bytes that the sending end can store until they arrive.
    pub send_buffer: u32,
    /// Datagrams that are lost, per thousand.
    pub loss: u16,
    /// Datagrams that arrive twice, per thousand.
    pub duplication: u16,
    /// Datagrams that are delayed so that later ones can overtake them, per thousand.
    pub reordering: u16,
}

impl Link {
    /// Draws a network at random, from a range of latencies, bandwidths and buffer sizes.
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

    /// Returns how long `bytes` occupy the link.
    #[inline]
    pub(crate) fn time_on_wire(&self, bytes: u32) -> Nanos {
        (u64::from(bytes) * 1_000_000_000).checked_div(self.bandwidth).unwrap_or(0)
    }

    /// Returns the maximum bytes of a segment that occupies the link for a short time.
    #[inline]
    pub(crate) fn short_segment(&self) -> usize {
        let most = self.bandwidth / (1_000_000_000 / MAX_AHEAD);
        let segment = self.segment as usize;
        if self.bandwidth == 0 { segment } else { segment.min(most.max(1) as usize) }
    }

    /// Returns how long the link may be busy with bytes of a connection before more are put on it.
    /// A full link stays busy although the arrival of a segment, which lets more follow, takes the
    /// latency.
    #[inline]
    pub(crate) fn max_ahead(&self) -> Nanos {
        MAX_AHEAD.saturating_add(nanos(self.latency)).saturating_add(nanos(self.jitter))
    }

    /// Draws the latency of one transmission.
    #[inline]
    pub(crate) fn delay(&self, random: &mut Random) -> Nanos {
        let jitter = nanos(self.jitter);
        let more = if jitter == 0 { 0 } else { random.between(0, jitter) };
        nanos(self.latency).saturating_add(more)
    }

    /// Draws the extra delay of a datagram. It is above zero only for a datagram that will be
    /// reordered.
    pub(crate) fn extra_delay(&self, random: &mut Random) -> Nanos {
        let late = random.chance(self.reordering);
        let most = nanos(self.latency).saturating_mul(2).saturating_add(MAX_EXTRA_DELAY);
        if late { random.between(1, most) } else { 0 }
    }
}

impl Default for Link {
    /// An idle local network: 25 µs, 10 Gbit/s, buffers of 128 KiB.
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
