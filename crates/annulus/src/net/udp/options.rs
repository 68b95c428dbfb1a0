//! How to open a UDP socket.

use super::super::datagram_handle::DatagramHandle;
use super::super::new_fd::{NewFd, SocketBuffers};
use super::super::resolve::first;

use super::UdpSocket;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::datagrams::{Format, Settings};
use annulus_kernel::{Address, SocketOption, SocketType};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;

/// How to open a UDP socket.
#[derive(Clone, Debug, Default)]
pub struct UdpOptions {
    reuse_address: bool,
    reuse_port: bool,
    only_v6: Option<bool>,
    buffers: SocketBuffers,
    settings: Settings,
}

impl UdpOptions {
    /// The system's defaults; sends keep their order.
    pub fn new() -> Self {
        Self::default()
    }

    /// Several sockets may bind the same address, as multicast receivers do (`SO_REUSEADDR`). Off by default.
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.reuse_address = on;
        self
    }

    /// Several sockets share the port, the kernel spreading peers over them (`SO_REUSEPORT`). Off by default.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Whether an IPv6 socket keeps to IPv6. The system's setting by default: usually, it speaks to IPv4 peers too, whose
    /// addresses look like `::ffff:192.0.2.1`.
    pub fn only_v6(mut self, on: bool) -> Self {
        self.only_v6 = Some(on);
        self
    }

    /// Bytes the kernel may hold for the socket until they are received (`SO_RCVBUF`); what comes when it is full is
    /// dropped and [counted](UdpSocket::dropped). Cut to `net.core.rmem_max`, and doubled by Linux for its own overhead.
    pub fn recv_buffer(mut self, bytes: usize) -> Self {
        self.buffers.recv = Some(bytes);
        self
    }

    /// Bytes the kernel may hold until they have left (`SO_SNDBUF`); sends wait when it is full. Cut to
    /// `net.core.wmem_max`.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.buffers.send = Some(bytes);
        self
    }

    /// Sends may overtake one another: several may wait for room at once. Off by default.
    pub fn unordered(mut self, on: bool) -> Self {
        self.settings.unordered = on;
        self
    }

    /// Largest datagram to be received whole, 65,535 bytes at most. By default all that UDP allows; larger ones than
    /// [`Builder::datagram_buffers`](crate::Builder::datagram_buffers) hold are received one at a time, into heap memory.
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.settings.max_datagram = Some(bytes);
        self
    }

    /// Opens a socket at the first of the addresses that works; port 0 is one of the system's choice. Resolving a name
    /// blocks the thread; numbers do not.
    ///
    /// # Errors
    /// `AddrInUse`, `PermissionDenied`, …, naming the address; `InvalidInput` for too large a
    /// [`max_datagram`](Self::max_datagram); `Unsupported` where the kernel's ring cannot receive messages; or outside a
    /// runtime.
    pub fn bind(&self, address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let core = current::get()?;
        first(address, "binding", |address| self.bind_one(&core, address))
    }

    fn bind_one(&self, core: &Rc<Core>, address: SocketAddr) -> io::Result<UdpSocket> {
        let format = if address.is_ipv4() { Format::INET } else { Format::INET6 };
        let socket = NewFd::new(&core.kernel, format.domain, SocketType::Datagram)?;
        self.set_up(&socket)?;
        socket.bind(&Address::from(address))?;
        let handle = DatagramHandle::new(core, socket, format, self.settings)?;
        Ok(UdpSocket::new(handle, address.is_ipv4()))
    }

    fn set_up(&self, socket: &NewFd) -> io::Result<()> {
        let wanted = [
            self.reuse_address.then_some(SocketOption::ReuseAddress(true)),
            self.reuse_port.then_some(SocketOption::ReusePort(true)),
            self.only_v6.map(SocketOption::V6Only),
        ];
        socket.set_all(wanted.into_iter().chain(self.buffers.options()))
    }
}
