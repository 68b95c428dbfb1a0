//! The calling thread's part: starts the threads, opens and closes the window, and observes.

use super::pool::{ClientPool, Kind};
use super::work::{Link, work};
use super::{Command, Event, Measured, Run, Settings};
use crate::clock;
use crate::load_error::LoadError;
use crate::observer::{Observer, Progress};
use crate::run_queue;
use annulus::shards::{self, Sender};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// How often to notify the observer of progress, and to ask it for an interruption.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Commands that a thread may not have taken yet.
const COMMANDS: usize = 8;

/// The measurements of the threads.
pub(crate) struct Ran {
    pub(crate) driver: String,
    pub(crate) measured: Measured,
}

/// Runs clients of a kind on the threads of the plan. The observer is shown the intervals that are complete with the progress.
pub(crate) fn run<K: Kind>(
    run: &Arc<Run>,
    settings: Settings,
    observer: &mut dyn Observer,
    kind: impl Fn() -> K + Sync,
) -> Result<Ran, LoadError> {
    let (plan, count) = (&run.plan, run.plan.threads());
    thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        let responses: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let (mut links, mut handles) = (Vec::new(), Vec::new());
        for index in 0..count {
            let (commands, received) = shards::channel(COMMANDS);
            let (release, released) = mpsc::channel();
            let (events, responses) = (sender.clone(), Arc::clone(&responses));
            let link = Link { index, events, commands: received, release: released, responses };
            let kind = &kind;
            let pool = move || ClientPool::new(run, kind(), index, count);
            let handle = thread::Builder::new()
                .name(format!("load {index}"))
                .spawn_scoped(scope, move || work(link, settings, plan.duration, pool))
                .map_err(|error| LoadError::Threads { started: index, wanted: count, error })?;
            links.push(Thread { commands, release });
            handles.push(handle);
        }
        drop(sender);
        let state = State::default();
        let mut threads = Threads { links, events, responses, state, observer, run };
        let measured = threads.run();
        if !matches!(measured, Ok(Measured { interrupted: false, .. })) {
            run.faults.interrupt();
        }
        let State { driver, .. } = std::mem::take(&mut threads.state);
        // Threads that still have clients give them up.
        drop(threads);
        handles.into_iter().for_each(join);
        measured.map(|measured| Ran { driver, measured })
    })
}

/// Waits for the end of a thread; its panic goes on here.
fn join(handle: ScopedJoinHandle<'_, ()>) {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

struct Thread {
    commands: Sender<Command>,
    release: mpsc::Sender<()>,
}

/// How far the threads are: the number of threads that have reported each event, and what the events had.
#[derive(Default)]
struct State {
    driver: String,
    error: Option<io::Error>,
    ready: usize,
    connected: usize,
    /// Not every client of a thread could connect.
    is_incomplete: bool,
    paused: usize,
    finished: usize,
    closed: usize,
    length: Duration,
    cpu: Duration,
    ended: usize,
}

impl State {
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
            Event::Paused => self.paused += 1,
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

struct Threads<'a> {
    links: Vec<Thread>,
    events: Receiver<Event>,
    responses: Arc<[AtomicU64]>,
    state: State,
    observer: &'a mut dyn Observer,
    run: &'a Run,
}

impl Threads<'_> {
    /// Measures nothing unless every client of every thread is connected.
    fn run(&mut self) -> Result<Measured, LoadError> {
        let count = self.links.len();
        let ready = self.wait(None, |state| state.ready == count || state.error.is_some());
        if let Some(error) = self.state.error.take() {
            return Err(LoadError::Runtime(error));
        }
        if ready.is_break() || self.wait(None, |state| state.connected == count).is_break() {
            return Ok(Measured::interrupted());
        }
        if self.state.is_incomplete {
            return Ok(Measured::default());
        }
        self.command(Command::Start(clock::nanos()));
        if self.wait(Some(self.run.plan.warm_up), |state| state.finished == count).is_break() {
            return Ok(Measured::interrupted());
        }
        if self.state.finished == count {
            return Ok(Measured::default());
        }
        let mut measured = self.measure();
        if !measured.interrupted {
            measured.interrupted = self.wait(None, |state| state.ended == count).is_break();
        }
        Ok(measured)
    }

    /// The window, from one standstill of all threads to the other.
    fn measure(&mut self) -> Measured {
        let count = self.links.len();
        self.command(Command::Open);
        self.await_event(|state| state.paused == count);
        // Threads that finished in the warm-up report it again.
        self.state.finished = 0;
        let waited = run_queue::waited();
        self.observer.window_opened();
        let (began, started) = (clock::now(), clock::unix());
        self.release();
        let ended = self.wait_with(
            None,
            |state| state.closed == count || state.finished == count,
            |threads| threads.progress(clock::now() - began),
        );
        if self.state.closed < count {
            self.command(Command::Close);
            self.await_event(|state| state.closed == count);
        }
        let State { length, cpu, .. } = self.state;
        self.observer.window_closed();
        let waited =
            run_queue::waited().zip(waited).map(|(now, before)| now.saturating_sub(before));
        self.release();
        Measured { started, length, cpu, waited, interrupted: ended.is_break() }
    }

    /// Waits until `done`, or for as long as `limit`; breaks if the observer interrupts, or a thread has panicked.
    fn wait(&mut self, limit: Option<Duration>, done: impl Fn(&State) -> bool) -> ControlFlow<()> {
        self.wait_with(limit, done, |_| ())
    }

    /// As [`wait`](Self::wait); `each` is called about ten times a second.
    fn wait_with(
        &mut self,
        limit: Option<Duration>,
        done: impl Fn(&State) -> bool,
        mut each: impl FnMut(&mut Self),
    ) -> ControlFlow<()> {
        let began = clock::now();
        let mut next = Duration::ZERO;
        loop {
            let elapsed = clock::now() - began;
            if done(&self.state) || limit.is_some_and(|limit| elapsed >= limit) {
                return ControlFlow::Continue(());
            }
            // Before the window is closed, only a panic ends a thread.
            if self.state.ended > 0 && self.state.closed == 0 {
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
        }
    }

    /// Waits until `done`, which comes soon, or until a thread has ended.
    fn await_event(&mut self, done: impl Fn(&State) -> bool) {
        while !done(&self.state) && self.state.ended == 0 {
            if self.receive(PROGRESS_INTERVAL).is_break() {
                return;
            }
        }
    }

    /// Waits for one event; breaks if no thread is left.
    fn receive(&mut self, limit: Duration) -> ControlFlow<()> {
        match self.events.recv_timeout(limit) {
            Ok(event) => self.state.apply(event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn progress(&mut self, elapsed: Duration) {
        let responses = self.responses.iter().map(|count| count.load(Relaxed)).sum();
        let total = self.run.plan.duration;
        self.run.collector.collect(|interval| self.observer.interval(interval));
        self.observer.progress(Progress { elapsed: elapsed.min(total), total, responses });
    }

    /// A thread that does not take it has ended.
    fn command(&self, command: Command) {
        self.links.iter().for_each(|thread| _ = thread.commands.try_send(command));
    }

    fn release(&self) {
        self.links.iter().for_each(|thread| _ = thread.release.send(()));
    }
}
