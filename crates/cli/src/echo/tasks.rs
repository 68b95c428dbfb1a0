//! Echo on the runtime: one thread, a task a connection.

use super::guests::{Guest, Guests, Sweep};
use super::ring::RingArgs;
use super::signals::Stop;
use super::stats::{Driver, Stats, Tally};
use super::{Plan, announce};
use annulus::net::{ListenOptions, TcpListener, TcpStream};
use annulus::signal::{Signal, signals};
use annulus::{Counters, DriverChoice, JoinHandle, Lease, Runtime, time};
use annulus_load::clock;
use anyhow::{Context, Result};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Connections the kernel may hold for us before we accept them.
const BACKLOG: u32 = 4096;

/// A runtime to serve on.
pub(super) fn runtime(choice: DriverChoice, ring: &RingArgs) -> io::Result<Runtime> {
    // The house sees its guests off itself, within its own grace.
    ring.configure(Runtime::builder().driver(choice).grace(Duration::ZERO)).build()
}

/// Serves until a signal.
pub(super) fn serve(plan: &Plan, mut runtime: Runtime) -> Result<Stats> {
    let driver = runtime.driver().clone();
    let house = Rc::new(House::new(plan.clone()));
    let how = driver.to_string();
    let (began, cut_off) = runtime.block_on(host(Rc::clone(&house), &how))??;
    let driver = Driver {
        name: driver.kind.to_string(),
        reason: driver.reason,
        counters: by_name(runtime.counters()),
    };
    Ok(Stats::new(driver, house.guests.borrow().tally(), cut_off, began))
}

/// The whole life of the server; returns when it was ready, and how many connections it had to cut off.
async fn host(house: Rc<House>, how: &str) -> Result<(Duration, usize)> {
    let plan = &house.plan;
    let listener = ListenOptions::new().backlog(BACKLOG).bind(plan.addresses.as_slice());
    let listener = listener.map_err(|error| plan.cannot_listen(error))?;
    let _second_signal_exits = Stop::install().context("cannot handle signals")?;
    let mut stop =
        signals(&[Signal::Interrupt, Signal::Terminate]).context("cannot handle signals")?;
    announce(listener.local_addr(), how)?;
    let began = clock::now();
    let sweeper =
        plan.idle_timeout.map(|limit| annulus::spawn(sweep_forever(Rc::clone(&house), limit)));
    let mut doors = annulus::spawn(admit_all(listener, Rc::clone(&house)));
    until_either(stop.recv(), &mut doors).await?;
    if let Some(mut sweeper) = sweeper {
        sweeper.abort();
    }
    Ok((began, house.see_off().await))
}

/// Waits for a signal, and closes the doors; or for the doors to fail.
async fn until_either(
    stop: impl Future<Output = io::Result<Signal>>,
    doors: &mut JoinHandle<io::Result<()>>,
) -> Result<()> {
    let mut stop = pin!(stop);
    let failed = poll_fn(|cx| match stop.as_mut().poll(cx) {
        Poll::Ready(signal) => Poll::Ready(signal.err().map(|error| Ok(Err(error)))),
        Poll::Pending => std::pin::Pin::new(&mut *doors).poll(cx).map(Some),
    })
    .await;
    match failed {
        None => doors.abort(),
        Some(Ok(result)) => result.context("cannot accept connections")?,
        Some(Err(error)) => anyhow::bail!("the accepting task ended: {error}"),
    }
    Ok(())
}

/// Accepts as long as there is room.
async fn admit_all(listener: TcpListener, house: Rc<House>) -> io::Result<()> {
    loop {
        house.vacancy().await;
        match listener.accept().await {
            Ok((stream, _peer)) => house.admit(stream),
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
    guests: RefCell<Guests<Rc<Talk>>>,
    /// Who waits for a guest to leave: the acceptor, or the host at the end.
    waiting: Cell<Option<Waker>>,
}

impl House {
    fn new(plan: Plan) -> House {
        House { plan, guests: RefCell::new(Guests::new()), waiting: Cell::new(None) }
    }

    fn admit(self: &Rc<Self>, stream: TcpStream) {
        let talk = Rc::new(Talk::default());
        let number = self.guests.borrow_mut().admit(Rc::clone(&talk));
        let mut visit = Visit { stream, talk: Rc::clone(&talk), house: Rc::clone(self), number };
        let task = annulus::spawn(async move {
            // A connection that fails is the peer's doing: it ends, and the server goes on.
            let _ = visit.echo().await;
        });
        talk.task.replace(Some(task));
    }

    /// Waits until there is room for one more.
    async fn vacancy(&self) {
        self.fewer_than(self.plan.room).await;
    }

    async fn fewer_than(&self, count: usize) {
        poll_fn(|cx| {
            if self.guests.borrow().count() < count {
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
            let _ = time::timeout(why.interval(), self.fewer_than(1)).await;
        }
    }
}

/// One connection, as its task has it.
struct Visit {
    stream: TcpStream,
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
        while self.stream.recv().await?.is_some() {}
        Ok(())
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
        Tally { connections: 1, messages: self.heard.get(), bytes: self.bytes.get() }
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
        ("sqes", counters.sqes),
        ("cqes", counters.cqes),
        ("overflows", counters.overflows),
        ("enobufs", counters.enobufs),
        ("late", counters.late),
        ("queue_full", counters.queue_full),
        ("heap_receives", counters.heap_receives),
        ("accept_pauses", counters.accept_pauses),
        ("file_inline", counters.file_inline),
        ("file_misses", counters.file_misses),
        ("file_ring", counters.file_ring),
        ("file_worker", counters.file_worker),
    ])
}
