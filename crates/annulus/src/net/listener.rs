//! Listening for TCP connections.
#![allow(unsafe_code)]

use super::descriptors::listening;
use super::listener_handle::retry_while_in_use;
use super::listener_handle::{ListenSettings, ListenerHandle};
use super::option_methods::*;
use super::parts::{Parts, owned};
use super::resolve::ToSocketAddrs;
use super::resolve::first;
use super::socket::NewFd;
use super::socket::Socket;
use super::socket::SocketSettings;
use super::stream_handle::StreamHandle;
use super::tcp::KeepAlive;
use super::tcp::TcpStream;
use crate::errors::Operation;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::connection_limit::ConnectionLimit;
use crate::slots::listeners::Accepted;
use crate::waiters::Wait;
use annulus_kernel::{Address, Kernel, Linux, SocketOption};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Options for a TCP listener.
///
/// ```
/// use annulus::net::{ConnectionLimit, ListenOptions};
///
/// # annulus::run(async {
/// let listener = ListenOptions::new()
///     .backlog(128)
///     .limit(&ConnectionLimit::new(10_000))
///     .nodelay(false)
///     .bind("127.0.0.1:0")?;
/// println!("listening on {}", listener.local_addr()?);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct ListenOptions {
    socket: SocketSettings,
    reuse_port: bool,
    listen: ListenSettings,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            // Accepted sockets inherit `NoDelay`.
            socket: SocketSettings::on(&[SocketOption::ReuseAddress, SocketOption::NoDelay]),
            reuse_port: false,
            listen: ListenSettings::default(),
        }
    }
}

impl ListenOptions {
    /// Returns the defaults: `SO_REUSEADDR` and `TCP_NODELAY` on, `SO_REUSEPORT` off, a backlog of
    /// 4096, no limit.
    pub fn new() -> Self {
        Self::default()
    }

    options!(setters: bind device);

    /// Allows several listeners to share the port. The kernel distributes connections among them
    /// (`SO_REUSEPORT`). Off by default.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Among listeners that share a port, makes the kernel prefer this one for connections whose
    /// packets are processed on `cpu` (`SO_INCOMING_CPU`). Kernels before 6.2 ignore it. By
    /// default, no CPU is set.
    pub fn incoming_cpu(mut self, cpu: u32) -> Self {
        self.socket.put(SocketOption::IncomingCpu, None, cpu);
        self
    }

    /// Sets how many completed connections the kernel keeps until they are accepted. The kernel
    /// limits the number to `net.core.somaxconn`. The default is 4,096.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.listen.backlog = connections;
        self
    }

    /// Accepts only as many connections as the limit allows to be open. The rest wait in the
    /// kernel's backlog.
    ///
    /// Without a limit, which is the default, a listener accepts up to 64 connections ahead of
    /// `accept` (more in a burst), and pauses while the process is out of descriptors.
    pub fn limit(mut self, limit: &ConnectionLimit) -> Self {
        self.listen.limit = Some(limit.clone());
        self
    }
}

/// Options that accepted connections inherit.
impl ListenOptions {
    options!(setters: buffer tcp ip keepalive);
}

impl ListenOptions {
    /// Listens on the first address that works. Looking up a host name blocks the thread;
    /// [`lookup_host`](super::lookup_host) does not, and a numeric address needs no look-up.
    ///
    /// # Errors
    /// `AddrInUse`, `PermissionDenied` (ports below 1024), …, with the address in the message; or
    /// outside a runtime. Before it returns `AddrInUse`, it retries for a tenth of a second and
    /// blocks the loop, because the kernel takes a moment to free the port of a killed server.
    pub fn bind(&self, address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let core = current::get()?;
        let bind =
            |address| retry_while_in_use(Some(&core), || self.bind_one(&core.kernel, address));
        let socket = first(address, Operation::Listen, bind)?;
        TcpListener::new(&core, socket, self.listen.limit.clone())
    }

    fn bind_one(&self, kernel: &Rc<dyn Kernel>, address: SocketAddr) -> io::Result<NewFd> {
        let socket = self.prepared(kernel, address)?;
        socket.set(SocketOption::ReusePort, self.reuse_port.into())?;
        socket.bind(&Address::from(address))?;
        socket.listen(self.listen.backlog)?;
        Ok(socket)
    }

    pub(crate) fn connection_limit(&self) -> Option<&ConnectionLimit> {
        self.listen.limit.as_ref()
    }

    /// Binds `count` Linux sockets that share a port with each other, if no other program uses it.
    /// Needs no runtime.
    pub(crate) fn bind_group(
        &self,
        address: impl ToSocketAddrs,
        count: usize,
    ) -> io::Result<(Vec<OwnedFd>, SocketAddr)> {
        let kernel: Rc<dyn Kernel> = Rc::new(Linux);
        let bind = |address| retry_while_in_use(None, || self.bind_all(&kernel, address, count));
        let (group, address) = first(address, Operation::Listen, bind)?;
        // SAFETY: `into_fd` gives up the only owner of a Linux socket that was created above, and
        // no operation was started on it.
        let own = |socket: NewFd| unsafe { owned(socket.into_fd()) };
        Ok((group.into_iter().map(own).collect(), address))
    }

    fn bind_all(
        &self,
        kernel: &Rc<dyn Kernel>,
        mut address: SocketAddr,
        count: usize,
    ) -> io::Result<(Vec<NewFd>, SocketAddr)> {
        let mut group = Vec::with_capacity(count);
        for index in 0..count {
            let socket = self.prepared(kernel, address)?;
            // The first socket is bound without `SO_REUSEPORT`, so that binding fails if another
            // program has the port. Sharing the port would lose connections to that program.
            if index == 0 {
                socket.bind(&Address::from(address))?;
                address = kernel.local_address(socket.fd())?.to_inet()?;
            }
            socket.set(SocketOption::ReusePort, u32::from(self.reuse_port || count > 1))?;
            if index > 0 {
                socket.bind(&Address::from(address))?;
            }
            socket.listen(self.listen.backlog)?;
            group.push(socket);
        }
        Ok((group, address))
    }

    fn prepared(&self, kernel: &Rc<dyn Kernel>, address: SocketAddr) -> io::Result<NewFd> {
        let socket = NewFd::tcp_for(kernel, address)?;
        self.socket.apply(&socket)?;
        Ok(socket)
    }
}

/// A listening TCP socket. Dropping it stops listening and closes connections that `accept` has not
/// returned.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
///
/// # annulus::run(async {
/// let listener = TcpListener::bind("127.0.0.1:0")?; // Port 0: the system chooses one.
/// let address = listener.local_addr()?;
/// let server = annulus::spawn(async move {
///     let (mut stream, peer) = listener.accept().await?;
///     stream.send(format!("hello, {peer}\n")).await
/// });
/// let mut client = TcpStream::connect(address).await?;
/// let greeting = client.recv().await?.expect("a greeting");
/// assert!(greeting.starts_with(b"hello, 127.0.0.1:"));
/// server.await.unwrap()?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct TcpListener {
    handle: ListenerHandle,
}

impl TcpListener {
    /// Listens with default [`ListenOptions`].
    ///
    /// # Errors
    /// The errors of [`ListenOptions::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        ListenOptions::new().bind(address)
    }

    /// Takes over a listening socket, such as one from a service manager, with a limit on open
    /// connections. `try_from` does the same without a limit.
    ///
    /// # Errors
    /// `InvalidInput` if the descriptor is not a listening TCP socket, with its actual kind in the
    /// message; `Unsupported` under a simulated kernel. Also fails outside a runtime. The descriptor
    /// is closed if the call fails.
    pub fn from_socket_with_limit(
        socket: OwnedFd,
        limit: Option<ConnectionLimit>,
    ) -> io::Result<Self> {
        let (core, socket) = listening(socket)?;
        Self::new(&core, socket, limit)
    }

    pub(super) fn handle(&self) -> &ListenerHandle {
        &self.handle
    }

    pub(super) fn new(
        core: &Rc<Core>,
        socket: NewFd,
        limit: Option<ConnectionLimit>,
    ) -> io::Result<Self> {
        Ok(Self { handle: ListenerHandle::new(core, socket, limit)? })
    }

    /// Returns the next connection and its peer's address.
    ///
    /// Cancel-safe: the accept belongs to the listener, so dropping the future loses no
    /// connection. Several tasks may wait at the same time. Running out of descriptors is not
    /// an error: the listener pauses and tries again.
    ///
    /// Connections that were reset before they were accepted are skipped, and counted in
    /// [`Counters::aborted_accepts`](crate::stats::Counters::aborted_accepts).
    ///
    /// # Errors
    /// The system's error, or if the loop of its runtime is not running.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            if let Some(accepted) = self.adopt(self.handle.accept().await?)? {
                return Ok(accepted);
            }
        }
    }

    /// Polls like [`accept`](Self::accept). A connection wakes every task that polled.
    ///
    /// # Errors
    /// The errors of [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        loop {
            if let Some(accepted) = self.adopt(ready!(self.handle.poll_accept(cx))?)? {
                return Poll::Ready(Ok(accepted));
            }
        }
    }

    fn adopt(&self, handle: StreamHandle) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        TcpStream::new(handle).with_peer()
    }

    /// Like [`poll_accept`](Self::poll_accept), but the connection may move to another runtime.
    pub(crate) fn poll_accept_parts(&self, cx: &Context<'_>) -> Poll<io::Result<Parts>> {
        let Accepted { fd, permit } = ready!(self.handle.poll_one(Wait::Polling, cx))?;
        // SAFETY: the kernel created the descriptor for this accept, and the listener has given it
        // up. It is a real descriptor, because shards share only Linux listeners.
        Poll::Ready(Ok(unsafe { Parts::of_fd(fd, Vec::new(), permit) }))
    }

    pub(crate) fn set(&self, option: SocketOption, value: u32) -> io::Result<()> {
        self.handle.set(option, value)
    }

    options!(getters: bind share);
    options!(methods: ip error device);

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_inet())
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("local", &self.local_addr().ok()).finish()
    }
}
