//! Several hosts in one simulation.

use super::disturb::{Chaos, Disturbances};
use super::host::{Host, Program};
use super::orders::Order;
use super::{Link, Random, Sim};
use crate::{Builder, DriverChoice, Runtime};
use annulus_kernel::Kernel;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a run may take in virtual time, unless it is told otherwise.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
/// Addresses are 10.0.0.1 to 10.0.0.254.
const MOST_HOSTS: usize = 254;

/// Several hosts on one simulated network: each has a runtime, an address and a name of its own, and runs an unchanged program. Clones are
/// the same network, so that a program of the test may disturb it while it runs.
///
/// A *host* runs a service, which can be [crashed](Self::crash) and [restarted](Self::bounce). A *client* runs once; the run ends when
/// all clients have. Both call each other by name: `TcpStream::connect("server:80")`. A host binds to its own address: the wildcard and
/// the loopback are that one. It has IPv4 only. All hosts share the disk and the paths of Unix sockets.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
/// use annulus::sim::Network;
/// use std::time::Duration;
///
/// let network = Network::new(7);
/// network.host("server", serve)?;
/// let faults = network.clone();
/// network.client("client", async move {
///     let mut stream = TcpStream::connect("server:80").await?;
///     faults.partition("client", "server")?;
///     let answer = annulus::time::timeout(Duration::from_secs(5), stream.recv_exact(5));
///     assert!(answer.await.is_err(), "nothing arrives");
///     faults.repair("client", "server")?;
///     assert_eq!(&*stream.recv_exact(5).await?, b"hello");
///     std::io::Result::Ok(())
/// })?;
/// network.run()?;
///
/// async fn serve() -> std::io::Result<()> {
///     let listener = TcpListener::bind("0.0.0.0:80")?;
///     loop {
///         let (mut stream, _) = listener.accept().await?;
///         annulus::spawn(async move { stream.send("hello").await });
///     }
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// A fault takes effect at the end of the turn of the host that asks for it.
#[derive(Clone)]
pub struct Network {
    pub(super) shared: Rc<Shared>,
}

pub(super) struct Shared {
    pub(super) sim: Rc<Sim>,
    builder: Builder,
    pub(super) hosts: RefCell<Vec<Host>>,
    pub(super) names: Names,
    pub(super) orders: RefCell<Vec<Order>>,
    pub(super) chaos: RefCell<Option<Chaos>>,
    /// Of the network: the kernel has a generator of its own.
    pub(super) random: RefCell<Random>,
    pub(super) time_limit: Cell<Duration>,
}

/// Names and addresses of hosts, in the order in which they were added. Resolvers are called by any thread, hence the lock.
#[derive(Clone, Default)]
pub(super) struct Names(Arc<Mutex<Vec<(String, IpAddr)>>>);

impl Network {
    /// A network without disturbances: that of a local network, with a latency of 25 µs. The run depends only on the seed and the
    /// programs.
    pub fn new(seed: u64) -> Self {
        Self::on(&Sim::builder(seed).build(), seed, Runtime::builder())
    }

    /// On a given simulated kernel, and with given settings of each host's runtime, whose shutdown timeout does not count. The seed
    /// chooses the order of hosts, and [disturbances](Self::disturb).
    pub fn on(sim: &Rc<Sim>, seed: u64, builder: Builder) -> Self {
        let names = Names::default();
        let shared = Shared {
            sim: sim.clone(),
            builder: builder
                .driver(DriverChoice::Uring)
                .kernel(sim.clone())
                .resolver(names.clone().resolver())
                .shutdown_timeout(Duration::ZERO),
            hosts: RefCell::default(),
            names,
            orders: RefCell::default(),
            chaos: RefCell::default(),
            random: RefCell::new(Random::new(seed.rotate_left(32) ^ 0x0D15_7024)),
            time_limit: Cell::new(TIME_LIMIT),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Adds a host that runs a service: `program` is called when the run starts and after each crash. If its future ends, the tasks that it
    /// has spawned go on; if it ends with an error or a panic, so does the run.
    ///
    /// # Errors
    /// If there is such a host already, the name is empty or an address, or there are 254 hosts.
    pub fn host<F, E>(
        &self,
        name: &str,
        mut program: impl FnMut() -> F + 'static,
    ) -> io::Result<IpAddr>
    where
        F: Future<Output = Result<(), E>> + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let start = move || super::host::boxed(program());
        self.add(name, Program::Service(Box::new(start)))
    }

    /// Adds a client: a program of the test, which runs once. The run ends when all clients have ended, or one with an error or a panic.
    ///
    /// # Errors
    /// As [`host`](Self::host).
    pub fn client<E>(
        &self,
        name: &str,
        program: impl Future<Output = Result<(), E>> + 'static,
    ) -> io::Result<IpAddr>
    where
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.add(name, Program::Client(Some(super::host::boxed(program))))
    }

    fn add(&self, name: &str, program: Program) -> io::Result<IpAddr> {
        let mut hosts = self.shared.hosts.borrow_mut();
        if name.is_empty() || name.contains(':') || name.parse::<IpAddr>().is_ok() {
            return Err(refused(format!(
                "'{name}' is no name of a host; take a word, such as 'server'"
            )));
        }
        if hosts.iter().any(|host| host.name == name) {
            return Err(refused(format!("there is a host '{name}' already; take another name")));
        }
        if hosts.len() == MOST_HOSTS {
            return Err(refused(format!(
                "'{name}' would be host {}; the most are {MOST_HOSTS}",
                MOST_HOSTS + 1
            )));
        }
        let ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, hosts.len() as u8 + 1));
        self.shared.names.add(name, ip);
        hosts.push(Host::new(name, ip, program));
        Ok(ip)
    }

    /// The simulated kernel: its clock, its counters and its trace.
    pub fn sim(&self) -> &Rc<Sim> {
        &self.shared.sim
    }

    /// The virtual time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.shared.sim.now()
    }

    /// The address of a host or client.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn address(&self, name: &str) -> io::Result<IpAddr> {
        self.shared.names.find(name)
    }

    /// Separates two hosts until they are [repaired](Self::repair): nothing arrives, in both directions. Connections between them stall
    /// without an error; new ones time out. A connection that one end closes meanwhile is half-open at the other.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn partition(&self, a: &str, b: &str) -> io::Result<()> {
        let (a, b) = (self.address(a)?, self.address(b)?);
        self.order(Order::Partition(a, b));
        Ok(())
    }

    /// Ends a [partition](Self::partition). What was sent over connections meanwhile arrives, in order.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn repair(&self, a: &str, b: &str) -> io::Result<()> {
        let (a, b) = (self.address(a)?, self.address(b)?);
        self.order(Order::Repair(a, b));
        Ok(())
    }

    /// Resets all connections between two hosts: both ends get an error, and bytes in flight are lost.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn reset(&self, a: &str, b: &str) -> io::Result<()> {
        let (a, b) = (self.address(a)?, self.address(b)?);
        self.order(Order::Reset(a, b));
        Ok(())
    }

    /// Gives the way between two hosts a link of its own: latency, jitter, bandwidth, loss of datagrams. `None` is the network's again.
    /// A peer on a link of a few bytes a second is a slow one.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn link(&self, a: &str, b: &str, link: impl Into<Option<Link>>) -> io::Result<()> {
        let (a, b) = (self.address(a)?, self.address(b)?);
        self.order(Order::Link(a, b, link.into()));
        Ok(())
    }

    /// A host loses its power: its program and all its tasks are dropped, what it sends in their destructors leads nowhere, and its peers
    /// are not told. Their connections are half-open: what they send gets no answer, and once the host is [back](Self::bounce) a reset.
    ///
    /// # Errors
    /// If the name is unknown, or that of a client.
    pub fn crash(&self, name: &str) -> io::Result<()> {
        let index = self.service(name)?;
        self.order(Order::Crash(index));
        Ok(())
    }

    /// Starts the program of a host again, after a crash if it runs.
    ///
    /// # Errors
    /// If the name is unknown, or that of a client.
    pub fn bounce(&self, name: &str) -> io::Result<()> {
        let index = self.service(name)?;
        self.order(Order::Bounce(index));
        Ok(())
    }

    /// Disturbs the network from now on, at random times of which each seed has its own, until [`calm`](Self::calm). With
    /// `ANNULUS_SIM_SEED` set, as for a replay, each disturbance is printed.
    pub fn disturb(&self, disturbances: Disturbances) {
        self.order(Order::Disturb(disturbances));
    }

    /// Ends all disturbances: partitions are repaired, links are the network's own again, and crashed hosts run.
    pub fn calm(&self) {
        self.order(Order::Calm);
    }

    /// How long the run may take in virtual time before it is an error: an hour by default.
    pub fn time_limit(&self, limit: Duration) {
        self.shared.time_limit.set(limit);
    }

    fn order(&self, order: Order) {
        self.shared.orders.borrow_mut().push(order);
    }

    /// The index of a host that is no client.
    fn service(&self, name: &str) -> io::Result<usize> {
        self.address(name)?;
        let hosts = self.shared.hosts.borrow();
        let found = hosts.iter().position(|host| host.name == name && host.is_service());
        found.ok_or_else(|| refused(format!("'{name}' is a client, which runs once; crash hosts")))
    }

    /// The settings of a host's runtime.
    pub(super) fn builder(&self) -> Builder {
        self.shared.builder.clone()
    }
}

impl Names {
    fn add(&self, name: &str, ip: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), ip));
    }

    fn find(&self, name: &str) -> io::Result<IpAddr> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = names.iter().find(|(other, _)| other == name);
        found.map(|(_, ip)| *ip).ok_or_else(|| {
            let all: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
            let text =
                format!("no host '{name}' on the simulated network; there are: {}", all.join(", "));
            io::Error::new(ErrorKind::NotFound, text)
        })
    }

    /// The name of a host, for what is printed.
    pub(super) fn name(&self, ip: IpAddr) -> String {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = names.iter().find(|(_, other)| *other == ip);
        found.map_or_else(|| ip.to_string(), |(name, _)| name.clone())
    }

    fn resolver(self) -> impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static {
        move |name| match name {
            "localhost" => Ok(vec![Ipv4Addr::LOCALHOST.into()]),
            name => self.find(name).map(|ip| vec![ip]),
        }
    }
}

fn refused(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, text)
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.shared.hosts.borrow();
        let names: Vec<_> = hosts.iter().map(|host| &host.name).collect();
        f.debug_struct("Network").field("hosts", &names).finish_non_exhaustive()
    }
}
