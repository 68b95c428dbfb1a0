//! A listening port shared by several shards, and the distribution of its connections.

use super::channel::{Receiver, Sender, channel};
use super::shard::Shard;
use crate::name::named;
use crate::net::ToSocketAddrs;
use crate::net::{ListenOptions, Parts, TcpListener, TcpStream};
use crate::runtime::Handle;
use crate::runtime::current;
use crate::slots::connection_limit::ConnectionLimit;
use annulus_kernel::SocketOption;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// Maximum number of connections in transit to a shard. Beyond that, the accepting shard keeps
/// further connections.
const MAX_IN_TRANSIT: usize = 1024;

/// How accepted connections are distributed over shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spread {
    /// Shard 0 accepts, and passes each connection to the shard with the fewest open streams. This
    /// distributes any number of connections evenly. Each connection costs shard 0 some work, and
    /// wakes the other shard if it sleeps.
    #[default]
    LeastConnections,
    /// Each shard has a listener, and the kernel chooses one by a hash of the addresses
    /// (`SO_REUSEPORT`). All shards accept, which suits many short connections. A few long ones are
    /// distributed unevenly.
    Hash,
    /// Each shard has a listener, and the kernel prefers the shard on the CPU that handles the
    /// connection's packets (`SO_INCOMING_CPU`, since Linux 6.2). If no shard runs on that CPU, or
    /// the kernel is older, the kernel chooses by hash. This suits network cards that spread their
    /// queues over the shards' CPUs. On loopback, it follows the client's CPU. The shards must be
    /// pinned: see [`Pinning`](super::Pinning).
    Cpu,
}

named!(Spread, "way to distribute connections", {
    "least-connections" => LeastConnections,
    "hash" => Hash,
    "cpu" => Cpu,
});

/// A listening port for several shards. It is bound before the shards start, and each shard opens
/// it once. No shard may leave that out: connections that are meant for it wait until it does.
#[derive(Debug)]
pub struct ShardedListener {
    spread: Spread,
    limit: Option<ConnectionLimit>,
    address: SocketAddr,
    count: usize,
    /// The source of each shard; `None` once the shard has opened it.
    sources: Mutex<Vec<Option<Unopened>>>,
}

/// The source of a shard's connections, before the shard has opened it.
#[derive(Debug)]
enum Unopened {
    Listener(OwnedFd),
    Distributor(OwnedFd, Vec<Route>),
    Inbox(Receiver<Parts>, Arc<AtomicUsize>),
}

/// The route from the accepting shard to one shard.
#[derive(Debug)]
struct Route {
    inbox: Sender<Parts>,
    /// Number of connections that have been sent to that shard and are not streams there yet.
    in_transit: Arc<AtomicUsize>,
}

impl ShardedListener {
    /// Listens for `count` shards on the first of the addresses that works. Connections wait in the
    /// backlog until the shards open the listener. Other programs cannot share the port, whatever
    /// options they use.
    ///
    /// # Errors
    /// The errors of [`ListenOptions::bind`]; `InvalidInput` for 0 shards.
    pub fn bind(
        address: impl ToSocketAddrs,
        options: &ListenOptions,
        count: usize,
        spread: Spread,
    ) -> io::Result<Self> {
        if count == 0 {
            return Err(misuse("0 shards would accept nothing; use at least 1".into()));
        }
        let listeners = if spread == Spread::LeastConnections { 1 } else { count };
        let (sockets, address) = options.bind_group(address, listeners)?;
        let sources: Vec<Unopened> = match spread {
            Spread::LeastConnections => {
                sockets.into_iter().flat_map(|one| Unopened::distributing(one, count)).collect()
            }
            Spread::Hash | Spread::Cpu => sockets.into_iter().map(Unopened::Listener).collect(),
        };
        let sources = Mutex::new(sources.into_iter().map(Some).collect());
        let limit = options.connection_limit().cloned();
        Ok(Self { spread, limit, address, count, sources })
    }

    /// Returns the address that the listener is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Opens a shard's part of the listener. Call it on that shard.
    ///
    /// # Errors
    /// `InvalidInput` if the listener was created for another number of shards, if this shard has
    /// already opened it, or with [`Spread::Cpu`] if the shard is not pinned to a CPU. Fails
    /// outside a runtime.
    pub fn open(&self, shard: &Shard) -> io::Result<ShardListener> {
        if shard.count() != self.count {
            let (made, opened) = (self.count, shard.count());
            return Err(misuse(format!(
                "the listener was created for {made} shards but opened on {opened}"
            )));
        }
        let cpu = match (self.spread, shard.cpu()) {
            (Spread::Cpu, None) => {
                let text = format!(
                    "connections are distributed by CPU, but shard {} is not pinned to one; pin it, or choose another Spread",
                    shard.index()
                );
                return Err(misuse(text));
            }
            (Spread::Cpu, cpu) => cpu,
            (Spread::LeastConnections | Spread::Hash, _) => None,
        };
        let source = self.take(shard.index())?.open(cpu, self.limit.clone())?;
        Ok(ShardListener { source, shard: shard.clone(), address: self.address })
    }

    fn take(&self, shard: usize) -> io::Result<Unopened> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources[shard]
            .take()
            .ok_or_else(|| misuse(format!("shard {shard} has already opened the listener")))
    }
}

fn misuse(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Unopened {
    /// Creates a source for each shard: shard 0 accepts and distributes, the others receive.
    fn distributing(listener: OwnedFd, count: usize) -> Vec<Self> {
        let mut routes = Vec::new();
        let mut sources = Vec::new();
        for _ in 0..count {
            let (inbox, receiver) = channel(MAX_IN_TRANSIT);
            let in_transit = Arc::new(AtomicUsize::new(0));
            sources.push(Self::Inbox(receiver, in_transit.clone()));
            routes.push(Route { inbox, in_transit });
        }
        sources[0] = Self::Distributor(listener, routes);
        sources
    }

    fn open(self, cpu: Option<usize>, limit: Option<ConnectionLimit>) -> io::Result<AcceptSource> {
        match self {
            Self::Listener(socket) => {
                let listener = TcpListener::from_socket_with_limit(socket, limit)?;
                if let Some(cpu) = cpu {
                    listener.set(SocketOption::IncomingCpu, cpu as u32)?;
                }
                Ok(AcceptSource::Listener(listener))
            }
            Self::Distributor(socket, routes) => Ok(AcceptSource::Distributor(
                TcpListener::from_socket_with_limit(socket, limit)?,
                routes,
            )),
            Self::Inbox(inbox, in_transit) => Ok(AcceptSource::Inbox(inbox, in_transit)),
        }
    }
}

/// One shard's part of a [`ShardedListener`]. Dropping it closes the connections that have not been
/// accepted yet.
///
/// With [`Spread::LeastConnections`], the other shards receive their connections only while a task
/// of shard 0 waits in `accept`.
///
/// ```
/// use annulus::net::{ListenOptions, TcpStream};
/// use annulus::shards::{ShardedListener, Shards, Spread};
///
/// let options = ListenOptions::new();
/// let listener = ShardedListener::bind("127.0.0.1:0", &options, 2, Spread::LeastConnections)?;
/// Shards::new(2).run(async |shard| {
///     let mut mine = listener.open(&shard)?;
///     if shard.index() != 0 {
///         // The loop ends once shard 0, which accepts for all, has dropped its listener.
///         while let Some((mut stream, _peer)) = mine.accept().await? {
///             stream.send("hello").await?;
///         }
///         return Ok(());
///     }
///     // The client's stream is open on shard 0, so shard 1 has the fewest streams.
///     let mut client = TcpStream::connect(listener.local_addr()).await?;
///     let accepting = annulus::spawn(async move { mine.accept().await.map(drop) });
///     assert_eq!(&*client.recv_exact(5).await?, b"hello");
///     accepting.abort();
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ShardListener {
    source: AcceptSource,
    shard: Shard,
    address: SocketAddr,
}

#[derive(Debug)]
enum AcceptSource {
    Listener(TcpListener),
    Distributor(TcpListener, Vec<Route>),
    Inbox(Receiver<Parts>, Arc<AtomicUsize>),
}

impl ShardListener {
    /// Returns the next connection for this shard and its peer's address, or `None` once the shard
    /// that accepts for all has dropped its listener. Cancel-safe.
    ///
    /// A connection that its peer has already reset is skipped, as in [`TcpListener::accept`], and
    /// counted by the shard that it was for.
    ///
    /// # Errors
    /// The errors of [`TcpListener::accept`].
    pub async fn accept(&mut self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Polls for the next connection, like [`accept`](Self::accept).
    ///
    /// # Errors
    /// The errors of [`accept`](Self::accept).
    pub fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<(TcpStream, SocketAddr)>>> {
        loop {
            let parts = match &mut self.source {
                AcceptSource::Listener(listener) => return listener.poll_accept(cx).map_ok(Some),
                AcceptSource::Distributor(listener, routes) => {
                    distribute(ready!(listener.poll_accept_parts(cx))?, routes, &self.shard)
                }
                AcceptSource::Inbox(inbox, _) => match ready!(inbox.poll_recv(cx)) {
                    None => return Poll::Ready(Ok(None)),
                    some => some,
                },
            };
            if let Some(parts) = parts
                && let Some(accepted) = self.adopt(parts)?.with_peer()?
            {
                return Poll::Ready(Ok(Some(accepted)));
            }
        }
    }

    /// Returns the address that the listener is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    fn adopt(&self, parts: Parts) -> io::Result<TcpStream> {
        let adopted = TcpStream::from_parts(parts).and_then(|stream| {
            // Count it as a stream before removing it from the transit count, so that it is counted
            // at all times.
            current::get()?.publish_streams()?;
            Ok(stream)
        });
        // A connection that could not be adopted has been closed, so it is no longer in transit
        // either.
        if let AcceptSource::Inbox(_, in_transit) = &self.source {
            // Pairs with the acquire load in `distribute`: if that load no longer sees the
            // connection in transit, it sees the stream.
            in_transit.fetch_sub(1, Ordering::Release);
        }
        adopted
    }
}

/// Passes a connection to the shard with the fewest streams. Returns the connection if that is this
/// shard, or if that shard's inbox is full.
fn distribute(parts: Parts, routes: &[Route], this: &Shard) -> Option<Parts> {
    let load = |(route, handle): (&Route, &Handle)| {
        // The order of the two reads matters: see `adopt`.
        route.in_transit.load(Ordering::Acquire) + handle.streams()
    };
    let shards = routes.iter().zip(this.handles()).enumerate();
    let open =
        shards.filter(|(index, (route, _))| *index == this.index() || !route.inbox.is_closed());
    let least = open.min_by_key(|(_, shard)| load(*shard)).map(|(index, _)| index)?;
    if least == this.index() {
        return Some(parts);
    }
    let route = &routes[least];
    route.in_transit.fetch_add(1, Ordering::Relaxed);
    let refused = route.inbox.try_send(parts).err()?;
    route.in_transit.fetch_sub(1, Ordering::Relaxed);
    Some(refused.into_value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_connection_that_is_not_adopted_is_no_longer_in_transit() {
        let (sender, inbox) = channel(1);
        let in_transit = Arc::new(AtomicUsize::new(1));
        let driver = Arc::new(Runtime::new().unwrap().driver().clone());
        let shard = Shard { index: 1, cpu: None, driver, handles: Arc::new([]) };
        let source = AcceptSource::Inbox(inbox, in_transit.clone());
        let mut listener = ShardListener { source, shard, address: ([127, 0, 0, 1], 1).into() };
        let (socket, _peer) = UnixStream::pair().unwrap();
        sender.try_send(Parts::new(socket.into(), Vec::new())).unwrap();
        // No runtime is entered, so the connection has none to belong to.
        let polled = listener.poll_accept(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Err(_))), "{polled:?}");
        assert_eq!(in_transit.load(Ordering::Relaxed), 0);
    }
}
