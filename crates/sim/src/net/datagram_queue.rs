//! The state of a datagram socket: received datagrams that wait to be read, and how much of its
//! send buffer its sent datagrams use.

use super::flow::Wire;
use super::socket::SocketId;
use crate::descriptors::FileId;
use crate::timeline::Nanos;
use annulus_kernel::Address;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Bytes of a buffer that a datagram uses in addition to its payload: the same as on Linux for a
/// small datagram.
const DATAGRAM_OVERHEAD_BYTES: usize = 768;
/// A Unix socket is full once it has more datagrams than this (`net.unix.max_dgram_qlen`).
const MAX_UNIX_QUEUE_LEN: usize = 10;
/// Limits of coalescing: the payload of an IP packet, and the number of datagrams that Linux
/// coalesces.
const MAX_COALESCED_BYTES: usize = 65_507;
const MAX_COALESCED_DATAGRAMS: usize = 64;
/// How long a datagram may wait for a slow link. Longer queues would fill the send buffer, and
/// delay datagrams to other addresses.
const MAX_LINK_WAIT: Nanos = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Datagram {
    pub(crate) bytes: Vec<u8>,
    /// The address of the sender; `None` if the sender has no name.
    pub(crate) from: Option<Address>,
    /// The internet addresses of sender and receiver.
    pub(crate) route: Option<(SocketAddr, SocketAddr)>,
    pub(crate) tos: u8,
    /// If set, the bytes are several coalesced datagrams of this size.
    pub(crate) segment: Option<u16>,
    pub(crate) rights: Vec<FileId>,
    /// `at` is the time of arrival. `drops` is the number of datagrams that the socket had dropped
    /// by then.
    pub(crate) at: Nanos,
    pub(crate) drops: u32,
    /// The socket whose send buffer the datagram uses.
    pub(crate) sender: Option<SocketId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DatagramPeer {
    #[default]
    None,
    Open(SocketId),
    /// The peer was closed; the next send reports it.
    Closed,
}

/// The part of a socket that only datagram sockets have.
#[derive(Debug, Default)]
pub(crate) struct DatagramQueue {
    datagrams: VecDeque<Datagram>,
    /// Bytes of the receive buffer in use.
    held: usize,
    pub(crate) drops: u32,
    /// Bytes of this socket's send buffer used by datagrams that have not arrived.
    pub(crate) charged: usize,
    pub(crate) groups: Vec<IpAddr>,
    pub(crate) peer: DatagramPeer,
    /// Senders that wait for space here.
    pub(crate) blocked: Vec<SocketId>,
    /// The links to the addresses to which datagrams are on their way.
    wires: BTreeMap<IpAddr, Wire>,
}

impl Datagram {
    /// Returns the number of bytes of a buffer that the datagram uses.
    #[inline]
    pub(crate) fn cost(&self) -> usize {
        self.bytes.len() + DATAGRAM_OVERHEAD_BYTES
    }

    /// Returns true if `next` may be coalesced with this datagram. A datagram that is shorter than
    /// the others ends a series.
    fn continues(&self, next: &Self) -> bool {
        let size = self.segment_size();
        self.route == next.route
            && self.tos == next.tos
            && !self.bytes.is_empty()
            && self.bytes.len().is_multiple_of(size)
            && (1..=size).contains(&next.bytes.len())
            && self.bytes.len() + next.bytes.len() <= MAX_COALESCED_BYTES
            && self.bytes.len() / size < MAX_COALESCED_DATAGRAMS
    }

    fn segment_size(&self) -> usize {
        self.segment.map_or(self.bytes.len(), usize::from).max(1)
    }
}

impl DatagramQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Returns when a datagram arrives that occupies the link to `to` for `occupied` and then takes
    /// `delay`, or `None` if the datagram would have to wait too long for the link.
    pub(crate) fn schedule(
        &mut self,
        to: IpAddr,
        now: Nanos,
        occupied: Nanos,
        delay: Nanos,
    ) -> Option<Nanos> {
        if !self.wires.contains_key(&to) {
            self.wires.retain(|_, wire| !wire.is_idle_at(now));
        }
        let wire = self.wires.entry(to).or_default();
        let is_full = wire.is_busy_at(now.saturating_add(MAX_LINK_WAIT));
        (!is_full).then(|| wire.schedule(now, occupied, delay))
    }

    /// Returns true if a Unix socket is full, so that its senders wait.
    pub(crate) fn is_full(&self) -> bool {
        self.datagrams.len() > MAX_UNIX_QUEUE_LEN
    }

    /// Queues a datagram, or counts it as dropped if the buffer is full. As on Linux, the last
    /// queued datagram may exceed the buffer.
    pub(crate) fn receive(&mut self, datagram: Datagram, capacity: usize, coalesce: bool) -> bool {
        if self.held > 0 && self.held + DATAGRAM_OVERHEAD_BYTES > capacity {
            self.drops = self.drops.wrapping_add(1);
            return false;
        }
        self.keep(Datagram { drops: self.drops, ..datagram }, coalesce);
        true
    }

    fn keep(&mut self, datagram: Datagram, coalesce: bool) {
        self.held += datagram.cost();
        match self.datagrams.back_mut().filter(|last| coalesce && last.continues(&datagram)) {
            Some(last) => {
                last.segment = Some(last.segment_size() as u16);
                last.bytes.extend_from_slice(&datagram.bytes);
                self.held -= DATAGRAM_OVERHEAD_BYTES;
            }
            None => self.datagrams.push_back(datagram),
        }
    }

    pub(crate) fn take(&mut self) -> Option<Datagram> {
        let datagram = self.datagrams.pop_front()?;
        self.held -= datagram.cost();
        Some(datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(len: usize) -> Datagram {
        Datagram { bytes: vec![7; len], ..Datagram::default() }
    }

    #[test]
    fn full_queue_drops_and_next_datagram_carries_the_count() {
        let mut queue = DatagramQueue::default();
        let taken = (0..5).filter(|_| queue.receive(datagram(100), 2304, false)).count();
        assert_eq!((taken, queue.drops), (2, 3));
        assert_eq!(queue.take().map(|datagram| datagram.drops), Some(0));
        assert!(
            queue.receive(datagram(100_000), 2304, false),
            "an empty queue refused a large datagram"
        );
        assert_eq!(queue.take().map(|datagram| datagram.bytes.len()), Some(100));
        assert_eq!(queue.take().map(|datagram| datagram.drops), Some(3));
        assert_eq!((queue.held, queue.take().is_none()), (0, true));
    }

    #[test]
    fn equal_datagrams_coalesce_until_a_shorter_one() {
        let mut queue = DatagramQueue::default();
        for len in [100, 100, 40, 100, 200, 0, 1] {
            assert!(queue.receive(datagram(len), 1 << 20, true));
        }
        let got: Vec<_> = std::iter::from_fn(|| queue.take())
            .map(|datagram| (datagram.bytes.len(), datagram.segment))
            .collect();
        assert_eq!(got, [(240, Some(100)), (100, None), (200, None), (0, None), (1, None)]);
        assert_eq!(queue.held, 0);
    }

    #[test]
    fn coalesced_datagrams_stay_within_the_limits() {
        let mut queue = DatagramQueue::default();
        (0..200).for_each(|_| assert!(queue.receive(datagram(1000), 1 << 20, true)));
        (0..100).for_each(|_| assert!(queue.receive(datagram(1), 1 << 20, true)));
        let lens: Vec<_> =
            std::iter::from_fn(|| queue.take()).map(|datagram| datagram.bytes.len()).collect();
        assert_eq!(lens, [64_000, 64_000, 64_000, 8_001, 64, 35]);
    }
}
