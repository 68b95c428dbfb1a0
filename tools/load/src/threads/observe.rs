//! The calling thread: starts the worker threads, opens and closes the window, and observes.

use super::pool::{ClientKind, ClientPool};
use super::worker::{Times, WorkerChannels, run_worker};
use super::{Command, Event, Measurement, RunContext, RuntimeSettings};
use crate::clock;
use crate::load_error::LoadError;
use crate::observer::{Observer, Progress};
use crate::plan::Plan;
use crate::run_queue;
use annulus::shards::{self, Sender};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// How often to report progress to the observer, and to check whether it interrupts the run.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of commands that a worker has not received yet.
const COMMAND_CAPACITY: usize = 8;

/// The results of the worker threads, and the driver that they used.
pub(crate) struct ThreadResults {
    pub(crate) driver: String,
    pub(crate) measured: Measurement,
}

/// Runs clients of one kind on the planned number of threads. The observer gets the complete
/// intervals together with the progress.
pub(crate) fn run<K: ClientKind>(
    run: &Arc<RunContext>,
    settings: RuntimeSettings,
    observer: &mut dyn Observer,
    kind: impl Fn() -> K + Sync,
) -> Result<ThreadResults, LoadError> {
    let (plan, count) = (&run.plan, run.plan.threads());
    thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        let responses: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let (mut workers, mut handles) = (Vec::new(), Vec::new());
        for index in 0..count {
            let (commands, received) = shards::channel(COMMAND_CAPACITY);
            let (release, released) = mpsc::channel();
            let (events, responses) = (sender.clone(), Arc::clone(&responses));
            let channels =
                WorkerChannels { index, events, commands: received, release: released, responses };
            let kind = &kind;
            let [number, all] = plan.part.thread(index, count);
            let times = Times { duration: plan.duration, turns: plan.turns };
            let pool = move || ClientPool::new(run, kind(), number, all);
            let handle = thread::Builder::new()
                .name(format!("load {index}"))
                .spawn_scoped(scope, move || run_worker(channels, settings, times, pool))
                .map_err(|error| LoadError::Threads { started: index, wanted: count, error })?;
            workers.push(WorkerHandle { commands, release });
            handles.push(handle);
        }
        drop(sender);
        let states = WorkerStates::default();
        let mut threads = Workers { workers, events, responses, states, observer, run };
        let measured = threads.run();
        if !matches!(measured, Ok(Measurement { interrupted: false, .. })) {
            run.faults.interrupt();
        }
        let WorkerStates { driver, .. } = std::mem::take(&mut threads.states);
        // Dropping the channels ends the workers and the clients that they still have.
        drop(threads);
        handles.into_iter().for_each(join);
        measured.map(|measured| ThreadResults { driver, measured })
    })
}

/// Waits for a thread to end, and resumes its panic here.
fn join(handle: ScopedJoinHandle<'_, ()>) {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

struct WorkerHandle {
    commands: Sender<Command>,
    release: mpsc::Sender<()>,
}

/// Progress of the workers: how many of them have reported each event, and the data of the events.
#[derive(Default)]
struct WorkerStates {
    driver: String,
    error: Option<io::Error>,
    ready: usize,
    connected: usize,
    /// Whether a client could not connect.
    is_incomplete: bool,
    /// The indices of the paused workers that have not been released.
    paused: Vec<usize>,
    /// Whether the workers warm up for the next turn.
    is_between: bool,
    finished: usize,
    closed: usize,
    length: Duration,
    cpu: Duration,
    ended: usize,
}

impl WorkerStates {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Ready(Ok(driver)) => {
                self.driver = driver;
                self.ready += 1;
            }
            Event::Ready(Err(error)) => self.error = Some(error),
            Event::Connected(all) => {
                self.is_incomplete |= !all;
                self.connected += 1;
            }
            Event::Paused(index) => self.paused.push(index),
            Event::Finished => self.finished += 1,
            Event::Closed { length, cpu } => {
                self.closed += 1;
                self.length = self.length.max(length);
                self.cpu += cpu;
            }
            Event::Ended => self.ended += 1,
        }
    }
}

struct Workers<'a> {
    workers: Vec<WorkerHandle>,
    events: Receiver<Event>,
    responses: Arc<[AtomicU64]>,
    states: WorkerStates,
    observer: &'a mut dyn Observer,
    run: &'a RunContext,
}

impl Workers<'_> {
    /// Runs all stages of the workers. Measures nothing unless every client of every worker is
    /// connected.
    fn run(&mut self) -> Result<Measurement, LoadError> {
        let count = self.workers.len();
        let ready = self.wait(None, |states| states.ready == count || states.error.is_some());
        if let Some(error) = self.states.error.take() {
            return Err(LoadError::Runtime(error));
        }
        if ready.is_break() || self.wait(None, |states| states.connected == count).is_break() {
            return Ok(Measurement::interrupted());
        }
        if self.states.is_incomplete {
            return Ok(Measurement::default());
        }
        self.observer.connected();
        if self.observer.is_interrupted() {
            return Ok(Measurement::interrupted());
        }
        self.send_command(Command::Start(clock::nanos()));
        if self.wait(Some(self.run.plan.warm_up), |states| states.finished == count).is_break() {
            return Ok(Measurement::interrupted());
        }
        if self.states.finished == count {
            return Ok(Measurement::default());
        }
        let mut measured = self.measure();
        if !measured.interrupted {
            measured.interrupted = self.wait(None, |states| states.ended == count).is_break();
        }
        Ok(measured)
    }

    /// Measures one window, which is between two pauses of all workers.
    fn measure(&mut self) -> Measurement {
        let count = self.workers.len();
        self.send_command(Command::Open);
        self.await_event(|states| states.paused.len() == count);
        // Workers that finished during the warm-up report [`Event::Finished`] again.
        self.states.finished = 0;
        let core_wait = run_queue::core_wait();
        self.observer.window_opened();
        let (began, started) = (clock::now(), clock::unix());
        self.release_paused();
        let ended = self.wait_with(
            None,
            |states| states.closed == count || states.finished == count,
            |threads| threads.progress(clock::now() - began),
        );
        if self.states.closed < count {
            self.send_command(Command::Close);
            self.await_event(|states| states.closed == count);
        }
        let WorkerStates { length, cpu, .. } = self.states;
        self.observer.window_closed();
        let core_wait =
            run_queue::core_wait().zip(core_wait).map(|(now, before)| now.saturating_sub(before));
        self.workers.iter().for_each(|thread| _ = thread.release.send(()));
        Measurement { started, length, cpu, core_wait, interrupted: ended.is_break() }
    }

    /// Waits until `done` returns true, for at most `limit`. Breaks if the observer interrupts the
    /// run or a worker has panicked.
    fn wait(
        &mut self,
        limit: Option<Duration>,
        done: impl Fn(&WorkerStates) -> bool,
    ) -> ControlFlow<()> {
        self.wait_with(limit, done, |_| ())
    }

    /// Like [`wait`](Self::wait), but calls `each` about every 100 ms, and notifies the observer of
    /// pauses.
    fn wait_with(
        &mut self,
        limit: Option<Duration>,
        done: impl Fn(&WorkerStates) -> bool,
        mut each: impl FnMut(&mut Self),
    ) -> ControlFlow<()> {
        let began = clock::now();
        let mut next = Duration::ZERO;
        loop {
            let elapsed = clock::now() - began;
            if done(&self.states) || limit.is_some_and(|limit| elapsed >= limit) {
                return ControlFlow::Continue(());
            }
            // Before the window is closed, only a panic ends a worker.
            if self.states.ended > 0 && self.states.closed == 0 {
                return ControlFlow::Break(());
            }
            if elapsed >= next {
                next = elapsed + PROGRESS_INTERVAL;
                each(self);
                if self.observer.is_interrupted() {
                    return ControlFlow::Break(());
                }
            }
            let until = limit.map_or(next, |limit| limit.min(next));
            self.receive(until.saturating_sub(elapsed))?;
            let paused = self.states.paused.len();
            if paused > 0 && paused + self.states.closed == self.workers.len() {
                match self.states.is_between {
                    true => self.observer.resumed(),
                    false => self.observer.paused(),
                }
                self.states.is_between = !self.states.is_between;
                self.release_paused();
            }
        }
    }

    /// Waits until `done` returns true or a worker has ended, both of which happen soon.
    fn await_event(&mut self, done: impl Fn(&WorkerStates) -> bool) {
        while !done(&self.states) && self.states.ended == 0 {
            if self.receive(PROGRESS_INTERVAL).is_break() {
                return;
            }
        }
    }

    /// Waits for one event. Breaks if no worker is left.
    fn receive(&mut self, limit: Duration) -> ControlFlow<()> {
        match self.events.recv_timeout(limit) {
            Ok(event) => self.states.apply(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn progress(&mut self, elapsed: Duration) {
        let responses = self.responses.iter().map(|count| count.load(Relaxed)).sum();
        let Plan { duration: total, .. } = self.run.plan;
        let requests = self.run.plan.own_requests();
        self.run.collector.collect(|interval| self.observer.interval(interval));
        self.observer.progress(Progress {
            elapsed: elapsed.min(total),
            total,
            responses,
            requests,
        });
    }

    /// Sends a command to all workers. Sending fails only if a worker has ended.
    fn send_command(&self, command: Command) {
        self.workers.iter().for_each(|thread| _ = thread.commands.try_send(command));
    }

    fn release_paused(&mut self) {
        let paused = std::mem::take(&mut self.states.paused);
        paused.into_iter().for_each(|index| _ = self.workers[index].release.send(()));
    }
}
