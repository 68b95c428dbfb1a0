//! One port, and who of several shards gets which connection.

use super::channel::{Receiver, Sender, channel};
use super::shard::Shard;
use crate::name::named;
use crate::net::{ConnectionLimit, ListenOptions, Parts, TcpListener, TcpStream};
use crate::runtime::current;
use crate::runtime::handle::Handle;
use annulus_kernel::SocketOption;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections that may be on their way to a shard; beyond that the acceptor serves them itself.
const UNDERWAY: usize = 1024;

/// How connections are spread over shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spread {
    /// The first shard accepts, and hands each connection to the shard with the fewest open streams: even at any number of
    /// connections. A connection costs the acceptor some work, and the other shard a wake where it sleeps.
    #[default]
    Fewest,
    /// A listener a shard; the kernel draws by a hash of the addresses (`SO_REUSEPORT`). Shards accept side by side, which
    /// suits many short connections; a few long ones are spread unevenly.
    Hash,
    /// A listener a shard; the kernel prefers the shard on the CPU that handles the connection's packets
    /// (`SO_INCOMING_CPU`, 6.2), and draws where there is none, or the kernel is older. For network cards whose queues are
    /// spread over the shards' CPUs; on loopback it follows the client's CPU.
    Cpu,
}

named!(Spread, "way to spread connections", {
    "fewest" => Fewest,
    "hash" => Hash,
    "cpu" => Cpu,
});

/// A listening port for several shards: bound before they start, opened by each of them once.
#[derive(Debug)]
pub struct Doors {
    spread: Spread,
    limit: Option<ConnectionLimit>,
    address: SocketAddr,
    count: usize,
    /// By shard; `None` once opened.
    doors: Mutex<Vec<Option<Door>>>,
}

/// What a shard is to open.
#[derive(Debug)]
enum Door {
    Listener(OwnedFd),
    Acceptor(OwnedFd, Vec<Way>),
    Inbox(Receiver<Parts>, Arc<AtomicUsize>),
}

/// The way from the acceptor to a shard.
#[derive(Debug)]
struct Way {
    inbox: Sender<Parts>,
    /// Connections that were handed over, and are not yet streams there.
    underway: Arc<AtomicUsize>,
}

impl Doors {
    /// Listens on the first of the addresses that works, for so many shards. Connections wait until they open. No other
    /// program shares the port, whatever its options.
    ///
    /// # Errors
    /// As [`ListenOptions::bind`]; or for 0 shards.
    pub fn bind(
        address: impl ToSocketAddrs,
        options: &ListenOptions,
        count: usize,
        spread: Spread,
    ) -> io::Result<Self> {
        if count == 0 {
            return Err(misuse("0 shards would accept nothing; take at least 1".into()));
        }
        let listeners = if spread == Spread::Fewest { 1 } else { count };
        let (sockets, address) = options.bind_group(address, listeners)?;
        let doors: Vec<Door> = match spread {
            Spread::Fewest => {
                sockets.into_iter().flat_map(|one| Door::handing(one, count)).collect()
            }
            Spread::Hash | Spread::Cpu => sockets.into_iter().map(Door::Listener).collect(),
        };
        let doors = Mutex::new(doors.into_iter().map(Some).collect());
        let limit = options.connection_limit().cloned();
        Ok(Self { spread, limit, address, count, doors })
    }

    /// The address they listen on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Opens a shard's door. Call it on that shard.
    ///
    /// # Errors
    /// Where these doors are for another number of shards, the shard's was opened before, or it is to follow a CPU and the
    /// shard is pinned to none; outside a runtime.
    pub fn open(&self, shard: &Shard) -> io::Result<Incoming> {
        if shard.count() != self.count {
            let text = format!("doors for {} shards, and there are {}", self.count, shard.count());
            return Err(misuse(text));
        }
        let cpu = match (self.spread, shard.cpu()) {
            (Spread::Cpu, None) => {
                let text = "the shard is to get its CPU's connections, and is pinned to none";
                return Err(misuse(text.into()));
            }
            (Spread::Cpu, cpu) => cpu,
            (Spread::Fewest | Spread::Hash, _) => None,
        };
        let source = self.take(shard.index())?.open(cpu, self.limit.clone())?;
        Ok(Incoming { source, shard: shard.clone() })
    }

    fn take(&self, shard: usize) -> io::Result<Door> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors[shard]
            .take()
            .ok_or_else(|| misuse(format!("shard {shard} has opened its door already")))
    }
}

fn misuse(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Door {
    /// One that accepts, and those it hands to.
    fn handing(listener: OwnedFd, count: usize) -> Vec<Self> {
        let mut ways = Vec::new();
        let mut inboxes = Vec::new();
        for _ in 0..count {
            let (inbox, receiver) = channel(UNDERWAY);
            let underway = Arc::new(AtomicUsize::new(0));
            inboxes.push(Self::Inbox(receiver, underway.clone()));
            ways.push(Way { inbox, underway });
        }
        inboxes[0] = Self::Acceptor(listener, ways);
        inboxes
    }

    fn open(self, cpu: Option<usize>, limit: Option<ConnectionLimit>) -> io::Result<Source> {
        match self {
            Self::Listener(socket) => {
                let listener = TcpListener::from_socket_within(socket, limit)?;
                if let Some(cpu) = cpu {
                    listener.set(SocketOption::IncomingCpu(cpu as u32))?;
                }
                Ok(Source::Listener(listener))
            }
            Self::Acceptor(socket, ways) => {
                Ok(Source::Acceptor(TcpListener::from_socket_within(socket, limit)?, ways))
            }
            Self::Inbox(inbox, underway) => Ok(Source::Inbox(inbox, underway)),
        }
    }
}

/// The connections that come to one shard. Dropping it closes its door: connections that nobody claimed are closed.
///
/// Under [`Spread::Fewest`] the first shard's `accept` is what hands the others their connections: keep it waited for.
#[derive(Debug)]
pub struct Incoming {
    source: Source,
    shard: Shard,
}

#[derive(Debug)]
enum Source {
    Listener(TcpListener),
    Acceptor(TcpListener, Vec<Way>),
    Inbox(Receiver<Parts>, Arc<AtomicUsize>),
}

impl Incoming {
    /// The next connection for this shard, and who it is from; `None` once the shard that accepts for all has closed its
    /// door. Cancel-safe.
    ///
    /// A connection that its peer reset meanwhile is passed over, as [`TcpListener::accept`] does, and counted by the shard that it was
    /// for.
    ///
    /// # Errors
    /// As [`TcpListener::accept`].
    pub async fn accept(&mut self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        loop {
            let parts = match &mut self.source {
                Source::Listener(listener) => return listener.accept().await.map(Some),
                Source::Acceptor(listener, ways) => {
                    hand_out(listener.accept_parts().await?, ways, &self.shard)
                }
                Source::Inbox(inbox, _) => match inbox.recv().await {
                    None => return Ok(None),
                    some => some,
                },
            };
            if let Some(parts) = parts
                && let Some(accepted) = self.take_in(parts)?.with_peer()
            {
                return Ok(Some(accepted));
            }
        }
    }

    fn take_in(&self, parts: Parts) -> io::Result<TcpStream> {
        let stream = TcpStream::from_parts(parts)?;
        // Before it stops to count as underway, so that it counts all the time.
        current::get()?.publish_streams()?;
        if let Source::Inbox(_, underway) = &self.source {
            // Releases the stream, which whoever hands out acquires.
            underway.fetch_sub(1, Ordering::Release);
        }
        Ok(stream)
    }
}

/// Hands a connection to the shard with the fewest; gives it back where that is this one.
fn hand_out(parts: Parts, ways: &[Way], this: &Shard) -> Option<Parts> {
    let load = |(way, handle): (&Way, &Handle)| {
        // In this order: who no longer sees it underway must see the stream.
        way.underway.load(Ordering::Acquire) + handle.streams()
    };
    let shards = ways.iter().zip(this.handles()).enumerate();
    let open = shards.filter(|(index, (way, _))| *index == this.index() || !way.inbox.is_closed());
    let fewest = open.min_by_key(|(_, shard)| load(*shard)).map(|(index, _)| index)?;
    if fewest == this.index() {
        return Some(parts);
    }
    ways[fewest].underway.fetch_add(1, Ordering::Relaxed);
    let refused = ways[fewest].inbox.try_send(parts).err()?;
    ways[fewest].underway.fetch_sub(1, Ordering::Relaxed);
    Some(refused.into_value())
}
