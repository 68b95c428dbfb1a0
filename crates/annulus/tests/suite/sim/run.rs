//! State that all tasks of a run share: its random numbers, its dropped waits, its counts, and the
//! latch that ends it.

use crate::sim::faulty::{Tally, poll_faultily};
use crate::sim::latch::Latch;
use crate::sim::plan::{Plan, StreamPlan};
use annulus::net::TcpStream;
use annulus::spawn;
use annulus::task::JoinHandle;
use annulus::time::{sleep, timeout};
use annulus_sim::Random;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// A run. Clones share the same state.
#[derive(Clone)]
pub(crate) struct Run(Rc<Shared>);

struct Shared {
    plan: Plan,
    random: RefCell<Random>,
    /// Counts the unfinished clients, and the server's unfinished connections that receive a whole
    /// payload.
    latch: Latch,
    bytes: Cell<u64>,
    datagrams: Cell<u64>,
    cancels: Cell<u64>,
    tally: Rc<Tally>,
    /// Streams that outlive the runtime.
    kept: RefCell<Vec<TcpStream>>,
    /// Whether the root future has finished, apart from a planned panic.
    finished: Cell<bool>,
}

impl Run {
    pub(crate) fn new(plan: &Plan) -> Self {
        let complete = plan.streams.iter().filter(|stream| stream.exchange.is_complete()).count();
        let datagrams = plan.udp_clients.len() + plan.unix_pairs.len();
        Self(Rc::new(Shared {
            plan: plan.clone(),
            random: RefCell::new(Random::new(!plan.seed)),
            latch: Latch::new(plan.streams.len() + complete + datagrams),
            bytes: Cell::new(0),
            datagrams: Cell::new(0),
            cancels: Cell::new(0),
            tally: Rc::default(),
            kept: RefCell::default(),
            finished: Cell::new(false),
        }))
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.0.plan
    }

    pub(crate) fn stream_plan(&self, number: usize) -> StreamPlan {
        self.0.plan.streams[number]
    }

    pub(crate) fn latch(&self) -> &Latch {
        &self.0.latch
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.0.random.borrow_mut().below(limit)
    }

    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        self.0.random.borrow_mut().between(low, high)
    }

    /// Returns a duration: zero, about a turn, about the network's latency, or longer.
    pub(crate) fn some_time(&self) -> Duration {
        let most = self.0.random.borrow_mut().pick(&[0, 2_000, 100_000, 2_000_000, 50_000_000]);
        Duration::from_nanos(self.between(0, most))
    }

    pub(crate) fn pause(&self) -> impl Future<Output = ()> + use<> {
        sleep(self.some_time())
    }

    /// Counts bytes that arrived unchanged.
    pub(crate) fn count_bytes(&self, bytes: usize) {
        self.0.bytes.set(self.0.bytes.get() + bytes as u64);
    }

    /// Counts a datagram that arrived unchanged.
    pub(crate) fn count_datagram(&self) {
        self.0.datagrams.set(self.0.datagrams.get() + 1);
    }

    pub(crate) fn datagrams(&self) -> u64 {
        self.0.datagrams.get()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.get()
    }

    pub(crate) fn cancels(&self) -> u64 {
        self.0.cancels.get()
    }

    /// Returns the count of this run's values that panic.
    pub(crate) fn tally(&self) -> &Rc<Tally> {
        &self.0.tally
    }

    /// Keeps a stream until after the runtime has ended.
    pub(crate) fn keep(&self, stream: TcpStream) {
        self.0.kept.borrow_mut().push(stream);
    }

    pub(crate) fn drop_kept(&self) {
        drop(self.0.kept.take());
    }

    pub(crate) fn finish(&self) {
        self.0.finished.set(true);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.finished.get()
    }

    /// Awaits a future. Some polls use a waker that panics.
    async fn await_faultily<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if self.below(1000) < self.plan().panics {
                poll_faultily(self, cx, |cx| future.as_mut().poll(cx))
            } else {
                future.as_mut().poll(cx)
            }
        })
        .await
    }

    /// Awaits a future for some time, and then drops it.
    pub(crate) async fn give_up<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let outcome = timeout(self.some_time(), self.await_faultily(future)).await.ok();
        self.0.cancels.set(self.0.cancels.get() + u64::from(outcome.is_none()));
        outcome
    }

    /// Awaits a future of `again`, after dropping a few unfinished ones.
    pub(crate) async fn insist<T>(&self, mut again: impl AsyncFnMut() -> T) -> T {
        for _ in 0..self.below(self.plan().cancels + 1) {
            if let Some(value) = self.give_up(again()).await {
                return value;
            }
        }
        self.await_faultily(again()).await
    }

    /// Spawns a part of the workload. If it fails or panics, the latch opens with the error.
    pub(crate) fn start(&self, part: impl Future<Output = io::Result<()>> + 'static) {
        let run = self.clone();
        let task = spawn(part);
        drop(spawn(async move {
            joined(task).await.unwrap_or_else(|error| run.latch().fail(error));
        }));
    }
}

/// Returns the result of a task. A panic is an error.
pub(crate) async fn joined(task: JoinHandle<io::Result<()>>) -> io::Result<()> {
    task.await.unwrap_or_else(|error| Err(io::Error::other(error.to_string())))
}
