//! The clients of a worker thread, of any kind, and the sweep that finds those without a reply.

use super::{RunContext, ThreadContext};
use crate::clock;
use crate::fault::Fault;
use crate::idle::sweep_interval;
use crate::plan::Plan;
use annulus::task::{JoinError, JoinHandle};
use annulus::time;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of connects in progress, divided among all threads. More would overflow a
/// server's backlog, and a dropped SYN is repeated only after a second.
pub(super) const MAX_CONNECTS: usize = 64;

/// How long a server may take to close after the client's half-close. Exceeding it is not a
/// failure, because every reply has arrived.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often to check whether the planned number of requests is reached.
const QUOTA_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// How long an interrupted run waits for its clients to end.
const INTERRUPTED_WAIT: Duration = Duration::from_millis(200);

/// A kind of client: how it connects, and what its task does.
pub(crate) trait ClientKind: Sized + 'static {
    /// A connection or a socket.
    type Opened: 'static;
    /// A client as its thread's sweep sees it.
    type Handle: ClientHandle;

    /// Connects, within the plan's time limit. `number` counts the connections of the whole run.
    fn connect(
        &self,
        plan: &Plan,
        number: usize,
    ) -> impl Future<Output = Result<Self::Opened, Fault>>;

    /// Spawns client `number`. `began`, in nanoseconds on [`crate::clock`], is the same on all
    /// threads.
    fn start(
        context: &Rc<ThreadContext<Self>>,
        number: usize,
        opened: Self::Opened,
        began: u64,
    ) -> (JoinHandle<()>, Self::Handle);
}

/// A client as its thread's sweep sees it.
pub(crate) trait ClientHandle {
    /// Ends a client that has waited longer than the limit, or counts datagrams that have waited
    /// longer as lost.
    fn sweep(&mut self, task: &mut JoinHandle<()>, limit: Duration);

    /// Handles the end of the window: the client sends nothing more.
    fn on_window_closed(&self);

    /// Returns the number of requests in flight, if they are recorded when the window opens and
    /// closes.
    fn in_flight(&self) -> u64 {
        0
    }

    /// Returns how many requests of a client that has ended were due by `end` and not sent.
    fn take_unsent(&self, _end: u64) -> u64 {
        0
    }

    /// Gives up everything in flight, because the run ends now.
    fn give_up(&self) {}
}

/// The clients of one thread: every `threads`-th client, starting with `index`. The pool is created
/// on that thread, within its runtime.
pub(crate) struct ClientPool<K: ClientKind> {
    context: Rc<ThreadContext<K>>,
    index: usize,
    threads: usize,
    opened: Vec<(usize, K::Opened)>,
    clients: Vec<(JoinHandle<()>, K::Handle)>,
}

impl<K: ClientKind> ClientPool<K> {
    /// Creates the pool of thread `index` out of the `threads` of all parts.
    pub(crate) fn new(
        run: &Arc<RunContext>,
        kind: K,
        index: usize,
        threads: usize,
    ) -> ClientPool<K> {
        let context = Rc::new(ThreadContext::new(run, kind, index, threads));
        ClientPool { context, index, threads, opened: Vec::new(), clients: Vec::new() }
    }

    /// Connects every client, and returns true if that succeeded. Failures are recorded. Stops
    /// early if another thread has failed.
    pub(crate) async fn connect(&mut self) -> bool {
        let numbers = (self.index..self.context.run.plan.clients).step_by(self.threads);
        let tasks: Vec<_> = (0..MAX_CONNECTS)
            .map(|task| {
                let numbers = numbers.clone().skip(task).step_by(MAX_CONNECTS);
                annulus::spawn(connect_share(Rc::clone(&self.context), numbers))
            })
            .collect();
        for task in tasks {
            match task.await {
                Ok(opened) => self.opened.extend(opened),
                Err(error) => {
                    std::panic::panic_any(format!("a task that connects clients ended: {error}"))
                }
            }
        }
        self.context.run.faults.is_empty()
    }

    pub(super) fn has_quota(&self) -> bool {
        self.context.run.plan.requests.is_some()
    }

    pub(crate) fn start(&mut self, began: u64) {
        let start = |(number, opened)| K::start(&self.context, number, opened, began);
        self.clients = std::mem::take(&mut self.opened).into_iter().map(start).collect();
    }

    /// Opens the window, after a pause during which the thread did not run.
    pub(crate) fn open(&mut self, pause: Range<u64>) {
        let mut recorder = self.context.recorder.borrow_mut();
        recorder.open(pause);
        recorder.in_flight_at_start(self.in_flight());
    }

    fn in_flight(&self) -> u64 {
        self.clients.iter().map(|(_, client)| client.in_flight()).sum()
    }

    /// Stops recording within the window, or continues.
    pub(super) fn set_recording(&self, is_recording: bool) {
        self.context.recorder.borrow_mut().set_open(is_recording);
    }

    /// Closes the window: clients send nothing more.
    pub(crate) fn close(&mut self) {
        let mut recorder = self.context.recorder.borrow_mut();
        if recorder.is_open() {
            let now = clock::nanos();
            self.context.closed_at.set(Some(now));
            recorder.cut_off(self.in_flight());
            if self.context.quota() > 0 {
                let unsent = self.clients.iter().map(|(_, client)| client.take_unsent(now));
                recorder.unsent(unsent.sum());
            }
        }
        recorder.close();
        drop(recorder);
        self.context.is_open.set(false);
        self.clients.iter().for_each(|(_, client)| client.on_window_closed());
    }

    /// Returns the number of replies within the window so far.
    pub(super) fn responses(&self) -> u64 {
        self.context.recorder.borrow().responses()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.clients.iter().all(|(task, _)| task.is_finished())
    }

    pub(super) fn sweep_interval(&self) -> Duration {
        let interval = sweep_interval(self.context.run.plan.reply_timeout);
        match self.context.run.plan.requests {
            Some(_) => interval.min(QUOTA_CHECK_INTERVAL),
            None => interval,
        }
    }

    /// Returns when the last reply was completed, if all planned requests have been sent and at
    /// least one was answered.
    pub(super) fn last_reply(&self) -> Option<u64> {
        let last = self.context.recorder.borrow().last_reply();
        (self.has_quota() && self.context.quota() == 0 && last > 0).then_some(last)
    }

    /// Ends clients that have waited too long, and counts overdue datagrams as lost.
    pub(super) fn sweep(&mut self) {
        self.context.recorder.borrow_mut().advance_to(clock::nanos());
        let limit = self.context.run.plan.reply_timeout;
        self.clients.iter_mut().for_each(|(task, client)| client.sweep(task, limit));
        if self.context.quota() == 0 {
            // Wake clients that wait until their next request is due, so that they end now.
            self.clients.iter().for_each(|(_, client)| client.on_window_closed());
        }
    }

    /// Waits until every client has ended, and sweeps in the meantime.
    pub(crate) async fn finish(&mut self) {
        let interval = self.sweep_interval().min(CLOSE_TIMEOUT / 8);
        for number in 0..self.clients.len() {
            while let Err(time::Elapsed { .. }) = self.wait(number, interval).await {
                self.sweep();
            }
        }
    }

    async fn wait(&mut self, number: usize, limit: Duration) -> Result<(), time::Elapsed> {
        let ended = time::timeout(limit, &mut self.clients[number].0).await?;
        match ended.map_err(JoinError::try_into_panic) {
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Ok(()) | Err(Err(_)) => Ok(()),
        }
    }

    /// Ends the remaining clients and finishes recording. If the run was abandoned, some clients
    /// may remain; they end with the runtime.
    pub(crate) async fn end(mut self) {
        if !self.is_finished() {
            self.close();
            let _ = time::timeout(INTERRUPTED_WAIT, self.finish()).await;
        }
        self.clients.iter().for_each(|(_, client)| client.give_up());
        self.sweep();
        self.context.recorder.borrow_mut().finish();
    }
}

/// Connects clients one after another. Stops at the first failure in the run, which is recorded.
async fn connect_share<K: ClientKind>(
    context: Rc<ThreadContext<K>>,
    numbers: impl Iterator<Item = usize>,
) -> Vec<(usize, K::Opened)> {
    let mut opened = Vec::new();
    for client in numbers {
        if !context.run.faults.is_empty() {
            break;
        }
        match context.connect().await {
            Ok(one) => opened.push((client, one)),
            Err(fault) => context.run.faults.record(client, &fault),
        }
    }
    opened
}
