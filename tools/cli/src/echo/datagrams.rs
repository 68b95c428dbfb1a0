//! Datagram echo: each datagram is sent back to its source.

use super::own_addresses::OwnAddresses;
use super::stats::Counts;
use super::{Listen, Plan};
use annulus::Lease;
use annulus::net::{Transmit, UdpOptions, UdpSocket, UnixDatagram, UnixOptions};
use annulus_load::unix_address;
use anyhow::{Context, Result};
use clap::Args;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;

#[derive(Args, Clone, Copy, Debug)]
pub(super) struct DatagramArgs {
    /// Concurrent receives per datagram socket, each in its own task [default: 1]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) outstanding: Option<u16>,
    /// Buffer size to request for datagram sockets; the kernel caps it at net.core.rmem_max and
    /// wmem_max [default: 8388608]
    #[arg(long, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(super) socket_buffer: Option<u32>,
}

impl DatagramArgs {
    fn buffer(&self) -> usize {
        self.socket_buffer.unwrap_or(8 << 20) as usize
    }
}

#[derive(Debug, Default)]
pub(super) struct DatagramEcho {
    count: Cell<u64>,
    bytes: Cell<u64>,
    refused: Cell<u64>,
    own: OwnAddresses,
}

/// Opens the UDP socket of a listen address; returns it with its bound address.
pub(super) fn open(
    plan: &Plan,
    listen: &Listen,
    datagrams: &DatagramEcho,
) -> Result<(UdpSocket, SocketAddr)> {
    let options = UdpOptions::new().recv_buffer_size(plan.datagrams.buffer());
    let socket = options.bind(listen.addresses.as_slice());
    let socket = socket.map_err(|error| plan.cannot_listen(&listen.endpoint, error))?;
    let address = socket.local_addr().context("cannot read the address listened on")?;
    datagrams.own.add(address);
    let asked = socket.set_packet_info(address.ip().is_unspecified());
    asked.context("cannot request the destination addresses of datagrams")?;
    Ok((socket, address))
}

/// Opens the Unix socket of a listen address.
pub(super) fn open_path(plan: &Plan, listen: &Listen, path: &Path) -> Result<UnixDatagram> {
    // Unordered: echoes to a slow reader do not delay those to other readers, and are dropped when
    // too many are queued.
    let options = UnixOptions::new().unordered(true);
    let options = options.send_buffer_size(plan.datagrams.buffer());
    let socket = unix_address(path).and_then(|address| options.bind_addr(&address));
    socket.map_err(|error| plan.cannot_listen(&listen.endpoint, error))
}

/// A socket that receives datagrams with their source, and can answer that source.
pub(super) trait DatagramSocket {
    type Peer;

    fn recv(&self) -> impl Future<Output = io::Result<(Lease, Self::Peer)>>;
    /// Returns the IP address and port of a source, or `None` if it has none.
    fn address(from: &Self::Peer) -> Option<&SocketAddr>;
    fn send(&self, datagram: Lease, to: Self::Peer) -> impl Future<Output = io::Result<()>>;
}

impl DatagramSocket for UdpSocket {
    type Peer = SocketAddr;

    fn recv(&self) -> impl Future<Output = io::Result<(Lease, SocketAddr)>> {
        self.recv_from()
    }

    fn address(from: &SocketAddr) -> Option<&SocketAddr> {
        Some(from)
    }

    fn send(&self, datagram: Lease, to: SocketAddr) -> impl Future<Output = io::Result<()>> {
        self.send_to(datagram, to)
    }
}

/// A UDP socket bound to the unspecified address. The source of an echo is the address to which the
/// datagram was sent, which ancillary data has.
#[derive(Debug)]
pub(super) struct AncillaryUdpSocket(pub(super) UdpSocket);

impl DatagramSocket for AncillaryUdpSocket {
    /// The source and how to answer it.
    type Peer = (SocketAddr, Transmit);

    async fn recv(&self) -> io::Result<(Lease, Self::Peer)> {
        let datagram = self.0.recv_datagram().await?;
        let mut answer = Transmit::to(datagram.source);
        // A multicast group cannot be a source address.
        if let Some(asked) = datagram.local.filter(|asked| !asked.is_multicast()) {
            answer = answer.source(asked);
        }
        Ok((datagram.bytes, (datagram.source, answer)))
    }

    fn address((source, _): &Self::Peer) -> Option<&SocketAddr> {
        Some(source)
    }

    async fn send(&self, datagram: Lease, (_, answer): Self::Peer) -> io::Result<()> {
        self.0.send_with(datagram, &answer).await
    }
}

impl DatagramSocket for UnixDatagram {
    type Peer = UnixAddr;

    async fn recv(&self) -> io::Result<(Lease, UnixAddr)> {
        self.recv_from().await
    }

    /// Returns `None`: the source of a Unix datagram cannot be forged, so it is not checked.
    fn address(_: &UnixAddr) -> Option<&SocketAddr> {
        None
    }

    async fn send(&self, datagram: Lease, to: UnixAddr) -> io::Result<()> {
        self.send_to_addr(datagram, &to).await
    }
}

impl DatagramEcho {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            connections: 0,
            messages: self.count.get(),
            bytes: self.bytes.get(),
            refused: self.refused.get(),
        }
    }

    /// Echoes until the socket fails. An echo that cannot be sent is dropped.
    pub(super) async fn echo<P: DatagramSocket>(&self, socket: &P) -> io::Result<()> {
        loop {
            let (datagram, from) = match socket.recv().await {
                Ok(received) => received,
                Err(error) if is_datagram_error(&error) => continue,
                Err(error) => return Err(error),
            };
            if P::address(&from).is_some_and(|source| self.own.refuse(source)) {
                self.refused.set(self.refused.get() + 1);
                continue;
            }
            self.count.set(self.count.get() + 1);
            self.bytes.set(self.bytes.get() + datagram.len() as u64);
            // An error may concern an earlier datagram, so it does not stop the loop.
            let _ = socket.send(datagram, from).await;
        }
    }
}

/// Returns true if an error concerns one datagram only, and not the socket.
fn is_datagram_error(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, InvalidData, NetworkUnreachable, PermissionDenied,
    };
    [ConnectionRefused, HostUnreachable, InvalidData, NetworkUnreachable, PermissionDenied]
        .contains(&error.kind())
}
