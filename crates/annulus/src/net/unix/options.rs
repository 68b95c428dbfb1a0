//! How to open Unix sockets, of all kinds.

use super::super::ConnectionLimit;
use super::super::datagram_handle::DatagramHandle;
use super::super::listener_handle::Acceptor;
use super::super::resolve::failed;
use super::super::stream_handle::{Buffers, NewFd, Socket};
use super::address::{of_path, of_std};
use super::path::BoundPath;
use super::{UnixDatagram, UnixListener, UnixStream};
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::datagrams::{Format, Settings};
use crate::time::sleep;
use annulus_kernel::{Address, Domain, SocketOption, SocketType};
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// A connect that finds the listener's backlog full tries again after so long, and longer each time.
const FIRST_RETRY: Duration = Duration::from_millis(1);
const LAST_RETRY: Duration = Duration::from_millis(50);

/// How to open a Unix socket.
#[derive(Clone, Debug)]
pub struct UnixOptions {
    backlog: u32,
    descriptors: bool,
    credentials: bool,
    buffers: Buffers,
    limit: Option<ConnectionLimit>,
    datagram: Settings,
}

impl Default for UnixOptions {
    fn default() -> Self {
        Self {
            backlog: 4096,
            descriptors: false,
            credentials: false,
            buffers: Buffers::default(),
            limit: None,
            datagram: Settings::default(),
        }
    }
}

impl UnixOptions {
    /// A backlog of 4096, no descriptors, the system's buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Connections that the kernel completes and keeps until they are accepted; cut to `net.core.somaxconn`.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = connections;
        self
    }

    /// Accepts no more connections than the limit allows to be open: see
    /// [`ListenOptions::limit`](crate::net::ListenOptions::limit).
    pub fn limit(mut self, limit: &ConnectionLimit) -> Self {
        self.limit = Some(limit.clone());
        self
    }

    /// Descriptors may travel with the bytes; off by default, and what is sent along is then closed by the kernel, before it
    /// counts against this process's limit. A stream that passes descriptors receives a message at a time, into heap memory:
    /// the price of knowing what came with what.
    pub fn descriptors(mut self, on: bool) -> Self {
        self.descriptors = on;
        self
    }

    /// Datagrams tell who sent them (`SO_PASSCRED`). A stream tells by [`UnixStream::peer_cred`].
    pub fn credentials(mut self, on: bool) -> Self {
        self.credentials = on;
        self
    }

    /// Bytes the kernel may hold until they are received (`SO_RCVBUF`).
    pub fn recv_buffer(mut self, bytes: usize) -> Self {
        self.buffers.recv = Some(bytes);
        self
    }

    /// Bytes the kernel may hold for this socket at its peers (`SO_SNDBUF`): also the limit for a datagram.
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.buffers.send = Some(bytes);
        self
    }

    /// Datagrams may overtake one another: several may be on their way at once. Off by default: one leaves a turn.
    ///
    /// Whoever does not read, but for a connected peer, holds up nobody then: where more waits than the runtime's
    /// [send bound](crate::Builder::send_bound), what found no room first is given up, and told as `WouldBlock` by the next
    /// send on the same way. What they have not read the kernel counts against [`send_buffer`](Self::send_buffer), which is
    /// to be large enough for as much as they hold (`net.unix.max_dgram_qlen` datagrams each).
    pub fn unordered(mut self, on: bool) -> Self {
        self.datagram.unordered = on;
        self
    }

    /// Largest datagram to be received whole; about 66 KiB by default, 64 MiB at most, more than which is refused when the
    /// socket is made. For larger ones than by default each receive takes so much heap memory.
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.datagram.max_datagram = Some(bytes);
        self
    }

    /// Listens on a path; see [`UnixListener::bind`].
    ///
    /// # Errors
    /// As there.
    pub fn listen(&self, path: impl AsRef<Path>) -> io::Result<UnixListener> {
        self.listen_at(of_path(path.as_ref())?)
    }

    /// Listens on an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`UnixListener::bind`].
    pub fn listen_addr(&self, address: &SocketAddr) -> io::Result<UnixListener> {
        self.listen_at(of_std(address)?)
    }

    fn listen_at(&self, address: Address) -> io::Result<UnixListener> {
        let core = current::get()?;
        let listen = || {
            let socket = self.socket(&core, SocketType::Stream)?;
            let listen = || socket.listen(self.backlog);
            let path = BoundPath::bind(&core, &socket, SocketType::Stream, &address, listen)?;
            let acceptor = Acceptor::new(&core, socket, self.limit.clone())?;
            Ok(UnixListener::new(acceptor, path, self.descriptors))
        };
        listen().map_err(|error| failed(error, "listening on", &address))
    }

    /// Connects to a path; see [`UnixStream::connect`].
    ///
    /// # Errors
    /// As there.
    pub async fn connect(&self, path: impl AsRef<Path>) -> io::Result<UnixStream> {
        self.connect_at(of_path(path.as_ref())?).await
    }

    /// Connects to an address, which may be an abstract name.
    ///
    /// # Errors
    /// As [`UnixStream::connect`].
    pub async fn connect_addr(&self, address: &SocketAddr) -> io::Result<UnixStream> {
        self.connect_at(of_std(address)?).await
    }

    async fn connect_at(&self, address: Address) -> io::Result<UnixStream> {
        let core = current::get()?;
        let socket = self.socket(&core, SocketType::Stream)?;
        let mut pause = FIRST_RETRY;
        // It is decided at once, but for a full backlog, of which nothing tells when it has room.
        while let Err(error) = core.kernel.connect(socket.fd(), &address) {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(failed(error, "connecting to", &address));
            }
            sleep(pause).await;
            pause = (2 * pause).min(LAST_RETRY);
        }
        self.stream(&core, socket)
    }

    /// Two streams, connected to each other.
    ///
    /// # Errors
    /// Out of descriptors, or outside a runtime.
    pub fn pair(&self) -> io::Result<(UnixStream, UnixStream)> {
        let core = current::get()?;
        let (one, other) = self.sockets(&core, SocketType::Stream)?;
        Ok((self.stream(&core, one)?, self.stream(&core, other)?))
    }

    /// A datagram socket at a path; see [`UnixDatagram::bind`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(&self, path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        self.bind_at(of_path(path.as_ref())?)
    }

    /// A datagram socket at an address, which may be an abstract name; without a name, it can only send.
    ///
    /// # Errors
    /// As [`UnixDatagram::bind`].
    pub fn bind_addr(&self, address: &SocketAddr) -> io::Result<UnixDatagram> {
        if address.is_unnamed() {
            let core = current::get()?;
            let socket = self.socket(&core, SocketType::Datagram)?;
            return self.datagram(&core, socket, None);
        }
        self.bind_at(of_std(address)?)
    }

    fn bind_at(&self, address: Address) -> io::Result<UnixDatagram> {
        let core = current::get()?;
        let bind = || {
            let socket = self.socket(&core, SocketType::Datagram)?;
            let path = BoundPath::bind(&core, &socket, SocketType::Datagram, &address, || Ok(()))?;
            self.datagram(&core, socket, path)
        };
        bind().map_err(|error| failed(error, "binding", &address))
    }

    /// Two datagram sockets, connected to each other.
    ///
    /// # Errors
    /// Out of descriptors, or outside a runtime.
    pub fn datagram_pair(&self) -> io::Result<(UnixDatagram, UnixDatagram)> {
        let core = current::get()?;
        let (one, other) = self.sockets(&core, SocketType::Datagram)?;
        let pair = (self.datagram(&core, one, None)?, self.datagram(&core, other, None)?);
        pair.0.set_connected()?;
        pair.1.set_connected()?;
        Ok(pair)
    }

    fn stream(&self, core: &Rc<Core>, socket: NewFd) -> io::Result<UnixStream> {
        let socket = Socket::new(core.clone(), socket.into_fd())?;
        if self.descriptors {
            core.enter()?.streams.get(socket.slot).0.pass_descriptors();
        }
        Ok(UnixStream::new(socket))
    }

    fn datagram(
        &self,
        core: &Rc<Core>,
        socket: NewFd,
        path: Option<BoundPath>,
    ) -> io::Result<UnixDatagram> {
        let format = match (self.descriptors, self.credentials) {
            (true, _) => Format::UNIX_DESCRIPTORS,
            (false, true) => Format::UNIX_CREDENTIALS,
            (false, false) => Format::UNIX,
        };
        Ok(UnixDatagram::new(DatagramHandle::new(core, socket, format, self.datagram)?, path))
    }

    fn socket(&self, core: &Core, kind: SocketType) -> io::Result<NewFd> {
        let socket = NewFd::new(&core.kernel, Domain::Unix, kind)?;
        self.set_up(core, &socket)?;
        Ok(socket)
    }

    fn sockets(&self, core: &Core, kind: SocketType) -> io::Result<(NewFd, NewFd)> {
        let pair = NewFd::pair(&core.kernel, kind)?;
        self.set_up(core, &pair.0)?;
        self.set_up(core, &pair.1)?;
        Ok(pair)
    }

    fn set_up(&self, core: &Core, socket: &NewFd) -> io::Result<()> {
        if self.descriptors && !core.kernel.real_descriptors() {
            let text = "simulated sockets pass no descriptors: they would be the process's own";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let credentials = self.credentials.then_some(SocketOption::PassCredentials(true));
        socket.set_all(self.buffers.options().into_iter().chain([credentials]))
    }
}
