//! Received UDP datagrams, and options for sending one.

use crate::bytes::lease::Lease;
use crate::slots::datagrams::{ReceivedMessage, SendMeta};
use annulus_kernel::Control;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

/// A received datagram, or several of one flow that the kernel coalesced, with the metadata that
/// the kernel reports.
///
/// Optional fields are `None` unless an option of [`UdpSocket`](super::UdpSocket) requests them.
///
/// ```
/// use annulus::net::UdpSocket;
///
/// # annulus::run(async {
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// socket.set_packet_info(true)?;
/// let address = socket.local_addr()?;
/// socket.send_to("ping", address).await?;
/// let datagram = socket.recv_datagram().await?;
/// assert_eq!(&*datagram.bytes, b"ping");
/// assert_eq!(datagram.source, address);
/// assert_eq!(datagram.local, Some(address.ip())); // A reply can be sent from this address.
/// assert!(!datagram.is_truncated());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Datagram {
    /// The payload, in memory of the runtime.
    pub bytes: Lease,
    /// The sender's address.
    pub source: SocketAddr,
    /// The local address to which it was sent, if requested by `set_packet_info`.
    pub local: Option<IpAddr>,
    /// The index of the interface at which it arrived, if requested by `set_packet_info`.
    pub interface: Option<u32>,
    /// Service class and congestion notification (eight bits), if requested by `set_recv_tos`.
    pub tos: Option<u8>,
    /// The size of each datagram if the kernel coalesced several; the last one may be shorter. Only
    /// with `set_coalescing`.
    pub segment_size: Option<usize>,
    /// When the kernel received it, if requested by `set_timestamps`.
    pub timestamp: Option<SystemTime>,
    /// The length of the payload as sent. Larger than the length of `bytes` if the payload was
    /// truncated.
    pub whole_len: usize,
}

impl Datagram {
    pub(crate) fn new(message: ReceivedMessage) -> io::Result<Self> {
        let (mut at, mut service, mut time) = (None, None, None);
        for control in message.controls() {
            match control {
                Control::PacketInfo { local, interface } => at = Some((local, interface)),
                Control::Tos(tos) | Control::TrafficClass(tos) => service = Some(tos),
                Control::Timestamp(since) => time = Some(SystemTime::UNIX_EPOCH + since),
                _ => {}
            }
        }
        Ok(Self {
            source: message.inet_source()?,
            local: at.map(|(local, _)| local),
            interface: at.map(|(_, interface)| interface),
            tos: service,
            segment_size: message.segment_size(),
            timestamp: time,
            whole_len: message.whole_len(),
            bytes: message.into_bytes(),
        })
    }

    /// Returns the explicit congestion notification: the low two bits of the service class.
    pub fn ecn(&self) -> Option<u8> {
        self.tos.map(|tos| tos & 3)
    }

    /// Returns true if the datagram was longer than its buffer, so that its end is missing.
    pub fn is_truncated(&self) -> bool {
        self.whole_len > self.bytes.len()
    }

    /// Returns the datagrams one by one, if the kernel coalesced several. Their leases share the
    /// memory.
    pub fn into_segments(self) -> impl Iterator<Item = Lease> {
        let Self { bytes, segment_size, .. } = self;
        let mut rest = Some(bytes);
        std::iter::from_fn(move || {
            let left = rest.as_mut()?;
            match segment_size.filter(|size| (1..left.len()).contains(size)) {
                Some(size) => Some(left.split_to(size)),
                None => rest.take(),
            }
        })
    }
}

/// The destination of a datagram and its send options. Start with [`Transmit::to`] an address or
/// [`Transmit::connected`].
///
/// ```
/// use annulus::net::{Transmit, UdpSocket};
///
/// # annulus::run(async {
/// let receiver = UdpSocket::bind("127.0.0.1:0")?;
/// let sender = UdpSocket::bind("127.0.0.1:0")?;
/// // Three datagrams of up to 1200 bytes, with the ECN bits for ECT(0).
/// let how = Transmit::to(receiver.local_addr()?).segment_size(1200).tos(0b10);
/// sender.send_with(vec![0; 3000], &how).await?;
/// for len in [1200, 1200, 600] {
///     assert_eq!(receiver.recv().await?.len(), len);
/// }
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Transmit {
    to: Option<SocketAddr>,
    segment_size: Option<u16>,
    tos: Option<u8>,
    source: Option<IpAddr>,
}

impl Transmit {
    /// Creates the options for a datagram to an address.
    pub fn to(address: SocketAddr) -> Self {
        Self { to: Some(address), ..Self::default() }
    }

    /// Creates the options for a datagram to the peer of a connected socket.
    pub fn connected() -> Self {
        Self::default()
    }

    /// Splits the payload into datagrams of this many bytes each; the last one may be shorter.
    /// Sending fails if this is 0.
    pub fn segment_size(self, bytes: u16) -> Self {
        Self { segment_size: Some(bytes), ..self }
    }

    /// Sets the service class and congestion notification (eight bits) for this send only.
    pub fn tos(self, tos: u8) -> Self {
        Self { tos: Some(tos), ..self }
    }

    /// Sets the local address to send from.
    pub fn source(self, local: IpAddr) -> Self {
        Self { source: Some(local), ..self }
    }

    /// Converts the options for the slot. `v4` says whether the peer of a connected socket has an
    /// IPv4 address. It is ignored if the options contain a destination.
    pub(super) fn meta(&self, v4: bool) -> SendMeta {
        let Self { to, segment_size, tos, source } = *self;
        let plain = to.map_or_else(|| SendMeta::connected(v4), SendMeta::to_inet);
        SendMeta { segment_size, tos, source, ..plain }
    }
}
