//! Echo on the runtime: one thread per worker, one task per connection.

use super::datagrams::{self, AncillaryUdpSocket, DatagramEcho, DatagramSocket};
use super::registry::{Connection, Registry, Sweep, Traffic};
use super::stats::{Driver, Stats, Worker};
use super::stream::{Acceptor, Stream};
use super::{Listen, Plan, STOP_SIGNALS, metrics, self_test, tasks_list};
use crate::output::note;
use crate::signals::{SIGHUP, Stop};
use annulus::net::{ConnectionLimit, ListenOptions, UnixListener, UnixOptions};
use annulus::shards::{Cause, Shard, ShardError, ShardedListener, Shards};
use annulus::signal::{Signal, signals};
use annulus::stats::Counters;
use annulus::task::{JoinHandle, JoinSet};
use annulus::{Builder, DriverChoice, DriverInfo, Lease, Runtime, time};
use annulus_lab::interrupt::is_ignored;
use annulus_load::{Endpoint, clock, unix_address};
use anyhow::{Context, Result, anyhow};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Once;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The number of connections that may wait in the kernel to be accepted.
const LISTEN_BACKLOG: u32 = 4096;

/// Serves until a signal, with a runtime per worker.
pub(super) fn serve(plan: &Plan, choice: DriverChoice) -> Result<Stats> {
    self_test::on_runtime(choice)?;
    let limit = plan.max_connections.map(ConnectionLimit::new);
    let listeners = listeners(plan, limit.as_ref())?;
    let shutdown = CancellationToken::new();
    let settings = plan.clone();
    let shards = Shards::new(plan.workers)
        .pinning(plan.pinning.clone())
        .runtime(move |_| builder(choice, &settings));
    let began = clock::now();
    let served = shards.run(async |shard| {
        let server = Rc::new(Server::new(plan.clone(), limit.clone(), shutdown.clone()));
        run_worker(server, &listeners, &shard).await
    });
    Ok(Stats::new(served.map_err(|error| explain(error, choice))?, began))
}

/// Binds the listeners of all TCP addresses, in order.
fn listeners(plan: &Plan, limit: Option<&ConnectionLimit>) -> Result<Vec<ShardedListener>> {
    let options = ListenOptions::new().backlog(LISTEN_BACKLOG);
    let options = limit.map_or(options.clone(), |limit| options.limit(limit));
    let tcp = plan.listens.iter().filter(|listen| matches!(listen.endpoint, Endpoint::Tcp(_)));
    tcp.map(|Listen { endpoint, addresses }| {
        ShardedListener::bind(addresses.as_slice(), &options, plan.workers, plan.spread)
            .map_err(|error| plan.cannot_listen(endpoint, error))
    })
    .collect()
}

fn builder(choice: DriverChoice, plan: &Plan) -> Builder {
    // The server closes its connections itself, within its own timeout.
    let builder =
        plan.ring.configure(Runtime::builder().driver(choice).shutdown_timeout(Duration::ZERO));
    let builder = builder.memory_limit(Some(plan.memory.clone())).measure(plan.metrics.is_some());
    match plan.recv_buffers.or(plan.fewer_buffers) {
        Some(count) => builder.stream_buffer_count(count),
        None => builder,
    }
}

/// Converts an error of a worker to an error of the command.
fn explain(error: ShardError<anyhow::Error>, choice: DriverChoice) -> anyhow::Error {
    let ShardError { shard, cause } = error;
    match cause {
        Cause::Main(error) => error,
        Cause::Runtime(error) => {
            anyhow::Error::new(error).context(format!("cannot serve with --driver {choice}"))
        }
        cause => anyhow!("worker {shard} {cause}"),
    }
}

/// Runs a worker until shutdown and returns its statistics. Fails if a listening task ends earlier.
async fn run_worker(
    server: Rc<Server>,
    listeners: &[ShardedListener],
    shard: &Shard,
) -> Result<Worker> {
    let plan = &server.plan;
    let (mut listening, addresses) = open(&server, listeners, shard)?;
    if shard.index() == 0 {
        close_on_signal(Rc::clone(&server)).context("cannot handle signals")?;
        tasks_list::print_at_signal(shard).context("cannot handle signals")?;
        let metrics =
            plan.metrics.as_ref().map(|listen| metrics::open(plan, listen)).transpose()?;
        plan.announce(&addresses, &shard.driver().to_string());
        if let Some((listener, address)) = metrics {
            note(format_args!("annulus echo: metrics at {address}"));
            listening.spawn(metrics::serve(listener, shard.clone()));
        }
    }
    let sweeper =
        plan.idle_timeout.map(|limit| annulus::spawn(sweep_forever(Rc::clone(&server), limit)));
    let ended = server.shutdown.run_until_cancelled(listening.join_next()).await;
    match ended.flatten() {
        None => listening.abort_all(),
        Some(Ok(result)) => result.context("cannot continue listening")?,
        Some(Err(error)) => anyhow::bail!("a listening task ended: {error}"),
    }
    if let Some(sweeper) = sweeper {
        sweeper.abort();
    }
    let aborted = server.shut_down().await;
    Ok(server.report(shard.driver(), aborted))
}

/// Tasks that end only when they fail.
type ListenTasks = JoinSet<io::Result<()>>;

/// Opens this worker's listener or socket for every listen address; returns the tasks and the
/// addresses. Only the first worker serves anything but TCP.
fn open(
    server: &Rc<Server>,
    listeners: &[ShardedListener],
    shard: &Shard,
) -> Result<(ListenTasks, Vec<String>)> {
    let (mut listening, mut addresses) = (JoinSet::new(), Vec::new());
    let mut listeners = listeners.iter();
    for listen in &server.plan.listens {
        let server = Rc::clone(server);
        let address = match &listen.endpoint {
            Endpoint::Tcp(_) => {
                let listener = listeners.next().expect("a TCP address has no listener");
                let acceptor =
                    Acceptor::Tcp(listener.open(shard).context("cannot open the listener")?);
                listening.spawn(accept_all(acceptor, server));
                listen.endpoint.display_address(listener.local_addr())
            }
            _ if shard.index() > 0 => continue,
            Endpoint::Unix(path) => {
                let acceptor = Acceptor::Path(listen_at(&server, listen, path)?);
                listening.spawn(accept_all(acceptor, server));
                listen.endpoint.to_string()
            }
            Endpoint::Udp(_) => {
                let (socket, local) = datagrams::open(&server.plan, listen, &server.datagrams)?;
                match local.ip().is_unspecified() {
                    true => echo_all(&server, AncillaryUdpSocket(socket), &mut listening),
                    false => echo_all(&server, socket, &mut listening),
                }
                listen.endpoint.display_address(local)
            }
            Endpoint::UnixDatagram(path) => {
                let socket = datagrams::open_path(&server.plan, listen, path)?;
                echo_all(&server, socket, &mut listening);
                listen.endpoint.to_string()
            }
        };
        addresses.push(address);
    }
    Ok((listening, addresses))
}

/// Starts one task per concurrent receive.
fn echo_all(
    server: &Rc<Server>,
    socket: impl DatagramSocket + 'static,
    listening: &mut ListenTasks,
) {
    let socket = Rc::new(socket);
    for _ in 0..server.plan.datagrams.outstanding.unwrap_or(1) {
        let (server, socket) = (Rc::clone(server), Rc::clone(&socket));
        listening.spawn(async move { server.datagrams.echo(&*socket).await });
    }
}

fn listen_at(server: &Server, listen: &Listen, path: &Path) -> Result<UnixListener> {
    let options = UnixOptions::new().backlog(LISTEN_BACKLOG);
    let options = server.limit.as_ref().map_or(options.clone(), |limit| options.limit(limit));
    let listener = unix_address(path).and_then(|address| options.listen_addr(&address));
    listener.map_err(|error| server.plan.cannot_listen(&listen.endpoint, error))
}

/// Shuts all workers down at the first signal. A second signal exits at once.
fn close_on_signal(server: Rc<Server>) -> io::Result<()> {
    let hangup = (!is_ignored(SIGHUP)).then_some(Signal::SIGHUP);
    let stopping = [Signal::SIGINT, Signal::SIGTERM].into_iter().chain(hangup);
    let mut signals = signals(&stopping.collect::<Vec<_>>())?;
    Stop::install(&STOP_SIGNALS)?;
    annulus::spawn(async move {
        // Fails if the runtime has ended.
        let _ = signals.recv().await;
        server.shutdown.cancel();
    });
    Ok(())
}

/// Accepts connections; the listeners enforce the connection limit.
async fn accept_all(mut acceptor: Acceptor, server: Rc<Server>) -> io::Result<()> {
    loop {
        match acceptor.accept().await {
            Ok(Some(stream)) => {
                note_pauses();
                server.serve(stream);
            }
            // The accepting worker is shutting down, and so will this one.
            Ok(None) => pending().await,
            Err(error) => return Err(error),
        }
    }
}

/// Prints once that connections had to wait for a descriptor.
fn note_pauses() {
    static PRINTED: Once = Once::new();
    if !PRINTED.is_completed() && annulus::counters().is_some_and(|counts| counts.accept_pauses > 0)
    {
        PRINTED.call_once(|| {
            note("annulus echo: a connection could not be accepted until another one was closed: no descriptor was left; raise `ulimit -n`")
        });
    }
}

async fn sweep_forever(server: Rc<Server>, limit: Duration) {
    let why = Sweep::Idle(limit);
    loop {
        time::sleep(why.interval()).await;
        server.sweep(why);
    }
}

/// A worker's part of the server.
struct Server {
    plan: Plan,
    limit: Option<ConnectionLimit>,
    shutdown: CancellationToken,
    registry: RefCell<Registry<Rc<ConnectionState>>>,
    datagrams: DatagramEcho,
    /// Notified when a connection has been removed from the registry.
    removed: Notify,
}

impl Server {
    fn new(plan: Plan, limit: Option<ConnectionLimit>, shutdown: CancellationToken) -> Server {
        let (registry, datagrams) = (RefCell::new(Registry::new()), DatagramEcho::default());
        Server { plan, limit, shutdown, registry, datagrams, removed: Notify::new() }
    }

    fn serve(self: &Rc<Self>, stream: Stream) {
        let state = Rc::new(ConnectionState::default());
        let number = self.registry.borrow_mut().insert(Rc::clone(&state));
        let shared = Rc::clone(&state);
        let mut connection =
            ConnectionTask { stream, state: shared, server: Rc::clone(self), number };
        let task = annulus::spawn(async move {
            // A failed connection ends, and the server continues.
            let _ = connection.echo().await;
        });
        state.task.replace(Some(task));
    }

    fn report(&self, driver: &DriverInfo, aborted: usize) -> Worker {
        let counters = annulus::counters().map(by_name).unwrap_or_default();
        let (name, reason) = (driver.kind.to_string(), driver.reason.clone());
        let driver = Driver { name, reason, counters };
        let mut counts = self.registry.borrow().counts();
        counts += self.datagrams.counts();
        Worker { driver, counts, aborted: aborted as u64 }
    }

    async fn until_empty(&self) {
        while self.registry.borrow().count() > 0 {
            self.removed.notified().await;
        }
    }

    fn sweep(&self, why: Sweep) {
        // The borrow ends before the actions run, because removing a connection borrows the
        // registry.
        let actions = self.registry.borrow_mut().sweep(why);
        actions.iter().for_each(|(connection, act)| act(connection));
    }

    /// Closes all connections within the shutdown timeout; returns how many had to be aborted at
    /// its end.
    async fn shut_down(&self) -> usize {
        let (began, timeout) = (clock::now(), self.plan.shutdown_timeout);
        loop {
            let why = Sweep::ShuttingDown { elapsed: clock::now() - began, timeout };
            let left = self.registry.borrow().count();
            if left == 0 {
                return 0;
            }
            self.sweep(why);
            if why.is_last() {
                return left;
            }
            // Ends early if the last connection closes.
            let _ = time::timeout(why.interval(), self.until_empty()).await;
        }
    }
}

/// The part of a connection that its task owns.
struct ConnectionTask {
    stream: Stream,
    state: Rc<ConnectionState>,
    server: Rc<Server>,
    number: usize,
}

impl ConnectionTask {
    /// Echoes until the peer or the server closes the connection. Then closes the sending half, so
    /// that the peer receives every reply, and waits until the peer closes.
    async fn echo(&mut self) -> io::Result<()> {
        self.remember_waker().await;
        loop {
            // The block ends the scope of `lease` before the await, so that the future reserves no
            // space for it: this keeps idle tasks small.
            {
                let Some(lease) = self.recv().await? else { break };
                self.state.traffic.received(lease.len());
                self.stream.send(lease)
            }
            .await?;
            self.state.traffic.answered();
        }
        self.state.finishing.set(true);
        self.stream.shutdown().await?;
        self.state.finishing.set(false);
        self.stream.drain().await
    }

    /// Stores the task's waker, so that a request to close can wake it.
    async fn remember_waker(&self) {
        poll_fn(|cx| {
            self.state.waker.set(Some(cx.waker().clone()));
            Poll::Ready(())
        })
        .await;
    }

    /// Returns the next bytes, or `None` at the end of the stream. Also returns `None` if nothing
    /// is ready and the connection is closing.
    async fn recv(&mut self) -> io::Result<Option<Lease>> {
        poll_fn(|cx| match self.stream.poll_recv(cx) {
            Poll::Pending if self.state.closing.get() => Poll::Ready(Ok(None)),
            polled => polled,
        })
        .await
    }
}

/// Removes the connection from the registry, however its task ends.
impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.server.registry.borrow_mut().remove(self.number);
        self.server.removed.notify_one();
    }
}

/// The state that a connection shares with the registry.
#[derive(Default)]
struct ConnectionState {
    traffic: Traffic,
    /// Set by a request to close.
    closing: Cell<bool>,
    /// Whether the half-close is waiting for queued bytes. A send completes when its bytes are
    /// queued, but the half-close only when they have been sent.
    finishing: Cell<bool>,
    waker: Cell<Option<Waker>>,
    task: RefCell<Option<JoinHandle<()>>>,
}

impl Connection for Rc<ConnectionState> {
    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    fn is_busy(&self) -> bool {
        self.traffic.is_unanswered() || self.finishing.get()
    }

    fn request_close(&self) {
        self.closing.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn abort(&self) {
        if let Some(task) = self.task.borrow_mut().as_mut() {
            task.abort();
        }
    }
}

fn by_name(counters: Counters) -> BTreeMap<&'static str, u64> {
    let counts = counters.iter().filter(|counter| !counter.is_gauge());
    counts.map(|counter| (counter.name, counter.value)).collect()
}
