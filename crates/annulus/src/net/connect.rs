//! Connecting over TCP.

use super::new_fd::NewFd;
use super::resolve::{failed, last_error, resolve};
use super::stream::TcpStream;
use super::stream_handle::StreamHandle;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::time::Instant;
use annulus_kernel::{Address, Fd, SocketOption};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

/// Options of a TCP connection to make.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    timeout: Option<Duration>,
    nodelay: bool,
    source: Option<IpAddr>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { timeout: None, nodelay: true, source: None }
    }
}

impl ConnectOptions {
    /// `TCP_NODELAY` on, and only the system's timeout (minutes).
    pub fn new() -> Self {
        Self::default()
    }

    /// Time allowed for each address.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Small sends leave at once (`TCP_NODELAY`). On by default.
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }

    /// The local address; by default the system chooses it. The system always chooses the port. Several local addresses allow more
    /// connections to one peer than there are ports.
    pub fn source(mut self, address: IpAddr) -> Self {
        self.source = Some(address);
        self
    }

    /// Connects: see [`TcpStream::connect`].
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let core = current::get()?;
        let mut error = None;
        for address in resolve(address)? {
            match self.connect_one(&core, address).await {
                Ok(stream) => return Ok(stream),
                Err(e) => error = Some(failed(e, "connecting to", &address)),
            }
        }
        Err(last_error(error))
    }

    async fn connect_one(&self, core: &Rc<Core>, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = NewFd::tcp_for(&core.kernel, address)?;
        socket.set(SocketOption::NoDelay(self.nodelay))?;
        if let Some(source) = self.source {
            socket.set(SocketOption::BindAddressNoPort(true))?;
            socket.bind(&Address::from(SocketAddr::new(source, 0)))?;
        }
        let attempt = Attempt::start(core, socket, address, self.timeout)?;
        let socket = NewFd::own(&core.kernel, attempt.connected().await?);
        Ok(TcpStream::new(StreamHandle::new(core.clone(), socket, None)?))
    }
}

/// An attempt to connect, cancelled on drop.
struct Attempt {
    core: Rc<Core>,
    slot: Option<u32>,
}

impl Attempt {
    fn start(
        core: &Rc<Core>,
        socket: NewFd,
        address: SocketAddr,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let inner = &mut *core.enter()?;
        let (fd, address) = (socket.into_fd(), Address::from(address));
        let slot = inner.connects.start(&mut inner.io, fd, address, deadline);
        Ok(Self { core: core.clone(), slot: Some(slot) })
    }

    async fn connected(mut self) -> io::Result<Fd> {
        poll_fn(|cx| {
            let Some(slot) = self.slot else { unreachable!("polled after it was ready") };
            let inner = &mut *self.core.enter_running()?;
            let outcome = ready!(inner.connects.poll(&mut inner.io, slot, cx));
            self.slot = None;
            Poll::Ready(outcome)
        })
        .await
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let (Some(slot), Ok(mut inner)) = (self.slot, self.core.enter()) {
            let inner = &mut *inner;
            inner.connects.drop_connect(&mut inner.io, slot);
        }
    }
}
