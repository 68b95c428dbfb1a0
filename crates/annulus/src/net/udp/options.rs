//! How to open a UDP socket.

use super::super::addresses::ToSocketAddrs;
use super::super::datagram_handle::DatagramHandle;
use super::super::new_fd::NewFd;
use super::super::option_methods::*;
use super::super::rebind::retry_while_in_use;
use super::super::resolve::first;
use super::super::settings::SocketSettings;

use super::UdpSocket;
use crate::errors::Operation;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::datagrams::{DatagramSettings, MessageFormat};
use annulus_kernel::{Address, SocketOption, SocketType};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// How to open a UDP socket.
///
/// ```
/// use annulus::net::UdpOptions;
///
/// # annulus::run(async {
/// let socket = UdpOptions::new()
///     .recv_buffer(1 << 20) // The kernel's queue, for bursts.
///     .max_datagram(1500)
///     .bind("127.0.0.1:0")?;
/// socket.send_to(vec![0; 1500], socket.local_addr()?).await?;
/// assert_eq!(socket.recv().await?.len(), 1500);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct UdpOptions {
    socket: SocketSettings,
    settings: DatagramSettings,
}

impl UdpOptions {
    /// Returns the system's defaults, with sends in order.
    pub fn new() -> Self {
        Self::default()
    }

    options!(setters: buffer ip bind share broadcast device);

    /// Allows datagrams to overtake each other, so that one that finds no space does not delay the
    /// others. Off by default.
    pub fn unordered(mut self, on: bool) -> Self {
        self.settings.unordered = on;
        self
    }

    /// Sets the largest datagram that is received whole, at most 65,535 bytes. The default is the
    /// largest that UDP allows. If it does not fit the buffers of
    /// [`Builder::datagram_buffers`](crate::Builder::datagram_buffers), datagrams are received one
    /// at a time, into heap memory.
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.settings.max_datagram = Some(bytes);
        self
    }

    /// Opens a socket at the first of the addresses that works. For port 0, the system chooses a
    /// port. Looking up a name blocks the thread; [`lookup_host`](crate::net::lookup_host) does
    /// not, and a numeric address needs no look-up.
    ///
    /// # Errors
    /// `AddrInUse` (after retrying for a tenth of a second, as a
    /// [`TcpListener`](crate::net::TcpListener) does), `PermissionDenied`, …, with the address in
    /// the message. `InvalidInput` if [`max_datagram`](Self::max_datagram) is too large.
    /// `Unsupported` if the kernel's ring cannot receive messages. Outside a runtime.
    pub fn bind(&self, address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let core = current::get()?;
        let bind = |address| retry_while_in_use(Some(&core), || self.bind_one(&core, address));
        first(address, Operation::Bind, bind)
    }

    fn bind_one(&self, core: &Rc<Core>, address: SocketAddr) -> io::Result<UdpSocket> {
        let format = if address.is_ipv4() { MessageFormat::INET } else { MessageFormat::INET6 };
        let socket = NewFd::new(&core.kernel, format.domain, SocketType::Datagram)?;
        self.socket.apply(&socket)?;
        socket.bind(&Address::from(address))?;
        let handle = DatagramHandle::new(core, socket, format, self.settings)?;
        Ok(UdpSocket::new(handle))
    }
}
