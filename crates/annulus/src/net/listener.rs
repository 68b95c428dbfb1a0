//! Listening for TCP connections.

use super::ConnectionLimit;
use super::listener_handle::Acceptor;
use super::parts::{Parts, given, owned};
use super::resolve::first;
use super::stream::TcpStream;
use super::stream_handle::NewFd;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::listeners::Accepted;
use annulus_kernel::{Address, Kernel, Linux, SocketOption};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    reuse_address: bool,
    reuse_port: bool,
    incoming_cpu: Option<u32>,
    backlog: u32,
    nodelay: bool,
    limit: Option<ConnectionLimit>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            reuse_address: true,
            reuse_port: false,
            incoming_cpu: None,
            backlog: 4096,
            nodelay: true,
            limit: None,
        }
    }
}

impl ListenOptions {
    /// Address reuse and no delay on, port reuse off, a backlog of 4096, no limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a restarted server bind while old connections linger (`SO_REUSEADDR`). On by default.
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.reuse_address = on;
        self
    }

    /// Lets several listeners share the port, the kernel spreading connections over them (`SO_REUSEPORT`). Off by
    /// default.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Of listeners that share a port, prefers this one for connections whose packets this CPU handles (`SO_INCOMING_CPU`;
    /// 6.2, older kernels ignore it). Off by default.
    pub fn incoming_cpu(mut self, cpu: u32) -> Self {
        self.incoming_cpu = Some(cpu);
        self
    }

    /// Connections that the kernel completes and keeps until they are accepted; cut to `net.core.somaxconn`. 4096 by
    /// default.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Small sends leave at once (`TCP_NODELAY`) on every accepted stream. On by default: an answer in several small
    /// sends otherwise waits for the peer's delayed acknowledgement, 40 ms.
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }

    /// Accepts no more connections than the limit allows to be open; the rest waits in the kernel's backlog. No limit by
    /// default: then a listener accepts up to 64 connections ahead of [`TcpListener::accept`], a burst once more, and
    /// pauses while no descriptor is left.
    pub fn limit(mut self, limit: &ConnectionLimit) -> Self {
        self.limit = Some(limit.clone());
        self
    }

    /// Listens on the first of the addresses that works. Resolving a name blocks the thread; numbers do not.
    ///
    /// # Errors
    /// `AddrInUse`, `PermissionDenied` (ports below 1024), …, naming the address; or outside a runtime.
    pub fn bind(&self, address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let core = current::get()?;
        let bind = |address| self.bind_one(&core.kernel, address);
        let socket = first(address, "listening on", bind)?;
        TcpListener::adopt(&core, socket, self.limit.clone())
    }

    fn bind_one(&self, kernel: &Rc<dyn Kernel>, address: SocketAddr) -> io::Result<NewFd> {
        let socket = self.prepared(kernel, address)?;
        socket.set(SocketOption::ReusePort(self.reuse_port))?;
        socket.bind(&Address::from(address))?;
        socket.listen(self.backlog)?;
        Ok(socket)
    }

    pub(crate) fn connection_limit(&self) -> Option<&ConnectionLimit> {
        self.limit.as_ref()
    }

    /// Binds a group of real sockets that share a port nobody else has, outside any runtime.
    pub(crate) fn bind_group(
        &self,
        address: impl ToSocketAddrs,
        count: usize,
    ) -> io::Result<(Vec<OwnedFd>, SocketAddr)> {
        let kernel: Rc<dyn Kernel> = Rc::new(Linux);
        let bind = |address| self.bind_all(&kernel, address, count);
        let (group, address) = first(address, "listening on", bind)?;
        Ok((group.into_iter().map(|socket| owned(socket.into_fd())).collect(), address))
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
            // The first finds out whether another program has the port: sharing it would split the connections with that.
            if index == 0 {
                socket.bind(&Address::from(address))?;
                address = kernel.local_address(socket.fd())?.to_inet()?;
            }
            socket.set(SocketOption::ReusePort(self.reuse_port || count > 1))?;
            if index > 0 {
                socket.bind(&Address::from(address))?;
            }
            socket.listen(self.backlog)?;
            group.push(socket);
        }
        Ok((group, address))
    }

    fn prepared(&self, kernel: &Rc<dyn Kernel>, address: SocketAddr) -> io::Result<NewFd> {
        let socket = NewFd::tcp_for(kernel, address)?;
        socket.set(SocketOption::ReuseAddress(self.reuse_address))?;
        // Accepted sockets inherit it.
        socket.set(SocketOption::NoDelay(self.nodelay))?;
        if let Some(cpu) = self.incoming_cpu {
            socket.set(SocketOption::IncomingCpu(cpu))?;
        }
        Ok(socket)
    }
}

/// A listening TCP socket. Dropping it stops listening; connections it had accepted and nobody claimed are closed.
pub struct TcpListener {
    acceptor: Acceptor,
}

impl TcpListener {
    /// Listens with default [`ListenOptions`].
    ///
    /// # Errors
    /// As [`ListenOptions::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        ListenOptions::new().bind(address)
    }

    /// Takes over a socket that listens already, such as one that a service manager passed on.
    ///
    /// # Errors
    /// Outside a runtime, or under a simulated kernel; the socket is then closed.
    pub fn from_socket(socket: OwnedFd) -> io::Result<Self> {
        Self::from_socket_with_limit(socket, None)
    }

    /// As [`from_socket`](Self::from_socket), with a limit on the connections that are open at once.
    ///
    /// # Errors
    /// As there.
    pub fn from_socket_with_limit(
        socket: OwnedFd,
        limit: Option<ConnectionLimit>,
    ) -> io::Result<Self> {
        let core = current::get()?;
        if !core.kernel.real_descriptors() {
            let text = "a real socket cannot enter a simulation";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Self::adopt(&core, NewFd::own(&core.kernel, given(socket)), limit)
    }

    fn adopt(core: &Rc<Core>, socket: NewFd, limit: Option<ConnectionLimit>) -> io::Result<Self> {
        Ok(Self { acceptor: Acceptor::new(core, socket, limit)? })
    }

    /// The next connection, and its peer's address.
    ///
    /// Cancel-safe: the accept belongs to the listener; dropping the future loses no connection. Several tasks may wait
    /// at once. Running out of descriptors is no error here: the listener pauses until one is closed.
    ///
    /// A connection that its peer reset before it was accepted is passed over: it has no address any more, and nothing can be read
    /// from it. [`Counters::aborted_accepts`](crate::Counters) counts these, and those that the kernel reports as failed.
    ///
    /// # Errors
    /// What makes the listener useless; or after the runtime's end.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let socket = self.acceptor.accept().await?;
            if let Some(accepted) = TcpStream::from_socket(socket).with_peer() {
                return Ok(accepted);
            }
        }
    }

    /// As [`accept`](Self::accept), by polling. Every task that polled is woken.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        loop {
            let socket = ready!(self.acceptor.poll_accept(cx))?;
            if let Some(accepted) = TcpStream::from_socket(socket).with_peer() {
                return Poll::Ready(Ok(accepted));
            }
        }
    }

    /// As [`accept`](Self::accept), but leaves the connection to whichever runtime.
    pub(crate) async fn accept_parts(&self) -> io::Result<Parts> {
        let Accepted { fd, permit } = self.acceptor.accept_one().await?;
        Ok(Parts::of_fd(fd, Vec::new(), permit))
    }

    /// Has what concerns only this listener set on its socket.
    pub(crate) fn set(&self, option: SocketOption) -> io::Result<()> {
        self.acceptor.with_fd(|kernel, fd| kernel.set_option(fd, option))
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.acceptor.with_fd(|kernel, fd| kernel.local_address(fd)?.to_inet())
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("local", &self.local_addr().ok()).finish()
    }
}
