//! Several hosts in one simulation, and changes to the network between them.

use super::devices::Devices;
use super::disturb::{Chaos, Disturbances};
use super::host::{Host, Program};
use super::pairs::Pairs;
use super::{Device, Disk, Link, Random, Sim};
use crate::signal::Signal;
use crate::{Builder, Runtime};
use annulus_kernel::Kernel;
use annulus_sim::Hosts;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr};
use std::panic::Location;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The virtual time that a run may take by default.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(3600);
/// Addresses are 10.0.0.1 to 10.0.0.254.
const MAX_HOSTS: usize = 254;
/// The name by which each host refers to itself.
const LOCALHOST: &str = "localhost";

/// Several hosts on one simulated network: each has a runtime, an address and a name of its own,
/// and runs an unchanged program. Clones refer to the same network, so a program of the test can
/// disturb it while it runs.
///
/// A *host* runs a service, which can be [crashed](Self::crash) and [restarted](Self::bounce). A
/// *client* runs once; the run ends when all clients have. Both connect to hosts by name:
/// `TcpStream::connect("server:80")`. A host binds to its own address: the wildcard and the
/// loopback address mean that address. Hosts have only IPv4 addresses. Each has its own
/// [disk](Self::disk), which begins as a copy of the kernel's
/// ([`SimBuilder::disk`](super::SimBuilder::disk)). All hosts share the paths of Unix sockets.
///
/// A program may hold a clone of the network. The network is still freed, because its
/// [run](Self::run) drops all programs at the end. A network that never runs is freed only if no
/// program holds it.
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
/// The hosts take turns, one after the other, and a fault takes effect at the end of the round in
/// which it is requested.
///
/// # Panics of programs
/// A panic fails the run, unless it is a task's panic that the program takes: it awaits the
/// [`JoinHandle`](crate::task::JoinHandle), or takes the task's error from the
/// [`JoinSet`](crate::task::JoinSet). So a task's panic fails the run as soon as nothing can take
/// it: at once if the handle has been dropped, otherwise when the handle or set is dropped, which
/// also happens when the task that owns it ends. A panic does not count if a crash or the end of
/// the run drops its handle, because the program might have taken it later.
///
/// ```
/// use annulus::sim::Network;
///
/// let network = Network::new(7);
/// network.client("supervisor", async {
///     let worker = annulus::spawn(async { panic!("as planned") });
///     assert!(worker.await.unwrap_err().is_panic()); // Taken: the run continues.
///     std::io::Result::Ok(())
/// })?;
/// network.run()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Network {
    pub(super) shared: Rc<NetworkState>,
}

pub(super) struct NetworkState {
    /// The simulated kernel of all hosts.
    pub(super) sim: Rc<Sim>,
    /// The settings of each host's runtime.
    builder: Builder,
    /// The hosts, in the order in which they were added. A host is identified by its index.
    pub(super) hosts: RefCell<Vec<Host>>,
    pub(super) names: Names,
    /// Changes that programs have requested, to be applied before the next turns.
    pub(super) changes: RefCell<Vec<Change>>,
    /// Partitions, links and disturbances of pairs of hosts.
    pub(super) pairs: RefCell<Pairs>,
    /// Devices of hosts, and their disturbances.
    pub(super) devices: RefCell<Devices>,
    /// The schedule of random disturbances, if the run has them.
    pub(super) chaos: RefCell<Option<Chaos>>,
    /// The network's random number generator. The kernel has its own.
    pub(super) random: RefCell<Random>,
    /// The virtual time that a run may take.
    pub(super) time_limit: Cell<Duration>,
    pub(super) stage: Cell<RunStage>,
    /// When the run began.
    pub(super) start: Cell<Duration>,
}

/// The stage of a network, which runs only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunStage {
    New,
    Runs,
    Ended,
}

/// Names and addresses of hosts, in the order in which they were added. The lock is needed because
/// any thread may call the resolver.
#[derive(Clone, Default)]
pub(super) struct Names(Arc<Mutex<Vec<(String, IpAddr)>>>);

impl Network {
    /// Creates a network without disturbances, which behaves like a local network with a latency of
    /// 25 µs. The run depends only on the seed and the programs.
    pub fn new(seed: u64) -> Self {
        Self::on(&Sim::builder(seed).build(), seed, Runtime::builder())
    }

    /// Creates a network on a given simulated kernel, with given settings for each host's runtime.
    /// The builder's kernel, resolver and shutdown timeout are replaced: by the given kernel, by
    /// the names of hosts, and by zero. The seed chooses the order of hosts, and
    /// [disturbances](Self::disturb).
    pub fn on(sim: &Rc<Sim>, seed: u64, builder: Builder) -> Self {
        let names = Names::default();
        let shared = NetworkState {
            sim: sim.clone(),
            builder: builder
                .kernel(sim.clone())
                .resolver(names.clone().resolver())
                .shutdown_timeout(Duration::ZERO),
            hosts: RefCell::default(),
            names,
            changes: RefCell::default(),
            pairs: RefCell::default(),
            devices: RefCell::default(),
            chaos: RefCell::default(),
            random: RefCell::new(Random::new(seed.rotate_left(32) ^ 0x0D15_7024)),
            time_limit: Cell::new(DEFAULT_TIME_LIMIT),
            stage: Cell::new(RunStage::New),
            start: Cell::default(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Adds a host that runs a service: `program` is called when the run starts and each time the
    /// host is restarted. The tasks that it has spawned continue after its future ends. An error or
    /// panic of the program ends the run, and so does a task's [panic](Self#panics-of-programs)
    /// that the program does not take.
    ///
    /// # Errors
    /// Returns an error if a host with this name exists; if the name is empty, an address, or
    /// `localhost`, by which each host refers to itself; if there are 254 hosts; or if the network
    /// has run.
    #[track_caller]
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

    /// Adds a client: a program of the test, which runs once. The run ends when all clients have
    /// ended, or when a client or a host fails or panics.
    ///
    /// # Errors
    /// Returns the same errors as [`host`](Self::host).
    #[track_caller]
    pub fn client<E>(
        &self,
        name: &str,
        program: impl Future<Output = Result<(), E>> + 'static,
    ) -> io::Result<IpAddr>
    where
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.add(name, Program::Client(super::host::boxed(program)))
    }

    #[track_caller]
    fn add(&self, name: &str, program: Program) -> io::Result<IpAddr> {
        if self.shared.stage.get() == RunStage::Ended {
            return Err(refused(format!(
                "'{name}' cannot be added, because the network has run; create another network"
            )));
        }
        let is_address = name.contains(':') || name.parse::<IpAddr>().is_ok();
        if name.is_empty() || name == LOCALHOST || is_address {
            return Err(refused(format!(
                "'{name}' is not a valid host name; choose a word, such as 'server'"
            )));
        }
        let mut hosts = self.shared.hosts.borrow_mut();
        if hosts.iter().any(|host| host.name == name) {
            return Err(refused(format!("a host '{name}' already exists; choose another name")));
        }
        if hosts.len() == MAX_HOSTS {
            return Err(refused(format!(
                "'{name}' would be host {}; at most {MAX_HOSTS} are allowed",
                MAX_HOSTS + 1
            )));
        }
        let ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, hosts.len() as u8 + 1));
        self.shared.names.add(name, ip);
        hosts.push(Host::new(name, ip, program, Location::caller()));
        Ok(ip)
    }

    /// Returns the simulated kernel: its clock, its counters and its trace.
    pub fn sim(&self) -> &Rc<Sim> {
        &self.shared.sim
    }

    /// Returns the virtual time since the simulated kernel was created. This is the time since the
    /// run began, unless the kernel has been used before.
    pub fn elapsed(&self) -> Duration {
        self.shared.sim.now()
    }

    /// Returns the address of a host or client.
    ///
    /// # Errors
    /// Returns an error if no host has this name.
    pub fn address(&self, name: &str) -> io::Result<IpAddr> {
        self.shared.names.find(name)
    }

    /// Separates two hosts until they are [repaired](Self::repair): nothing arrives in either
    /// direction. Connections between them stall, and new ones time out. A connection that one end
    /// closes in the meantime is half-open at the other. As on Linux, a connection fails with
    /// `TimedOut` if sent bytes have not arrived for 15 minutes or its
    /// [limit](crate::net::TcpStream::set_user_timeout), or if it sends nothing and its
    /// [probes](crate::net::TcpStream::set_keepalive) are not answered.
    ///
    /// # Errors
    /// Returns an error if a name is unknown.
    pub fn partition(&self, a: &str, b: &str) -> io::Result<()> {
        self.request_for_pair(a, b, Change::Partition)
    }

    /// Ends a [partition](Self::partition). Data that was sent over connections in the meantime
    /// arrives, in order. A [disturbance](Self::disturb) that separates the same hosts continues.
    ///
    /// # Errors
    /// Returns an error if a name is unknown.
    pub fn repair(&self, a: &str, b: &str) -> io::Result<()> {
        self.request_for_pair(a, b, Change::Repair)
    }

    /// Resets all connections between two hosts: both ends get an error, and bytes in flight are
    /// lost.
    ///
    /// # Errors
    /// Returns an error if a name is unknown.
    pub fn reset(&self, a: &str, b: &str) -> io::Result<()> {
        self.request_for_pair(a, b, Change::Reset)
    }

    /// Sets the link between two hosts: latency, jitter, bandwidth and loss of datagrams. `None`
    /// restores the network's link. To simulate a slow peer, give it a link of a few bytes per
    /// second. [Disturbances](Self::disturb) are added to the link.
    ///
    /// # Errors
    /// Returns an error if a name is unknown.
    pub fn link(&self, a: &str, b: &str, link: Option<Link>) -> io::Result<()> {
        self.request_for_pair(a, b, |a, b| Change::Link(a, b, link))
    }

    /// Ends a host at once: its program and all its tasks are dropped, anything that their
    /// destructors send is lost, and its peers are not notified. The peers' connections are
    /// half-open: data that they send gets no answer, or a reset once the host is
    /// [back](Self::bounce). Data in flight to and from the host is lost, including datagrams. File
    /// operations that wait for the device have no effect.
    ///
    /// The disk keeps data that was written but not synced, as if the program had been killed and
    /// the network had failed. See [`power_cut`](Self::power_cut).
    ///
    /// # Errors
    /// Returns an error if the name is unknown or belongs to a client.
    pub fn crash(&self, name: &str) -> io::Result<()> {
        let index = self.service(name)?;
        self.request(Change::Crash(index));
        Ok(())
    }

    /// Cuts a host's power: like [`crash`](Self::crash), but the host's disk also loses what was
    /// not synced, or some of it. [`bounce`](Self::bounce) starts the host again, on what has
    /// survived.
    ///
    /// - Bytes that were not synced survive or not, in sectors of 512 bytes.
    /// - A name that was created, renamed or removed since the last sync of its *directory* may
    ///   still have its old state.
    /// - A file may have its new length without the bytes, which are then zeros.
    /// - A file that was truncated and written again, as by [`fs::write`](crate::fs::write), may be
    ///   empty.
    /// - A write in flight that bypasses the page cache may have reached the device in part.
    ///
    /// ```
    /// use annulus::fs::{self, File};
    /// use annulus::sim::Network;
    /// use annulus::time::sleep;
    /// use std::io;
    /// use std::time::Duration;
    ///
    /// /// Keeps a counter of its starts in a file.
    /// async fn count_starts() -> io::Result<()> {
    ///     let count = fs::read("/starts").await.map_or(0, |bytes| bytes.len());
    ///     let file = File::create("/new").await?;
    ///     file.write_all_at(vec![b'|'; count + 1], 0).await.0?;
    ///     file.sync_all().await?; // The bytes.
    ///     fs::rename("/new", "/starts").await?;
    ///     File::open("/").await?.sync_all().await // The name.
    /// }
    ///
    /// let network = Network::new(7);
    /// network.host("server", count_starts)?;
    /// let faults = network.clone();
    /// network.client("test", async move {
    ///     for _ in 0..10 {
    ///         sleep(Duration::from_secs(1)).await;
    ///         faults.power_cut("server")?;
    ///         faults.bounce("server")?;
    ///     }
    ///     sleep(Duration::from_secs(1)).await;
    ///     io::Result::Ok(())
    /// })?;
    /// network.run()?;
    /// // The disk of the host, for another run.
    /// let disk = network.disk("server")?;
    /// let sim = annulus::sim::Sim::builder(1).disk(disk).build();
    /// let starts = annulus::sim::run_on(&sim, annulus::Runtime::builder(), fs::read("/starts"))?;
    /// assert_eq!(starts.len(), 11);
    /// # io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the name is unknown or belongs to a client.
    pub fn power_cut(&self, name: &str) -> io::Result<()> {
        let index = self.service(name)?;
        self.request(Change::PowerCut(index));
        Ok(())
    }

    /// Returns a copy of a host's disk as it is at this moment, with its page cache. To continue on
    /// another network, pass the copy to that network's [`set_disk`](Self::set_disk). If the run
    /// should end with a power cut, call [`Disk::after_power_cut`] first.
    ///
    /// # Errors
    /// Returns an error if the name is unknown.
    pub fn disk(&self, name: &str) -> io::Result<Disk> {
        Ok(self.shared.sim.disk_of(self.address(name)?))
    }

    /// Gives a host another disk.
    ///
    /// # Errors
    /// Returns an error if the name is unknown, or if the host is running.
    pub fn set_disk(&self, name: &str, disk: Disk) -> io::Result<()> {
        let ip = self.address(name)?;
        let is_running = |host: &Host| host.ip == ip && host.running.is_some();
        if self.shared.hosts.borrow().iter().any(is_running) {
            return Err(refused(format!(
                "'{name}' is running on its disk; set another one before the run, or after a crash"
            )));
        }
        self.shared.sim.set_disk_of(ip, disk);
        self.shared.devices.borrow_mut().forget(ip);
        Ok(())
    }

    /// Replaces the device of a host's disk, for example by one that is slower, fails or is full.
    /// [Disturbances](Self::disturb) are added to it.
    ///
    /// ```
    /// use annulus::fs::File;
    /// use annulus::sim::{Device, Network};
    /// use annulus::time::sleep;
    /// use std::io;
    /// use std::time::Duration;
    ///
    /// let network = Network::new(7);
    /// let faults = network.clone();
    /// network.client("writer", async move {
    ///     let file = File::create("/journal").await?;
    ///     file.write_all_at("a record", 0).await.0?;
    ///     faults.set_device("writer", Device { sync_errors: 1000, ..Device::default() })?;
    ///     sleep(Duration::from_millis(1)).await;
    ///     assert!(file.sync_data().await.is_err());
    ///     faults.set_device("writer", Device::default())?;
    ///     sleep(Duration::from_millis(1)).await;
    ///     assert!(file.sync_data().await.is_ok(), "it succeeds, although the record may be lost");
    ///     io::Result::Ok(())
    /// })?;
    /// network.run()?;
    /// # io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the name is unknown.
    pub fn set_device(&self, name: &str, device: Device) -> io::Result<()> {
        let ip = self.address(name)?;
        self.request(Change::Device(ip, device));
        Ok(())
    }

    /// Restarts the program of a host. If it is running, it crashes first.
    ///
    /// # Errors
    /// Returns an error if the name is unknown or belongs to a client.
    pub fn bounce(&self, name: &str) -> io::Result<()> {
        let index = self.service(name)?;
        self.request(Change::Bounce(index));
        Ok(())
    }

    /// Sends a signal to the program of a host, as to a process. The program receives the signal if
    /// it catches it ([`signals`](crate::signal::signals),
    /// [`until_terminated`](crate::signal::until_terminated)). A program that has never caught the
    /// signal ends as a process would: its connections are closed, and the host is down until it is
    /// [started again](Self::bounce). SIGCHLD, SIGCONT, SIGURG and SIGWINCH are ignored instead. A
    /// host that is down receives no signals. If the program returns, tasks that it has spawned
    /// continue, as after any end of a program.
    ///
    /// ```
    /// use annulus::net::{TcpListener, TcpStream};
    /// use annulus::signal::{Signal, until_terminated};
    /// use annulus::sim::Network;
    /// use std::io;
    /// use std::time::Duration;
    ///
    /// let network = Network::new(7);
    /// network.host("server", || until_terminated(async {
    ///     let listener = TcpListener::bind("0.0.0.0:80")?;
    ///     loop {
    ///         let (mut stream, _) = listener.accept().await?;
    ///         annulus::spawn(async move { stream.send("hello").await });
    ///     }
    /// }))?;
    /// let sends = network.clone();
    /// network.client("client", async move {
    ///     assert!(TcpStream::connect("server:80").await?.recv().await?.is_some());
    ///     sends.signal("server", Signal::SIGTERM)?;
    ///     annulus::time::sleep(Duration::from_millis(1)).await;
    ///     let refused = TcpStream::connect("server:80").await.unwrap_err();
    ///     assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    ///     Ok::<_, io::Error>(())
    /// })?;
    /// network.run()?;
    /// # io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the name is unknown or belongs to a client.
    pub fn signal(&self, name: &str, signal: Signal) -> io::Result<()> {
        let index = self.service(name)?;
        self.request(Change::Signal(index, signal));
        Ok(())
    }

    /// Disturbs the network from now on, at random times that depend on the seed, until
    /// [`calm`](Self::calm). If `ANNULUS_SIM_SEED` is set, as for a replay, each disturbance is
    /// printed. Earlier disturbances end, as with `calm`. Without any kind of disturbance, or with
    /// an empty range, [`run`](Self::run) fails (`InvalidInput`).
    pub fn disturb(&self, disturbances: Disturbances) {
        self.request(Change::Disturb(disturbances));
    }

    /// Ends all disturbances: hosts that they have ended start again, and partitions, links and
    /// devices return to what programs have set. Changes that a program has requested with
    /// [`partition`](Self::partition), [`link`](Self::link), [`set_device`](Self::set_device) or
    /// [`crash`](Self::crash) remain.
    pub fn calm(&self) {
        self.request(Change::Calm);
    }

    /// Sets the virtual time that the run may take before it fails. The default is one hour.
    pub fn time_limit(&self, limit: Duration) {
        self.shared.time_limit.set(limit);
    }

    fn request_for_pair(
        &self,
        a: &str,
        b: &str,
        change: impl FnOnce(IpAddr, IpAddr) -> Change,
    ) -> io::Result<()> {
        self.request(change(self.address(a)?, self.address(b)?));
        Ok(())
    }

    /// Returns the index of a host that is not a client.
    fn service(&self, name: &str) -> io::Result<usize> {
        self.address(name)?;
        let hosts = self.shared.hosts.borrow();
        let found = hosts.iter().position(|host| host.name == name && host.is_service);
        found.ok_or_else(|| {
            refused(format!(
                "'{name}' is a client, and only hosts can be crashed, restarted or signalled"
            ))
        })
    }

    pub(super) fn builder(&self) -> Builder {
        self.shared.builder.clone()
    }
}

impl Names {
    #[track_caller]
    fn add(&self, name: &str, ip: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), ip));
    }

    fn find(&self, name: &str) -> io::Result<IpAddr> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = names.iter().find(|(other, _)| other == name);
        found.map(|(_, ip)| *ip).ok_or_else(|| {
            let all: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
            let known = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            let text = format!("no host '{name}' on the simulated network; known hosts: {known}");
            io::Error::new(ErrorKind::NotFound, text)
        })
    }

    /// Returns the name of a host, for printed text.
    pub(super) fn name(&self, ip: IpAddr) -> String {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = names.iter().find(|(_, other)| *other == ip);
        found.map_or_else(|| ip.to_string(), |(name, _)| name.clone())
    }

    fn resolver(self) -> impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static {
        move |name| match name {
            LOCALHOST => Ok(vec![Ipv4Addr::LOCALHOST.into()]),
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

/// A change to the network that a program has requested.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Partition(IpAddr, IpAddr),
    Repair(IpAddr, IpAddr),
    Reset(IpAddr, IpAddr),
    Link(IpAddr, IpAddr, Option<Link>),
    Device(IpAddr, Device),
    /// Contains the host's index, like `PowerCut`, `Bounce` and `Signal`.
    Crash(usize),
    PowerCut(usize),
    Bounce(usize),
    Signal(usize, Signal),
    Disturb(Disturbances),
    Calm,
}

impl Network {
    /// Queues a change, which is applied before the hosts' next turns. After the run it is ignored.
    pub(super) fn request(&self, change: Change) {
        if self.shared.stage.get() != RunStage::Ended {
            self.shared.changes.borrow_mut().push(change);
        }
    }

    pub(super) fn apply_changes(&self) -> io::Result<()> {
        let changes = std::mem::take(&mut *self.shared.changes.borrow_mut());
        changes.into_iter().try_for_each(|change| self.apply(change))
    }

    fn apply(&self, change: Change) -> io::Result<()> {
        let Self { shared } = self;
        let sim = &shared.sim;
        match change {
            Change::Partition(a, b) => shared.pairs.borrow_mut().cut(sim, a, b, true),
            Change::Repair(a, b) => shared.pairs.borrow_mut().cut(sim, a, b, false),
            Change::Reset(a, b) => sim.reset(a, b),
            Change::Link(a, b, link) => shared.pairs.borrow_mut().link(sim, a, b, link),
            Change::Device(ip, device) => shared.devices.borrow_mut().set(sim, ip, device),
            Change::Crash(index) => self.crash_now(index, None),
            Change::PowerCut(index) => self.cut_power_now(index, None),
            Change::Bounce(index) => self.bounce_now(index),
            Change::Signal(index, signal) => self.signal_now(index, signal),
            Change::Disturb(plan) => {
                self.calm_down();
                let chaos = Chaos::new(plan, self.elapsed(), &mut shared.random.borrow_mut())?;
                *shared.chaos.borrow_mut() = Some(chaos);
            }
            Change::Calm => self.calm_down(),
        }
        Ok(())
    }

    /// Ends a host, either for a program or for the disturbance with this number.
    pub(super) fn crash_now(&self, index: usize, disturbance: Option<u64>) {
        let ip = self.mark_down(index, disturbance);
        self.shared.sim.crash(ip);
        self.stop(index);
    }

    /// Like [`crash_now`](Self::crash_now), but the host's disk loses what was not synced.
    pub(super) fn cut_power_now(&self, index: usize, disturbance: Option<u64>) {
        let ip = self.mark_down(index, disturbance);
        self.shared.sim.cut_power(ip);
        self.stop(index);
    }

    fn mark_down(&self, index: usize, disturbance: Option<u64>) -> IpAddr {
        let host = &mut self.shared.hosts.borrow_mut()[index];
        host.is_down = true;
        host.down_by = disturbance;
        host.ip
    }

    /// Delivers a signal to a host that is running. The host ends if the signal would end a
    /// process.
    fn signal_now(&self, index: usize, signal: Signal) {
        const IGNORED_BY_DEFAULT: [Signal; 4] =
            [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGURG, Signal::SIGWINCH];
        // Moved out of the host, because wakers may use the network, which borrows the hosts.
        let Some(running) = self.shared.hosts.borrow_mut()[index].running.take() else { return };
        let continues = running.signal(signal) || IGNORED_BY_DEFAULT.contains(&signal);
        {
            let host = &mut self.shared.hosts.borrow_mut()[index];
            host.is_down = !continues;
            host.running = Some(running);
        }
        if !continues {
            self.stop(index);
        }
    }

    pub(super) fn bounce_now(&self, index: usize) {
        let is_running = self.shared.hosts.borrow()[index].running.is_some();
        // A program that a signal has ended does not crash: what it has sent still arrives.
        if is_running {
            self.crash_now(index, None);
        }
        let host = &mut self.shared.hosts.borrow_mut()[index];
        (host.is_down, host.down_by) = (false, None);
        self.shared.sim.restart(host.ip);
    }
}
