//! From a plan to a report: a thread an event loop, its clients visiting until no visit is left.

use super::connection::{Times, run_one};
use super::plan::PerConnectionPlan;
use super::report::PerConnectionReport;
use crate::measured::Measured;
use crate::metrics::Faults;
use crate::run::{LoadError, Observer, Progress};
use crate::{affinity, clock, limits};
use annulus::{JoinError, Runtime, time};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How often the observer hears of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// What the event loops share.
struct SharedRun {
    plan: PerConnectionPlan,
    /// Visits begun so far: each takes the next number.
    started: AtomicUsize,
    completed: AtomicUsize,
    /// The observer ends the run early.
    interrupted: AtomicBool,
    faults: Mutex<Faults>,
}

/// What a thread tells the one that started it.
enum ThreadMessage {
    /// Its event loop is there, on this driver.
    Ready(String),
    /// It has no event loop.
    Failed(io::Error),
    /// Its clients have no visit left to make; these they made, the last of them ended at this time.
    Done(Vec<Times>, u64),
}

/// Carries out a plan on threads of its own, while the calling thread waits. The window of the observer is the whole run.
///
/// Failures of the server or of single visits are counted in [`PerConnectionReport::errors`]. A client that fails stays down.
///
/// # Errors
/// Where the run could not begin.
pub fn run(
    plan: &PerConnectionPlan,
    observer: &mut dyn Observer,
) -> Result<PerConnectionReport, LoadError> {
    plan.validate().map_err(LoadError::Plan)?;
    limits::reserve(plan.max_open()).map_err(LoadError::Files)?;
    let _pinned = plan.pin.map(affinity::pin).transpose().map_err(LoadError::Pin)?;
    let run = Arc::new(SharedRun::new(plan.clone()));
    thread::scope(|scope| {
        let (sender, messages) = mpsc::channel();
        let mut starts = Vec::new();
        for index in 0..plan.threads {
            let (start, started) = mpsc::channel();
            let (run, sender) = (Arc::clone(&run), sender.clone());
            let spawned = thread::Builder::new()
                .spawn_scoped(scope, move || event_loop(&run, index, &sender, &started));
            spawned.map_err(|error| LoadError::Threads {
                started: index,
                wanted: plan.threads,
                error,
            })?;
            starts.push(start);
        }
        drop(sender);
        let driver = all_ready(&messages, plan.threads)?;
        let (measured, times) = measure(&run, observer, starts, &messages);
        Ok(PerConnectionReport::new(plan, driver, measured, times, run.take_faults()))
    })
}

/// Waits until every event loop is there; tells the driver.
fn all_ready(messages: &Receiver<ThreadMessage>, threads: usize) -> Result<String, LoadError> {
    let mut driver = String::new();
    for _ in 0..threads {
        match messages.recv() {
            Ok(ThreadMessage::Ready(how)) => driver = how,
            Ok(ThreadMessage::Failed(error)) => return Err(LoadError::Runtime(error)),
            Ok(ThreadMessage::Done(..)) | Err(_) => {
                unreachable!("a thread tells that it is ready first")
            }
        }
    }
    Ok(driver)
}

/// Lets the visits begin, and waits for the last of them.
fn measure(
    run: &SharedRun,
    observer: &mut dyn Observer,
    starts: Vec<Sender<()>>,
    messages: &Receiver<ThreadMessage>,
) -> (Measured, Vec<Times>) {
    observer.window_opened();
    let (began, cpu) = (clock::nanos(), clock::process_cpu());
    // A thread that has gone has panicked: the scope will pass that on.
    for start in &starts {
        let _ = start.send(());
    }
    let (mut times, mut ended) = (Vec::with_capacity(run.plan.connections), began);
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
        length: Duration::from_nanos(ended - began),
        cpu: clock::process_cpu() - cpu,
        interrupted: run.interrupted.load(Relaxed),
    };
    observer.window_closed();
    (measured, times)
}

/// One thread: an event loop, then the visits of its clients.
fn event_loop(
    run: &Arc<SharedRun>,
    index: usize,
    messages: &Sender<ThreadMessage>,
    start: &Receiver<()>,
) {
    // At the end nothing is left to send that anyone waits for.
    let builder = Runtime::builder().driver(run.plan.driver).grace(Duration::ZERO);
    let mut runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(messages.send(ThreadMessage::Failed(error))),
    };
    // Where nobody waits for news or gives the start any more, the run has been called off.
    if messages.send(ThreadMessage::Ready(runtime.driver().to_string())).is_err()
        || start.recv().is_err()
    {
        return;
    }
    let per_connection = runtime.block_on(run_clients(run, index));
    let times = per_connection.expect("a runtime of this thread, in use by nobody else");
    let _ = messages.send(ThreadMessage::Done(times, clock::nanos()));
}

/// Runs this thread's share of the clients until no visit is left, or the run is interrupted. Clients that are left then
/// end with the runtime.
async fn run_clients(run: &Arc<SharedRun>, index: usize) -> Vec<Times> {
    let PerConnectionPlan { clients, threads, connections, .. } = run.plan;
    let clients = clients.min(connections);
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
        if let Err(JoinError::Panicked(panic)) = ended {
            std::panic::resume_unwind(panic);
        }
    }
    times.take()
}

/// One client: visit after total, until none is left or one has failed.
async fn run_client(run: Arc<SharedRun>, times: Rc<RefCell<Vec<Times>>>) {
    while let Some(number) = run.next() {
        match run_one(&run.plan, number).await {
            Ok(took) => {
                times.borrow_mut().push(took);
                run.completed.fetch_add(1, Relaxed);
            }
            Err(fault) => return run.lock_faults().record(number, &fault),
        }
    }
}

impl SharedRun {
    fn new(plan: PerConnectionPlan) -> SharedRun {
        let (started, completed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (interrupted, faults) = (AtomicBool::new(false), Mutex::default());
        SharedRun { plan, started, completed, interrupted, faults }
    }

    /// The number of the next total, if one is left.
    fn next(&self) -> Option<usize> {
        if self.interrupted.load(Relaxed) {
            return None;
        }
        let number = self.started.fetch_add(1, Relaxed);
        (number < self.plan.connections).then_some(number)
    }

    fn progress(&self, began: u64) -> Progress {
        let elapsed = Duration::from_nanos(clock::nanos() - began);
        let done = self.completed.load(Relaxed);
        // There is no telling how long it will take, but from how much is done.
        let share = done.max(1) as f64 / self.plan.connections as f64;
        Progress { elapsed, total: elapsed.div_f64(share), responses: done as u64 }
    }

    fn lock_faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_faults(&self) -> Faults {
        std::mem::take(&mut self.lock_faults())
    }
}
