//! Echo on the runtime: a thread a worker, a task a connection.

use super::guests::{Guest, Guests, Sweep};
use super::leaving::Leaving;
use super::letters::{self, Letters, Post, Together};
use super::self_test;
use super::stats::{Driver, Stats, Tally, Worker};
use super::stream::{Entrance, Stream};
use super::{Listen, Plan, STOPPING};
use crate::endpoint::Endpoint;
use crate::signals::Stop;
use annulus::net::{ConnectionLimit, ListenOptions, UnixListener, UnixOptions};
use annulus::shards::{Cause, Doors, Shard, ShardError, Shards};
use annulus::signal::{Signal, signals};
use annulus::{Builder, Counters, DriverChoice, DriverInfo, JoinHandle, Lease, Runtime, time};
use annulus_driver::PoolSize;
use annulus_load::{clock, unix_address};
use anyhow::{Context, Result, anyhow};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Connections the kernel may hold for us before we accept them.
const BACKLOG: u32 = 4096;

/// Serves until a signal, with a runtime a worker.
pub(super) fn serve(plan: &Plan, choice: DriverChoice) -> Result<Stats> {
    self_test::on_runtime(choice)?;
    let limit = plan.most.map(ConnectionLimit::new);
    let doors = doors(plan, limit.as_ref())?;
    let leaving = Arc::new(Leaving::default());
    let settings = plan.clone();
    let shards = Shards::new(plan.workers)
        .pinning(plan.pinning.clone())
        .runtime(move |_| builder(choice, &settings));
    let began = clock::now();
    let served = shards.run(async |shard| {
        let house = Rc::new(House::new(plan.clone(), limit.clone(), Arc::clone(&leaving)));
        host(house, &doors, &shard).await
    });
    Ok(Stats::new(served.map_err(|error| explain(error, choice))?, began))
}

/// Those of every TCP listen, in order.
fn doors(plan: &Plan, limit: Option<&ConnectionLimit>) -> Result<Vec<Doors>> {
    let options = ListenOptions::new().backlog(BACKLOG);
    let options = limit.map_or(options.clone(), |limit| options.limit(limit));
    let tcp = plan.listens.iter().filter(|listen| matches!(listen.endpoint, Endpoint::Tcp(_)));
    tcp.map(|Listen { endpoint, addresses }| {
        Doors::bind(addresses.as_slice(), &options, plan.workers, plan.spread)
            .map_err(|error| plan.cannot_listen(endpoint, error))
    })
    .collect()
}

fn builder(choice: DriverChoice, plan: &Plan) -> Builder {
    // The server closes its connections itself, within its own grace.
    let builder = plan.ring.configure(Runtime::builder().driver(choice).grace(Duration::ZERO));
    let builder = builder.memory_limit(plan.memory.clone());
    match plan.recv_buffers {
        Some(count) => builder.buffers(PoolSize::default().buffer, count),
        None => builder,
    }
}

/// What ended the workers, in the user's words.
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

/// The whole life of a worker; returns what it did.
async fn host(house: Rc<House>, doors: &[Doors], shard: &Shard) -> Result<Worker> {
    let plan = &house.plan;
    let (mut listening, addresses) = open(&house, doors, shard)?;
    if shard.index() == 0 {
        close_on_signal(Rc::clone(&house)).context("cannot handle signals")?;
        plan.announce(&addresses, &shard.driver().to_string());
    }
    let sweeper =
        plan.idle_timeout.map(|limit| annulus::spawn(sweep_forever(Rc::clone(&house), limit)));
    until_either(house.leaving.begun(), &mut listening).await?;
    if let Some(mut sweeper) = sweeper {
        sweeper.abort();
    }
    let cut_off = house.see_off().await;
    Ok(house.report(shard.driver(), cut_off))
}

/// Tasks that end only when they fail.
type Listening = Vec<JoinHandle<io::Result<()>>>;

/// Opens this worker's part of everything that is listened at, and tells the addresses. All but TCP is the first one's.
fn open(house: &Rc<House>, doors: &[Doors], shard: &Shard) -> Result<(Listening, Vec<String>)> {
    let (mut listening, mut addresses) = (Vec::new(), Vec::new());
    let mut doors = doors.iter();
    for listen in &house.plan.listens {
        let house = Rc::clone(house);
        let (tasks, address) = match &listen.endpoint {
            Endpoint::Tcp(_) => {
                let door = doors.next().expect("there are doors for every TCP listen");
                let entrance = Entrance::Doors(door.open(shard).context("cannot open the doors")?);
                let address = listen.endpoint.written(door.local_addr());
                (vec![annulus::spawn(admit_all(entrance, house))], address)
            }
            _ if shard.index() > 0 => continue,
            Endpoint::Unix(path) => {
                let entrance = Entrance::Path(listen_at(&house, listen, path)?);
                (vec![annulus::spawn(admit_all(entrance, house))], listen.endpoint.to_string())
            }
            Endpoint::Udp(_) => {
                let (socket, address) = letters::open(&house.plan, listen, &house.letters)?;
                match house.plan.letters.segments {
                    true => (echo_all(&house, Together(socket)), address),
                    false => (echo_all(&house, socket), address),
                }
            }
            Endpoint::UnixDatagram(path) => {
                let socket = letters::open_path(&house.plan, listen, path)?;
                (echo_all(&house, socket), listen.endpoint.to_string())
            }
        };
        listening.extend(tasks);
        addresses.push(address);
    }
    Ok((listening, addresses))
}

/// As many tasks as receives are to be outstanding.
fn echo_all(house: &Rc<House>, socket: impl Post + 'static) -> Listening {
    let socket = Rc::new(socket);
    let echo = |_| {
        let (house, socket) = (Rc::clone(house), Rc::clone(&socket));
        annulus::spawn(async move { house.letters.echo(&*socket).await })
    };
    (0..house.plan.letters.outstanding.unwrap_or(1)).map(echo).collect()
}

fn listen_at(house: &House, listen: &Listen, path: &Path) -> Result<UnixListener> {
    let options = UnixOptions::new().backlog(BACKLOG);
    let options = house.limit.as_ref().map_or(options.clone(), |limit| options.limit(limit));
    let listener = unix_address(path).and_then(|address| options.listen_addr(&address));
    listener.map_err(|error| house.plan.cannot_listen(&listen.endpoint, error))
}

/// Has all workers leave when a signal comes. From here on none is missed, and a second one exits.
fn close_on_signal(house: Rc<House>) -> io::Result<()> {
    let mut signals = signals(&[Signal::Interrupt, Signal::Terminate])?;
    Stop::install(&STOPPING)?;
    annulus::spawn(async move {
        // An error says that the runtime has ended.
        let _ = signals.recv().await;
        house.leaving.begin();
    });
    Ok(())
}

/// Waits until it is time to leave, and stops listening; or until a listening task fails.
async fn until_either(leaving: impl Future<Output = ()>, listening: &mut Listening) -> Result<()> {
    let mut leaving = pin!(leaving);
    let failed = poll_fn(|cx| match leaving.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => {
            let mut ended = listening.iter_mut().map(|task| std::pin::Pin::new(task).poll(cx));
            ended.find(Poll::is_ready).unwrap_or(Poll::Pending).map(Some)
        }
    })
    .await;
    match failed {
        None => listening.iter_mut().for_each(JoinHandle::abort),
        Some(Ok(result)) => result.context("cannot go on listening")?,
        Some(Err(error)) => anyhow::bail!("a listening task ended: {error}"),
    }
    Ok(())
}

/// Accepts for good; the listeners keep to the limit on connections.
async fn admit_all(mut entrance: Entrance, house: Rc<House>) -> io::Result<()> {
    loop {
        match entrance.accept().await {
            Ok(Some(stream)) => house.admit(stream),
            // The accepting worker leaves, and so will this one.
            Ok(None) => pending().await,
            // The peer gave up while it waited to be accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

async fn sweep_forever(house: Rc<House>, limit: Duration) {
    let why = Sweep::Idle(limit);
    loop {
        time::sleep(why.interval()).await;
        house.sweep(why);
    }
}

/// The connections of one server.
struct House {
    plan: Plan,
    limit: Option<ConnectionLimit>,
    leaving: Arc<Leaving>,
    guests: RefCell<Guests<Rc<Talk>>>,
    letters: Letters,
    /// The host, who waits for the last guest to leave.
    waiting: Cell<Option<Waker>>,
}

impl House {
    fn new(plan: Plan, limit: Option<ConnectionLimit>, leaving: Arc<Leaving>) -> House {
        let (guests, letters) = (RefCell::new(Guests::new()), Letters::default());
        House { plan, limit, leaving, guests, letters, waiting: Cell::new(None) }
    }

    fn admit(self: &Rc<Self>, stream: Stream) {
        let talk = Rc::new(Talk::default());
        let number = self.guests.borrow_mut().admit(Rc::clone(&talk));
        let talk_too = Rc::clone(&talk);
        let mut visit = Visit { stream, talk: talk_too, house: Rc::clone(self), number };
        let task = annulus::spawn(async move {
            // A connection that fails is the peer's doing: it ends, and the server goes on.
            let _ = visit.echo().await;
        });
        talk.task.replace(Some(task));
    }

    fn report(&self, driver: &DriverInfo, cut_off: usize) -> Worker {
        let counters = annulus::counters().map(by_name).unwrap_or_default();
        let (name, reason) = (driver.kind.to_string(), driver.reason.clone());
        let driver = Driver { name, reason, counters };
        let mut tally = self.guests.borrow().tally();
        tally += self.letters.tally();
        Worker { driver, tally, cut_off: cut_off as u64 }
    }

    async fn emptiness(&self) {
        poll_fn(|cx| {
            if self.guests.borrow().count() == 0 {
                return Poll::Ready(());
            }
            self.waiting.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn sweep(&self, why: Sweep) {
        // The borrow ends before anyone is asked: leaving needs it.
        let steps = self.guests.borrow_mut().sweep(why);
        steps.into_iter().for_each(|step| step.take());
    }

    /// Has everyone leave within the grace; returns how many had to be cut off at its end.
    async fn see_off(&self) -> usize {
        let (began, grace) = (clock::now(), self.plan.grace);
        loop {
            let why = Sweep::Leaving { elapsed: clock::now() - began, grace };
            let left = self.guests.borrow().count();
            if left == 0 {
                return 0;
            }
            self.sweep(why);
            if why.is_last() {
                return left;
            }
            // Woken early when the last one leaves.
            let _ = time::timeout(why.interval(), self.emptiness()).await;
        }
    }
}

/// One connection, as its task has it.
struct Visit {
    stream: Stream,
    talk: Rc<Talk>,
    house: Rc<House>,
    number: usize,
}

impl Visit {
    /// Sends back what comes, until the peer or the house has had enough; then half-closes, so that the peer reads every
    /// answer before the end, and waits for his close.
    async fn echo(&mut self) -> io::Result<()> {
        self.remember_waker().await;
        loop {
            // A block, so that the task has no room for a lease beside the one in the send: idle tasks are small.
            {
                let Some(lease) = self.hear().await? else { break };
                self.talk.heard(lease.len());
                self.stream.send(lease)
            }
            .await?;
            self.talk.answered();
        }
        self.talk.finishing.set(true);
        self.stream.shutdown().await?;
        self.talk.finishing.set(false);
        self.stream.drain().await
    }

    /// Keeps the task's waker, so that it can be asked to leave while it waits to receive.
    async fn remember_waker(&self) {
        poll_fn(|cx| {
            self.talk.waker.set(Some(cx.waker().clone()));
            Poll::Ready(())
        })
        .await;
    }

    /// The next bytes; `None` at the end of the stream, or where nothing is there and the connection is to leave.
    async fn hear(&mut self) -> io::Result<Option<Lease>> {
        poll_fn(|cx| match self.stream.poll_recv(cx) {
            Poll::Pending if self.talk.leaving.get() => Poll::Ready(Ok(None)),
            polled => polled,
        })
        .await
    }
}

/// However the task ends, its place in the house is given back.
impl Drop for Visit {
    fn drop(&mut self) {
        self.house.guests.borrow_mut().leave(self.number);
        if let Some(waker) = self.house.waiting.take() {
            waker.wake();
        }
    }
}

/// What one connection does, seen from outside its task.
#[derive(Default)]
struct Talk {
    heard: Cell<u64>,
    answered: Cell<u64>,
    bytes: Cell<u64>,
    /// Asked to leave.
    leaving: Cell<bool>,
    /// What is queued has yet to go: a send resolves when its bytes are accepted, the end only when they are sent.
    finishing: Cell<bool>,
    waker: Cell<Option<Waker>>,
    task: RefCell<Option<JoinHandle<()>>>,
}

impl Talk {
    fn heard(&self, bytes: usize) {
        self.heard.set(self.heard.get() + 1);
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    fn answered(&self) {
        self.answered.set(self.answered.get() + 1);
    }
}

impl Guest for Rc<Talk> {
    fn beats(&self) -> u64 {
        self.heard.get() + self.answered.get()
    }

    fn is_busy(&self) -> bool {
        self.heard.get() != self.answered.get() || self.finishing.get()
    }

    fn tally(&self) -> Tally {
        let (messages, bytes) = (self.heard.get(), self.bytes.get());
        Tally { connections: 1, messages, bytes, refused: 0 }
    }

    fn ask(&self) {
        self.leaving.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn cut_off(&self) {
        if let Some(task) = self.task.borrow_mut().as_mut() {
            task.abort();
        }
    }
}

fn by_name(counters: Counters) -> BTreeMap<&'static str, u64> {
    BTreeMap::from([
        ("enters", counters.enters),
        ("looks", counters.looks),
        ("finds", counters.finds),
        ("sqes", counters.sqes),
        ("cqes", counters.cqes),
        ("overflows", counters.overflows),
        ("enobufs", counters.enobufs),
        ("late", counters.late),
        ("queue_full", counters.queue_full),
        ("memory_pauses", counters.memory_pauses),
        ("heap_receives", counters.heap_receives),
        ("zero_copy_sends", counters.zero_copy_sends),
        ("zero_copy_copied", counters.zero_copy_copied),
        ("accept_pauses", counters.accept_pauses),
        ("aborted_accepts", counters.aborted_accepts),
        ("file_inline", counters.file_inline),
        ("file_misses", counters.file_misses),
        ("file_ring", counters.file_ring),
        ("file_registered", counters.file_registered),
        ("file_worker", counters.file_worker),
        ("remote_wakes", counters.remote_wakes),
        ("alarms", counters.alarms),
    ])
}
