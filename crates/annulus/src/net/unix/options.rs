//! Options for Unix sockets: streams, listeners and datagram sockets.

use super::super::datagram_handle::DatagramHandle;
use super::super::listener_handle::retry_while_in_use;
use super::super::listener_handle::{ListenSettings, ListenerHandle};
use super::super::option_methods::*;
use super::super::resolve::failed;
use super::super::socket::NewFd;
use super::super::socket::Socket;
use super::super::socket::SocketSettings;
use super::super::stream_handle::StreamHandle;
use super::path::{BoundPath, real_path};
use super::{UnixDatagram, UnixListener, UnixStream};
use crate::blocking::AtEnd;
use crate::errors::Operation;
use crate::fs::open::may_hang;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::runtime::spawn::offload;
use crate::slots::connection_limit::ConnectionLimit;
use crate::slots::datagrams::{DatagramSettings, MessageFormat};
use crate::tasks::consume_budget;
use crate::time::sleep;
use annulus_kernel::{Address, Domain, Linux, SocketOption, SocketType};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::SocketAddr;
use std::panic::resume_unwind;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Pauses between attempts to connect while the listener's backlog is full. Each pause is twice the
/// previous one, up to `LAST_RETRY`.
const FIRST_RETRY: Duration = Duration::from_millis(1);
const LAST_RETRY: Duration = Duration::from_millis(50);

/// Options for opening Unix sockets.
///
/// ```
/// use annulus::net::UnixOptions;
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-pool-{}", std::process::id()));
/// let listener = UnixOptions::new().descriptors(true).backlog(16).listen(&path)?;
/// // Both ends must have been created with this option.
/// let mut client = UnixOptions::new().descriptors(true).connect(&path).await?;
/// let (mut server, _unnamed) = listener.accept().await?;
/// let file = std::fs::File::open("/dev/null")?;
/// server.send_with_descriptors("null", vec![file.into()]).await?;
/// let (name, descriptors) = client.recv_with_descriptors().await?.unwrap();
/// assert_eq!((&*name, descriptors.len()), (&b"null"[..], 1));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct UnixOptions {
    listen: ListenSettings,
    descriptors: bool,
    credentials: bool,
    socket: SocketSettings,
    datagram: DatagramSettings,
}

impl UnixOptions {
    /// Returns the defaults: a backlog of 4096, no limit, no descriptors, the system's buffer
    /// sizes.
    pub fn new() -> Self {
        Self::default()
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

    /// Allows descriptors to be sent with bytes and datagrams (`SCM_RIGHTS`). If off, which is the
    /// default, the kernel closes descriptors that a peer sends, before they count against this
    /// process's limit. A stream that passes descriptors receives one message at a time into heap
    /// memory, so that it knows which bytes the descriptors arrived with.
    ///
    /// [`recv_with_descriptors`](UnixStream::recv_with_descriptors) and
    /// [`recv_message`](UnixDatagram::recv_message) return them. All other ways to take the bytes
    /// close their descriptors, once the last of these bytes has been taken.
    pub fn descriptors(mut self, on: bool) -> Self {
        self.descriptors = on;
        self
    }

    /// Makes received datagrams carry their sender's credentials (`SO_PASSCRED`). For streams, see
    /// [`UnixStream::peer_cred`].
    pub fn credentials(mut self, on: bool) -> Self {
        self.credentials = on;
        self
    }

    options!(setters: buffer);

    /// Allows several datagrams in flight at once, which may therefore be reordered. If off, which
    /// is the default, one datagram leaves per turn.
    ///
    /// If on, a peer that does not read does not delay sends to other peers, unless the socket is
    /// connected to it. If more is queued than the runtime's [unsent
    /// limit](crate::Builder::unsent_limit), the datagrams that have waited longest for room are
    /// dropped, and the next send to the same peer fails with `WouldBlock`. The kernel counts
    /// unread datagrams against [`send_buffer_size`](Self::send_buffer_size). Make it large enough
    /// for the datagrams in the queues of all peers that do not read (`net.unix.max_dgram_qlen` per
    /// peer).
    pub fn unordered(mut self, on: bool) -> Self {
        self.datagram.unordered = on;
        self
    }

    /// Sets the size of the largest datagram that is received whole, at most 64 MiB. Opening the
    /// socket fails for larger values. By default, it is what fits a buffer of
    /// [`Builder::datagram_buffer_size`](crate::Builder::datagram_buffer_size), which is more than
    /// 66 KiB unless that is changed. If a larger size is set, each receive allocates that much
    /// heap memory.
    pub fn max_datagram(mut self, bytes: usize) -> Self {
        self.datagram.max_datagram = Some(bytes);
        self
    }

    /// Listens on a path; see [`UnixListener::bind`].
    ///
    /// # Errors
    /// The errors of [`UnixListener::bind`].
    pub fn listen(&self, path: impl AsRef<Path>) -> io::Result<UnixListener> {
        self.listen_at(Address::from_unix_path(path.as_ref())?)
    }

    /// Listens on an address, which may be an abstract name.
    ///
    /// # Errors
    /// The errors of [`UnixListener::bind`].
    pub fn listen_addr(&self, address: &SocketAddr) -> io::Result<UnixListener> {
        self.listen_at(Address::from_std_unix(address)?)
    }

    fn listen_at(&self, address: Address) -> io::Result<UnixListener> {
        let core = current::get()?;
        let listen = || {
            let socket = self.socket(&core, SocketType::Stream)?;
            let listen = || socket.listen(self.listen.backlog);
            let path = BoundPath::bind(&core, &socket, SocketType::Stream, &address, listen)?;
            let handle = ListenerHandle::new(&core, socket, self.listen.limit.clone())?;
            Ok(UnixListener::new(handle, path, self.descriptors))
        };
        retry_while_in_use(Some(&core), listen)
            .map_err(|error| failed(error, Operation::Listen, address))
    }

    /// Connects to a path; see [`UnixStream::connect`].
    ///
    /// # Errors
    /// The errors of [`UnixStream::connect`].
    pub async fn connect(&self, path: impl AsRef<Path>) -> io::Result<UnixStream> {
        self.connect_at(Address::from_unix_path(path.as_ref())?).await
    }

    /// Connects to an address, which may be an abstract name.
    ///
    /// # Errors
    /// The errors of [`UnixStream::connect`].
    pub async fn connect_addr(&self, address: &SocketAddr) -> io::Result<UnixStream> {
        self.connect_at(Address::from_std_unix(address)?).await
    }

    async fn connect_at(&self, address: Address) -> io::Result<UnixStream> {
        // A connect may fail without waiting. Without this use of budget, a task that retries in a
        // loop would starve other tasks.
        consume_budget().await;
        let core = current::get()?;
        let socket = self.socket(&core, SocketType::Stream)?;
        let may_hang = match real_path(&core, &address) {
            Some(path) => may_hang(path).await?,
            None => false,
        };
        let mut pause = FIRST_RETRY;
        // A Unix connect completes at once unless the backlog is full. No event reports that the
        // backlog has room again, so retry by timer.
        while let Err(error) = connect_once(&core, &socket, &address, may_hang).await {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(failed(error, Operation::Connect, address));
            }
            sleep(pause).await;
            pause = (2 * pause).min(LAST_RETRY);
        }
        self.stream(&core, socket)
    }

    /// Creates two streams that are connected to each other.
    ///
    /// # Errors
    /// If no descriptor is left, or outside a runtime. `Unsupported` with
    /// [`descriptors`](Self::descriptors) under a simulated kernel.
    pub fn pair(&self) -> io::Result<(UnixStream, UnixStream)> {
        let core = current::get()?;
        let (one, other) = self.sockets(&core, SocketType::Stream)?;
        Ok((self.stream(&core, one)?, self.stream(&core, other)?))
    }

    /// Opens a datagram socket at a path; see [`UnixDatagram::bind`].
    ///
    /// # Errors
    /// The errors of [`UnixDatagram::bind`].
    pub fn bind(&self, path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        self.bind_at(Address::from_unix_path(path.as_ref())?)
    }

    /// Opens a datagram socket at an address, which may be an abstract name. For an unnamed
    /// address, see [`unbound`](Self::unbound).
    ///
    /// # Errors
    /// The errors of [`UnixDatagram::bind`].
    pub fn bind_addr(&self, address: &SocketAddr) -> io::Result<UnixDatagram> {
        if address.is_unnamed() {
            self.unbound()
        } else {
            self.bind_at(Address::from_std_unix(address)?)
        }
    }

    /// Opens a datagram socket without an address; see [`UnixDatagram::unbound`].
    ///
    /// # Errors
    /// The errors of [`UnixDatagram::unbound`].
    pub fn unbound(&self) -> io::Result<UnixDatagram> {
        let core = current::get()?;
        let socket = self.socket(&core, SocketType::Datagram)?;
        self.datagram(&core, socket, None)
    }

    fn bind_at(&self, address: Address) -> io::Result<UnixDatagram> {
        let core = current::get()?;
        let bind = || {
            let socket = self.socket(&core, SocketType::Datagram)?;
            let path = BoundPath::bind(&core, &socket, SocketType::Datagram, &address, || Ok(()))?;
            self.datagram(&core, socket, path)
        };
        retry_while_in_use(Some(&core), bind)
            .map_err(|error| failed(error, Operation::Bind, address))
    }

    /// Creates two datagram sockets that are connected to each other.
    ///
    /// # Errors
    /// The errors of [`pair`](Self::pair); `InvalidInput` if [`max_datagram`](Self::max_datagram)
    /// is too large.
    pub fn datagram_pair(&self) -> io::Result<(UnixDatagram, UnixDatagram)> {
        let core = current::get()?;
        let (one, other) = self.sockets(&core, SocketType::Datagram)?;
        let pair = (self.datagram(&core, one, None)?, self.datagram(&core, other, None)?);
        pair.0.set_connected()?;
        pair.1.set_connected()?;
        Ok(pair)
    }

    fn stream(&self, core: &Rc<Core>, socket: NewFd) -> io::Result<UnixStream> {
        let handle = StreamHandle::new(core.clone(), socket, None)?;
        if self.descriptors {
            return UnixStream::passing_descriptors(handle);
        }
        Ok(UnixStream::new(handle))
    }

    fn datagram(
        &self,
        core: &Rc<Core>,
        socket: NewFd,
        path: Option<BoundPath>,
    ) -> io::Result<UnixDatagram> {
        let format = match (self.descriptors, self.credentials) {
            (true, _) => MessageFormat::UNIX_DESCRIPTORS,
            (false, true) => MessageFormat::UNIX_CREDENTIALS,
            (false, false) => MessageFormat::UNIX,
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
        if self.descriptors {
            core.require_real(
                "simulated sockets cannot pass descriptors, because those belong to the real process; \
                 in a simulation, leave UnixOptions::descriptors off",
            )?;
        }
        if self.credentials {
            socket.set(SocketOption::PassCredentials, 1)?;
        }
        self.socket.apply(socket)
    }
}

/// Connects on the loop, or on another thread if the path may be on a file system that hangs.
async fn connect_once(
    core: &Rc<Core>,
    socket: &NewFd,
    address: &Address,
    may_hang: bool,
) -> io::Result<()> {
    if !may_hang {
        return core.kernel.connect(socket.fd(), address);
    }
    // The other thread may outlive this socket, so it gets a duplicate.
    let (shared, address) = (core.kernel.duplicate(socket.fd())?, *address);
    let connect = move || Linux::connect_borrowed(shared.as_fd(), &address);
    offload(core, AtEnd::Leaves, connect).await?.unwrap_or_else(|panic| resume_unwind(panic))
}
