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

    /// Several sockets may share the port; the kernel distributes peers over them (`SO_REUSEPORT`). Off by default.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Whether an IPv6 socket is for IPv6 only. The system's setting by default: usually IPv4 peers are allowed, with addresses
    /// such as `::ffff:192.0.2.1`.
    pub fn only_v6(mut self, on: bool) -> Self {
        self.only_v6 = Some(on);
        self
    }

    /// Bytes that the kernel may hold for the socket until they are received (`SO_RCVBUF`). Datagrams that arrive when it is full
    /// are dropped and [counted](UdpSocket::dropped). Linux limits it to `net.core.rmem_max` and doubles it for its overhead.
    pub fn recv_buffer(mut self, bytes: usize) -> Self {
        self.buffers.recv = Some(bytes);
        self
    }

    /// Bytes that the kernel may hold until they have left (`SO_SNDBUF`). Sends wait when it is full. Linux limits it to
    /// `net.core.wmem_max`.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.buffers.send = Some(bytes);
        self
    }

    /// Datagrams may overtake one another, so one that finds no space does not delay the others. Off by default.
    pub fn unordered(mut self, on: bool) -> Self {
        self.settings.unordered = on;
        self
    }

    /// The largest datagram that is received whole, 65,535 bytes at most. By default all that UDP allows. If it exceeds what
    /// [`Builder::datagram_buffers`](crate::Builder::datagram_buffers) hold, datagrams are received one at a time, into heap
    /// memory.
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.settings.max_datagram = Some(bytes);
        self
    }

    /// Opens a socket at the first of the addresses that works. For port 0 the system chooses a port. Resolving a name blocks
    /// the thread; a numeric address does not.
    ///
    /// # Errors
    /// `AddrInUse`, `PermissionDenied`, …, naming the address. `InvalidInput` if [`max_datagram`](Self::max_datagram) is too
    /// large. `Unsupported` if the kernel's ring cannot receive messages. Outside a runtime.
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
