//! Connecting over TCP: to one address, or to the first of several that answers ("Happy Eyeballs",
//! RFC 8305).

use super::listener_handle::retry_while_closing;
use super::option_methods::*;
use super::resolve::ToSocketAddrs;
use super::resolve::{and_then, failed, last_error, of_host, resolve_target};
use super::socket::NewFd;
use super::socket::Socket;
use super::socket::SocketSettings;
use super::stream_handle::StreamHandle;
use super::tcp::KeepAlive;
use super::tcp::TcpStream;
use crate::errors::Operation;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::tasks::consume_budget;
use crate::time::{Sleep, sleep};
use crate::timers::Instant;
use crate::trace;
use annulus_kernel::{Address, Fd, SocketOption};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Options for opening a TCP connection.
///
/// ```
/// use annulus::net::{ConnectOptions, KeepAlive, TcpListener};
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let options = ConnectOptions::new()
///     .timeout(Duration::from_secs(5)) // For each address.
///     .keepalive(KeepAlive { time: Duration::from_secs(60), ..KeepAlive::default() })
///     .source([127, 0, 0, 1].into());
/// let stream = options.connect(listener.local_addr()?).await?; // Options can be used again.
/// assert!(stream.local_addr()?.ip().is_loopback());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    timeout: Option<Duration>,
    attempt_delay: Duration,
    socket: SocketSettings,
    local: Option<SocketAddr>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        let socket = SocketSettings::on(&[SocketOption::NoDelay]);
        Self { timeout: None, attempt_delay: ATTEMPT_DELAY, socket, local: None }
    }
}

impl ConnectOptions {
    /// Returns the defaults: `TCP_NODELAY` on, and no timeout except the system's, which is some
    /// minutes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time allowed for looking up a name, and then for each of its addresses.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how long to wait for a result before also trying the next address of a name. The
    /// default is 250 ms, as RFC 8305 recommends. With `Duration::MAX`, an address is tried only
    /// after the previous one has failed. The same happens if [`bind`](Self::bind) sets a port,
    /// which only one socket can have at a time, unless [`reuse_address`](Self::reuse_address) or
    /// [`reuse_port`](Self::reuse_port) is on.
    pub fn attempt_delay(mut self, delay: Duration) -> Self {
        self.attempt_delay = delay;
        self
    }

    /// Sets the local IP address, which the system chooses by default, and lets the system choose
    /// the port. To set the port too, use [`bind`](Self::bind). With connections from several local
    /// addresses, a host can have more connections to one peer than there are ports.
    pub fn source(self, address: IpAddr) -> Self {
        self.bind(SocketAddr::new(address, 0))
    }

    /// Sets the local address and port. For port 0, the system chooses one. The connect fails with
    /// `AddrInUse` if the port is in use, even by a connection in TIME_WAIT. With
    /// [`reuse_address`](Self::reuse_address), connections to other peers may use the same port.
    /// The connect also fails if the local address and the peer's address have different IP
    /// versions.
    pub fn bind(mut self, local: SocketAddr) -> Self {
        self.local = Some(local);
        self
    }

    options!(setters: buffer tcp ip bind share device keepalive);

    /// Connects with these options, like [`TcpStream::connect`].
    ///
    /// # Errors
    /// The errors of [`TcpStream::connect`], and `InvalidInput` for an option value that the system
    /// does not support.
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        // A connect may fail without waiting. Without this use of budget, a task that retries in a
        // loop would starve other tasks.
        consume_budget().await;
        let core = current::get()?;
        let target = address.target()?;
        let host = target.host().map(str::to_owned);
        let addresses = resolve_target(target, self.timeout).await?;
        let connected = match addresses[..] {
            [address] => self.try_one(&core, address).await,
            _ => {
                let attempt = |address| self.try_one(&core, address);
                Race::new(addresses, self.parallel_delay(), attempt).await
            }
        };
        connected.map_err(|error| of_host(host.as_deref(), error))
    }

    /// Returns the delay before another address is tried in parallel. With a local port that only
    /// one socket can have, a parallel attempt could not be bound and its address would be lost.
    fn parallel_delay(&self) -> Duration {
        let has_port = self.local.is_some_and(|local| local.port() != 0);
        let sharing = [SocketOption::ReuseAddress, SocketOption::ReusePort];
        let may_share = sharing.into_iter().any(|option| self.socket.is_on(option));
        if has_port && !may_share { Duration::MAX } else { self.attempt_delay }
    }

    /// Like [`connect_one`](Self::connect_one), but adds the address to errors and traces the
    /// outcome.
    async fn try_one(&self, core: &Rc<Core>, address: SocketAddr) -> io::Result<TcpStream> {
        with_address(self.connect_one(core, address).await, address)
    }

    async fn connect_one(&self, core: &Rc<Core>, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = NewFd::tcp_for(&core.kernel, address)?;
        self.socket.apply(&socket)?;
        if let Some(local) = self.local {
            socket.set(SocketOption::BindAddressNoPort, u32::from(local.port() == 0))?;
            // A socket that was dropped in this turn, such as the one of a cancelled attempt, may
            // still have the port.
            let bound = retry_while_closing(core, || socket.bind(&Address::from(local)));
            bound.map_err(|error| failed(error, Operation::Bind, local))?;
        }
        connect_socket(core, socket, address, self.timeout).await
    }
}

/// Connects a socket. Dropping the future cancels the attempt and closes the socket.
pub(super) async fn connect_socket(
    core: &Rc<Core>,
    socket: NewFd,
    address: SocketAddr,
    timeout: Option<Duration>,
) -> io::Result<TcpStream> {
    let attempt = Attempt::start(core, socket, address, timeout)?;
    let socket = NewFd::own(&core.kernel, attempt.connected().await?);
    refuse_itself(&socket, address)?;
    let handle = StreamHandle::new(core.clone(), socket, None)?;
    handle.set_peer(address);
    Ok(TcpStream::new(handle))
}

/// Adds the address to the error of a connection attempt, and traces the outcome.
pub(super) fn with_address<T>(connected: io::Result<T>, address: SocketAddr) -> io::Result<T> {
    match connected {
        Ok(stream) => {
            trace::event("connected", &address);
            Ok(stream)
        }
        Err(error) => {
            let failed = failed(error, Operation::Connect, address);
            trace::failure("a connection has failed", &failed);
            Err(failed)
        }
    }
}

/// Refuses a socket that is connected to itself. This happens if no server listens, the port is in
/// the ephemeral range, and the system chooses the same port for the client. The connection would
/// prevent the server from binding the port.
///
/// # Errors
/// `ConnectionRefused`, as if the system had chosen another port. The socket is set to reset its
/// connection when it closes, which frees the port at once.
fn refuse_itself(socket: &NewFd, address: SocketAddr) -> io::Result<()> {
    let is_itself = socket.with_fd(|kernel, fd| {
        let local = kernel.local_address(fd)?.to_inet()?;
        // The peer's address may differ from the requested one: 0.0.0.0 connects to 127.0.0.1.
        Ok(local.port() == address.port() && {
            let peer = kernel.peer_address(fd)?.to_inet()?;
            (local.ip(), local.port()) == (peer.ip(), peer.port())
        })
    });
    // These calls fail if the connection has been reset in the meantime. The first use of the
    // stream reports the reset.
    if !is_itself.unwrap_or(false) {
        return Ok(());
    }
    socket.set(SocketOption::Linger, 0)?;
    Err(rustix::io::Errno::CONNREFUSED.into())
}

/// An attempt to connect to one address. Dropping it cancels the attempt.
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
        let inner = &mut *core.borrow()?;
        let (fd, address) = (socket.into_fd(), Address::from(address));
        let slot = inner.connects.start(&mut inner.state, fd, address, deadline);
        Ok(Self { core: core.clone(), slot: Some(slot) })
    }

    async fn connected(mut self) -> io::Result<Fd> {
        poll_fn(|cx| {
            let Some(slot) = self.slot else { unreachable!("polled after completion") };
            let inner = &mut *self.core.borrow_running()?;
            let outcome = ready!(inner.connects.poll(&mut inner.state, slot, cx));
            self.slot = None;
            Poll::Ready(outcome)
        })
        .await
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.core.if_alive(|inner| inner.connects.drop_connect(&mut inner.state, slot));
        }
    }
}

/// Delay before the next address is tried in parallel, as RFC 8305 recommends.
pub(super) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// A race of connection attempts. Dropping it cancels the running attempts.
pub(super) struct Race<A, F> {
    attempt: A,
    untried: VecDeque<SocketAddr>,
    /// Running attempts, oldest first.
    running: Vec<Pin<Box<F>>>,
    delay: Duration,
    /// Fires when the next address should be tried.
    next: Pin<Box<Sleep>>,
    errors: Option<io::Error>,
}

impl<A: Fn(SocketAddr) -> F, F: Future<Output = io::Result<TcpStream>>> Race<A, F> {
    /// Creates a race. `attempt` starts to connect to one address.
    pub(super) fn new(addresses: Vec<SocketAddr>, delay: Duration, attempt: A) -> Self {
        Self {
            attempt,
            untried: in_turns(addresses),
            running: Vec::new(),
            delay,
            next: Box::pin(sleep(delay)),
            errors: None,
        }
    }

    /// Polls all attempts and returns the first stream that has connected.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> Option<TcpStream> {
        let mut place = 0;
        while let Some(attempt) = self.running.get_mut(place) {
            match attempt.as_mut().poll(cx) {
                Poll::Pending => place += 1,
                Poll::Ready(Ok(stream)) => return Some(stream),
                Poll::Ready(Err(error)) => {
                    drop(self.running.remove(place));
                    self.errors = Some(and_then(self.errors.take(), error));
                    // After a failure, the next address is tried without a delay.
                    self.begin();
                }
            }
        }
        None
    }

    /// Starts an attempt for the next address, and the delay before the address after that.
    fn begin(&mut self) {
        if let Some(address) = self.untried.pop_front() {
            self.running.push(Box::pin((self.attempt)(address)));
            self.next.set(sleep(self.delay));
        }
    }
}

impl<A, F> Future for Race<A, F>
where
    A: Fn(SocketAddr) -> F + Unpin,
    F: Future<Output = io::Result<TcpStream>>,
{
    type Output = io::Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.running.is_empty() {
            this.begin();
        }
        loop {
            if let Some(stream) = this.poll_attempts(cx) {
                return Poll::Ready(Ok(stream));
            }
            if this.running.is_empty() {
                return Poll::Ready(Err(last_error(this.errors.take())));
            }
            if this.untried.is_empty() || this.next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.begin();
        }
    }
}

/// Returns the addresses with IPv4 and IPv6 alternating, starting with the IP version of the first.
fn in_turns(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let mut order = VecDeque::new();
    while !first.is_empty() || !second.is_empty() {
        order.extend(first.pop_front().into_iter().chain(second.pop_front()));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_alternate() {
        let addresses = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(|a| a.parse().unwrap());
        let order: Vec<_> = in_turns(addresses.to_vec()).iter().map(ToString::to_string).collect();
        assert_eq!(order, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]);
        assert!(in_turns(Vec::new()).is_empty());
    }
}
