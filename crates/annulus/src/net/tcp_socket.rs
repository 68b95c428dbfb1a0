//! A TCP socket that is neither listening nor connected yet.

use super::connect::{connect_socket, with_address};
use super::descriptors::{self, borrow_unowned};
use super::listener::TcpListener;
use super::listener_handle::retry_while_in_use;
use super::option_methods::*;
use super::resolve::failed;
use super::socket::NewFd;
use super::socket::Socket;
use super::tcp::{KeepAlive, TcpStream};
use crate::errors::Operation;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::tasks::consume_budget;
use annulus_kernel::{Address, Domain, SocketOption, SocketType};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

/// A TCP socket that is configured step by step before it [listens](Self::listen) or
/// [connects](Self::connect).
///
/// [`ListenOptions`](super::ListenOptions) and [`ConnectOptions`](super::ConnectOptions) do the
/// same in one expression, for several addresses and host names too. Use this type to read an
/// option back, to set an option of the system that this crate lacks (through [`AsFd`]), or to bind
/// before it is decided whether the socket listens or connects.
///
/// Connections that the socket accepts inherit its options. `TCP_NODELAY` is on, as for every TCP
/// socket that this crate opens, and all other options have the system's values; so `SO_REUSEADDR`
/// is off, unlike for [`TcpListener::bind`](super::TcpListener::bind).
///
/// ```
/// use annulus::net::{KeepAlive, TcpSocket};
///
/// # annulus::run(async {
/// let socket = TcpSocket::new_v4()?;
/// socket.set_reuse_address(true)?;
/// // TCP negotiates the scale of its window when it connects, so large buffers are set before.
/// socket.set_recv_buffer_size(1 << 20)?;
/// socket.bind("127.0.0.1:0".parse().unwrap())?;
/// println!("{} bytes at {}", socket.recv_buffer_size()?, socket.local_addr()?);
/// let listener = socket.listen(1024)?;
///
/// let socket = TcpSocket::new_v4()?;
/// socket.set_keepalive(Some(KeepAlive::default()))?;
/// let stream = socket.connect(listener.local_addr()?).await?;
/// assert!(stream.keepalive()?.is_some());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct TcpSocket {
    core: Rc<Core>,
    handle: NewFd,
    is_v4: bool,
}

impl TcpSocket {
    /// Creates a socket for IPv4 addresses.
    ///
    /// # Errors
    /// If no descriptor is left, or outside a runtime.
    pub fn new_v4() -> io::Result<Self> {
        Self::open(Domain::Inet)
    }

    /// Creates a socket for IPv6 addresses. If it listens, IPv4 peers may connect too, unless
    /// [`set_only_v6`](Self::set_only_v6) is on.
    ///
    /// # Errors
    /// `Unsupported` or another error if the system has no IPv6; if no descriptor is left; or
    /// outside a runtime.
    pub fn new_v6() -> io::Result<Self> {
        Self::open(Domain::Inet6)
    }

    fn open(domain: Domain) -> io::Result<Self> {
        let core = current::get()?;
        let handle = NewFd::new(&core.kernel, domain, SocketType::Stream)?;
        handle.set(SocketOption::NoDelay, 1)?;
        Ok(Self { core, handle, is_v4: domain == Domain::Inet })
    }

    /// Sets the local address. For port 0, the system chooses a port, which
    /// [`local_addr`](Self::local_addr) returns.
    ///
    /// # Errors
    /// `AddrInUse`, `PermissionDenied` (ports below 1024), …, with the address in the message.
    /// Before it returns `AddrInUse`, it retries for a tenth of a second and blocks the loop, as
    /// [`ListenOptions::bind`](super::ListenOptions::bind) does. `InvalidInput` for an address of
    /// the other IP version, or if the socket is bound already.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let bind = || {
            self.check_version(address)?;
            self.handle.bind(&Address::from(address))
        };
        let bound = retry_while_in_use(Some(&self.core), bind);
        bound.map_err(|error| failed(error, Operation::Bind, address))
    }

    /// Starts to listen. `backlog` is the number of completed connections that the kernel keeps
    /// until they are accepted; it is capped at `net.core.somaxconn`.
    ///
    /// For a [`ConnectionLimit`](super::ConnectionLimit), use
    /// [`ListenOptions`](super::ListenOptions::limit).
    ///
    /// # Errors
    /// `AddrInUse` if another socket listens at the port, with the address in the message; or if
    /// the runtime has ended. The socket is then closed.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        if let Err(error) = self.handle.listen(backlog) {
            let local = self.local_addr();
            return Err(match local {
                Ok(local) => failed(error, Operation::Listen, local),
                Err(_) => error,
            });
        }
        TcpListener::new(&self.core, self.handle, None)
    }

    /// Connects to an address. There is no timeout but the system's, of some minutes; wrap the
    /// future in [`timeout`](crate::time::timeout) for another one.
    ///
    /// Dropping the future cancels the attempt and closes the socket.
    ///
    /// # Errors
    /// The errors of [`ConnectOptions::connect`](super::ConnectOptions::connect), and
    /// `InvalidInput` for an address of the other IP version. The socket is then closed.
    pub async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        // A connect may fail at once every time, so a retry loop must use budget.
        consume_budget().await;
        let connected = match self.check_version(address) {
            Ok(()) => connect_socket(&self.core, self.handle, address, None).await,
            Err(error) => Err(error),
        };
        with_address(connected, address)
    }

    /// Checks that an address has the IP version of the socket.
    fn check_version(&self, address: SocketAddr) -> io::Result<()> {
        if address.is_ipv4() == self.is_v4 {
            return Ok(());
        }
        let (is, new) = if self.is_v4 { ("IPv4", "new_v6") } else { ("IPv6", "new_v4") };
        let text =
            format!("the socket is for {is} addresses only; create it with TcpSocket::{new}");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// Returns the local address: the unspecified address and port 0 before the socket is bound.
    ///
    /// # Errors
    /// If the system refuses, for example because of a seccomp filter.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_inet())
    }

    /// Makes the kernel prefer this socket, among listeners that share a port, for connections
    /// whose packets this CPU handles (`SO_INCOMING_CPU`; kernels before 6.2 ignore it). Off by
    /// default.
    ///
    /// # Errors
    /// If the system refuses the value.
    pub fn set_incoming_cpu(&self, cpu: u32) -> io::Result<()> {
        self.handle.set(SocketOption::IncomingCpu, cpu)
    }
}

/// Socket options. A listener passes them on to the connections that it accepts.
impl TcpSocket {
    options!(methods: buffer tcp ip bind share keepalive linger error device);
}

/// Exposes the descriptor, for options that this crate lacks. Do not make it blocking. Under a
/// simulated kernel, this is a number that no descriptor has, so every call fails with `EBADF`.
impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        borrow_unowned(&self.core, &self.handle)
    }
}

/// Returns the number of the descriptor: see `AsFd`.
impl AsRawFd for TcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Takes over a TCP socket that is neither listening nor connected, for example one of `socket2`,
/// and makes it non-blocking. A positive `SO_LINGER` is turned off, so that a close does not block.
///
/// # Errors
/// `InvalidInput` for any other descriptor, with its actual kind in the message. Outside a runtime;
/// `Unsupported` under a simulated kernel. The descriptor is then closed.
impl TryFrom<OwnedFd> for TcpSocket {
    type Error = io::Error;

    fn try_from(socket: OwnedFd) -> io::Result<Self> {
        let (core, handle, is_v4) = descriptors::unconnected(socket)?;
        Ok(Self { core, handle, is_v4 })
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpSocket").field("local", &self.local_addr().ok()).finish()
    }
}
