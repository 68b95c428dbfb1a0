//! The run of a connection per message: a thread per event loop, each with its share of the clients.

use super::connection::{Times, run_one};
use crate::clock;
use crate::measured::Measured;
use crate::metrics::Faults;
use crate::plan::Plan;
use crate::report::Findings;
use crate::run::{LoadError, Observer, Progress};
use annulus::{DriverChoice, JoinError, Runtime, time};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often to notify the observer of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// State that the event loops share.
struct SharedRun {
    plan: Plan,
    driver: DriverChoice,
    /// Connections started: each takes the next number.
    started: AtomicUsize,
    completed: AtomicUsize,
    /// The observer ends the run early.
    interrupted: AtomicBool,
    faults: Mutex<Faults>,
}

/// What a thread reports to the main thread.
enum ThreadMessage {
    /// Its event loop runs on this driver.
    Ready(String),
    /// It has no event loop.
    Failed(io::Error),
    /// No connection is left to start: the times of its connections, and when the last of them ended.
    Done(Vec<Times>, u64),
}

/// Runs the workload on threads of its own while the calling thread waits. The observer's window is the whole run.
///
/// A client that fails does not continue.
pub(crate) fn run(
    plan: &Plan,
    driver: DriverChoice,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let run = Arc::new(SharedRun::new(plan.clone(), driver));
    thread::scope(|scope| {
        let (sender, messages) = mpsc::channel();
        let (mut starts, threads) = (Vec::new(), plan.threads());
        for index in 0..threads {
            let (start, started) = mpsc::channel();
            let (run, sender) = (Arc::clone(&run), sender.clone());
            thread::Builder::new()
                .spawn_scoped(scope, move || event_loop(&run, index, &sender, &started))
                .map_err(|error| LoadError::Threads { started: index, wanted: threads, error })?;
            starts.push(start);
        }
        drop(sender);
        let driver = all_ready(&messages, threads)?;
        let (measured, times) = measure(&run, observer, starts, &messages);
        let figures = super::figures(plan, measured, &times);
        let faults = std::mem::take(&mut *run.faults());
        Ok(Findings { driver, measured, figures, intervals: Vec::new(), faults })
    })
}

/// Waits until every event loop is ready; returns the driver.
fn all_ready(messages: &Receiver<ThreadMessage>, threads: usize) -> Result<String, LoadError> {
    let mut driver = String::new();
    for _ in 0..threads {
        match messages.recv() {
            Ok(ThreadMessage::Ready(name)) => driver = name,
            Ok(ThreadMessage::Failed(error)) => return Err(LoadError::Runtime(error)),
            Ok(ThreadMessage::Done(..)) | Err(_) => unreachable!("a thread is ready first"),
        }
    }
    Ok(driver)
}

/// Starts the connections, and waits for the last of them.
fn measure(
    run: &SharedRun,
    observer: &mut dyn Observer,
    starts: Vec<Sender<()>>,
    messages: &Receiver<ThreadMessage>,
) -> (Measured, Vec<Times>) {
    observer.window_opened();
    let (began, cpu) = (clock::nanos(), clock::process_cpu());
    // A thread whose receiver is gone has panicked; the scope passes that on.
    for start in &starts {
        let _ = start.send(());
    }
    let (mut times, mut ended) = (Vec::with_capacity(run.plan.connections()), began);
    let mut left = starts.len();
    while left > 0 {
        match messages.recv_timeout(PROGRESS_INTERVAL) {
            Ok(ThreadMessage::Done(more, at)) => {
                times.extend(more);
                ended = ended.max(at);
                left -= 1;
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {
                observer.progress(run.progress(began));
                run.interrupted.store(observer.is_interrupted(), Relaxed);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let measured = Measured {
        started: Duration::ZERO,
        length: Duration::from_nanos(ended - began),
        cpu: clock::process_cpu() - cpu,
        interrupted: run.interrupted.load(Relaxed),
    };
    observer.window_closed();
    (measured, times)
}

/// One thread: an event loop with its share of the clients.
fn event_loop(
    run: &Arc<SharedRun>,
    index: usize,
    messages: &Sender<ThreadMessage>,
    start: &Receiver<()>,
) {
    // No data is left to send when the clients have ended.
    let builder = Runtime::builder().driver(run.driver).shutdown_timeout(Duration::ZERO);
    let mut runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(messages.send(ThreadMessage::Failed(error))),
    };
    // If either channel is closed, the run was cancelled.
    let ready = ThreadMessage::Ready(runtime.driver().to_string());
    if messages.send(ready).is_err() || start.recv().is_err() {
        return;
    }
    let times = runtime.block_on(run_clients(run, index));
    let _ = messages.send(ThreadMessage::Done(times, clock::nanos()));
}

/// Runs this thread's share of the clients until no connection is left, or the run is interrupted. Clients that are left
/// then end with the runtime.
async fn run_clients(run: &Arc<SharedRun>, index: usize) -> Vec<Times> {
    let threads = run.plan.threads();
    let clients = run.plan.clients.min(run.plan.connections());
    let share = clients / threads + usize::from(index < clients % threads);
    let times = Rc::new(RefCell::new(Vec::new()));
    let clients: Vec<_> = (0..share)
        .map(|_| annulus::spawn(run_client(Arc::clone(run), Rc::clone(&times))))
        .collect();
    for mut client in clients {
        let ended = loop {
            match time::timeout(PROGRESS_INTERVAL, &mut client).await {
                Ok(ended) => break ended,
                Err(_) if run.interrupted.load(Relaxed) => return times.take(),
                Err(_) => {}
            }
        };
        if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
            std::panic::resume_unwind(panic);
        }
    }
    times.take()
}

/// One client: one connection after the other, until none is left or one has failed.
async fn run_client(run: Arc<SharedRun>, times: Rc<RefCell<Vec<Times>>>) {
    while let Some(number) = run.next() {
        match run_one(&run.plan, number).await {
            Ok(took) => {
                times.borrow_mut().push(took);
                run.completed.fetch_add(1, Relaxed);
            }
            Err(fault) => return run.faults().record(number, &fault),
        }
    }
}

impl SharedRun {
    fn new(plan: Plan, driver: DriverChoice) -> SharedRun {
        let (started, completed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (interrupted, faults) = (AtomicBool::new(false), Mutex::default());
        SharedRun { plan, driver, started, completed, interrupted, faults }
    }

    /// The number of the next connection, if one is left.
    fn next(&self) -> Option<usize> {
        if self.interrupted.load(Relaxed) {
            return None;
        }
        let number = self.started.fetch_add(1, Relaxed);
        (number < self.plan.connections()).then_some(number)
    }

    fn progress(&self, began: u64) -> Progress {
        let elapsed = Duration::from_nanos(clock::nanos() - began);
        let done = self.completed.load(Relaxed);
        // The total is estimated from the share of connections that are done.
        let share = done.max(1) as f64 / self.plan.connections() as f64;
        Progress { elapsed, total: elapsed.div_f64(share), responses: done as u64 }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
