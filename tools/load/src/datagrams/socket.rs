use crate::plan::{Datagrams, Plan};
use crate::server_address::{ServerAddress, unix_address};
use annulus::Lease;
use annulus::net::{SendDatagram, UdpOptions, UdpSocket, UnixDatagram, UnixOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of bytes that the kernel accounts per datagram in addition to its payload.
const DATAGRAM_OVERHEAD_BYTES: usize = 1280;
/// The smallest socket buffer to request. It is the default of most systems.
const MIN_RECV_BUFFER_BYTES: usize = 212_992;

/// A socket that is connected to the server.
#[derive(Debug)]
pub(crate) enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl Socket {
    pub(super) async fn open(plan: &Plan, datagrams: Datagrams) -> io::Result<Socket> {
        let buffer =
            (datagrams.window * (plan.length + DATAGRAM_OVERHEAD_BYTES)).max(MIN_RECV_BUFFER_BYTES);
        match &plan.address {
            ServerAddress::Inet(address) => open_udp(*address, buffer).await.map(Socket::Udp),
            ServerAddress::Unix(path) => open_unix(path, buffer).map(Socket::Unix),
        }
    }

    pub(super) fn send(&self, datagram: Vec<u8>) -> SendDatagram<'_> {
        match self {
            Socket::Udp(socket) => socket.send(datagram),
            Socket::Unix(socket) => socket.send(datagram),
        }
    }

    pub(super) async fn recv(&self) -> io::Result<Lease> {
        match self {
            Socket::Udp(socket) => socket.recv().await,
            Socket::Unix(socket) => socket.recv().await,
        }
    }
}

async fn open_udp(server: SocketAddr, buffer: usize) -> io::Result<UdpSocket> {
    let any: IpAddr = match server.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpOptions::new().recv_buffer_size(buffer).bind((any, 0))?;
    socket.connect(server).await?;
    Ok(socket)
}

/// Opens a Unix socket with an abstract name: the server needs a name to reply to, and an abstract
/// name leaves no file.
fn open_unix(server: &Path, buffer: usize) -> io::Result<UnixDatagram> {
    static SOCKETS_OPENED: AtomicU64 = AtomicU64::new(0);
    let number = SOCKETS_OPENED.fetch_add(1, Ordering::Relaxed);
    let name = format!("annulus-load-{}-{number}", std::process::id());
    let options = UnixOptions::new().send_buffer_size(buffer);
    let socket = options.bind_addr(&UnixAddr::from_abstract_name(name)?)?;
    socket.connect_addr(&unix_address(server)?)?;
    Ok(socket)
}
