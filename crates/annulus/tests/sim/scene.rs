//! What all tasks of a run share: chance, patience, and who is still to come.

use crate::faulty::{Tally, poll_faultily};
use crate::gate::Gate;
use crate::plan::{Plan, Script};
use annulus::net::TcpStream;
use annulus::time::{sleep, timeout};
use annulus::{JoinHandle, spawn};
use annulus_sim::Random;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// A run's common ground. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Scene(Rc<Shared>);

struct Shared {
    plan: Plan,
    random: RefCell<Random>,
    /// Clients that have to come to their end, and sessions of theirs on the server.
    gate: Gate,
    bytes: Cell<u64>,
    letters: Cell<u64>,
    cancels: Cell<u64>,
    tally: Rc<Tally>,
    /// What outlives the runtime.
    kept: RefCell<Vec<TcpStream>>,
    /// The root future has done its part.
    finished: Cell<bool>,
}

impl Scene {
    pub(crate) fn new(plan: &Plan) -> Self {
        let complete = plan.scripts.iter().filter(|script| script.manner.is_complete()).count();
        let letters = plan.correspondences.len() + plan.whispers.len();
        Self(Rc::new(Shared {
            plan: plan.clone(),
            random: RefCell::new(Random::new(!plan.seed)),
            gate: Gate::new(plan.scripts.len() + complete + letters),
            bytes: Cell::new(0),
            letters: Cell::new(0),
            cancels: Cell::new(0),
            tally: Rc::default(),
            kept: RefCell::default(),
            finished: Cell::new(false),
        }))
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.0.plan
    }

    pub(crate) fn script(&self, number: usize) -> Script {
        self.0.plan.scripts[number]
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.0.random.borrow_mut().below(limit)
    }

    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        self.0.random.borrow_mut().between(low, high)
    }

    /// A short while: nothing at all, about a turn, about a journey, or longer.
    pub(crate) fn moment(&self) -> Duration {
        let most = self.0.random.borrow_mut().pick(&[0, 2_000, 100_000, 2_000_000, 50_000_000]);
        Duration::from_nanos(self.between(0, most))
    }

    pub(crate) fn pause(&self) -> impl Future<Output = ()> + use<> {
        sleep(self.moment())
    }

    /// Counts bytes that arrived as they should.
    pub(crate) fn heard(&self, bytes: usize) {
        self.0.bytes.set(self.0.bytes.get() + bytes as u64);
    }

    /// Counts a datagram that came back as it was written.
    pub(crate) fn letter(&self) {
        self.0.letters.set(self.0.letters.get() + 1);
    }

    pub(crate) fn letters(&self) -> u64 {
        self.0.letters.get()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.get()
    }

    pub(crate) fn cancels(&self) -> u64 {
        self.0.cancels.get()
    }

    /// What is to panic in this run.
    pub(crate) fn tally(&self) -> &Rc<Tally> {
        &self.0.tally
    }

    /// Keeps a stream until the runtime is gone.
    pub(crate) fn keep(&self, stream: TcpStream) {
        self.0.kept.borrow_mut().push(stream);
    }

    /// Drops what was kept.
    pub(crate) fn let_go(&self) {
        drop(self.0.kept.take());
    }

    pub(crate) fn finish(&self) {
        self.0.finished.set(true);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.finished.get()
    }

    /// Awaits a future, with a waker that panics now and then.
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

    /// Waits a moment for a future and drops it.
    pub(crate) async fn give_up<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let outcome = timeout(self.moment(), self.await_faultily(future)).await.ok();
        self.0.cancels.set(self.0.cancels.get() + u64::from(outcome.is_none()));
        outcome
    }

    /// Waits for what `again` waits for, giving up a few times on the way.
    pub(crate) async fn insist<T>(&self, mut again: impl AsyncFnMut() -> T) -> T {
        for _ in 0..self.below(self.plan().cancels + 1) {
            if let Some(value) = self.give_up(again()).await {
                return value;
            }
        }
        self.await_faultily(again()).await
    }

    /// Spawns a part of the play; whatever befalls it, a panic too, is told at the gate.
    pub(crate) fn act(&self, part: impl Future<Output = io::Result<()>> + 'static) {
        let scene = self.clone();
        let task = spawn(part);
        drop(spawn(async move {
            joined(task).await.unwrap_or_else(|error| scene.gate().fail(error));
        }));
    }
}

/// What a task came to; a panic is an error like another.
pub(crate) async fn joined(task: JoinHandle<io::Result<()>>) -> io::Result<()> {
    task.await.unwrap_or_else(|error| Err(io::Error::other(error.to_string())))
}
