//! From a plan to a report: a thread an event loop, its clients visiting until no visit is left.

use super::plan::VisitPlan;
use super::report::VisitReport;
use super::visitor::{Times, visit};
use crate::board::Faults;
use crate::measured::Measured;
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
const BEAT: Duration = Duration::from_millis(100);

/// What the event loops share.
struct Tour {
    plan: VisitPlan,
    /// Visits begun so far: each takes the next number.
    begun: AtomicUsize,
    completed: AtomicUsize,
    /// The observer ends the run early.
    interrupted: AtomicBool,
    faults: Mutex<Faults>,
}

/// What a thread tells the one that started it.
enum News {
    /// Its event loop is there, on this driver.
    Ready(String),
    /// It has no event loop.
    Failed(io::Error),
    /// Its clients have no visit left to make; these they made, the last of them ended at this time.
    Done(Vec<Times>, u64),
}

/// Carries out a plan on threads of its own, while the calling thread waits. The window of the observer is the whole run.
///
/// Failures of the server or of single visits are counted in [`VisitReport::errors`]. A client that fails stays down.
///
/// # Errors
/// Where the run could not begin.
pub fn run(plan: &VisitPlan, observer: &mut dyn Observer) -> Result<VisitReport, LoadError> {
    plan.validate().map_err(LoadError::Plan)?;
    limits::reserve(plan.at_once()).map_err(LoadError::Files)?;
    let _pinned = plan.pin.map(affinity::pin).transpose().map_err(LoadError::Pin)?;
    let tour = Arc::new(Tour::new(plan.clone()));
    thread::scope(|scope| {
        let (sender, news) = mpsc::channel();
        let mut starts = Vec::new();
        for place in 0..plan.threads {
            let (start, started) = mpsc::channel();
            let (tour, sender) = (Arc::clone(&tour), sender.clone());
            let spawned = thread::Builder::new()
                .spawn_scoped(scope, move || event_loop(&tour, place, &sender, &started));
            spawned.map_err(|error| LoadError::Threads {
                started: place,
                wanted: plan.threads,
                error,
            })?;
            starts.push(start);
        }
        drop(sender);
        let driver = all_ready(&news, plan.threads)?;
        let (measured, times) = measure(&tour, observer, starts, &news);
        Ok(VisitReport::new(plan, driver, measured, times, tour.take_faults()))
    })
}

/// Waits until every event loop is there; tells the driver.
fn all_ready(news: &Receiver<News>, threads: usize) -> Result<String, LoadError> {
    let mut driver = String::new();
    for _ in 0..threads {
        match news.recv() {
            Ok(News::Ready(how)) => driver = how,
            Ok(News::Failed(error)) => return Err(LoadError::Runtime(error)),
            Ok(News::Done(..)) | Err(_) => unreachable!("a thread tells that it is ready first"),
        }
    }
    Ok(driver)
}

/// Lets the visits begin, and waits for the last of them.
fn measure(
    tour: &Tour,
    observer: &mut dyn Observer,
    starts: Vec<Sender<()>>,
    news: &Receiver<News>,
) -> (Measured, Vec<Times>) {
    observer.window_opened();
    let (began, cpu) = (clock::nanos(), clock::process_cpu());
    // A thread that has gone has panicked: the scope will pass that on.
    for start in &starts {
        let _ = start.send(());
    }
    let (mut times, mut ended) = (Vec::with_capacity(tour.plan.connections), began);
    let mut left = starts.len();
    while left > 0 {
        match news.recv_timeout(BEAT) {
            Ok(News::Done(more, at)) => {
                times.extend(more);
                ended = ended.max(at);
                left -= 1;
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {
                observer.progress(tour.progress(began));
                tour.interrupted.store(observer.is_interrupted(), Relaxed);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let measured = Measured {
        length: Duration::from_nanos(ended - began),
        cpu: clock::process_cpu() - cpu,
        interrupted: tour.interrupted.load(Relaxed),
    };
    observer.window_closed();
    (measured, times)
}

/// One thread: an event loop, then the visits of its clients.
fn event_loop(tour: &Arc<Tour>, place: usize, news: &Sender<News>, start: &Receiver<()>) {
    // At the end nothing is left to send that anyone waits for.
    let builder = Runtime::builder().driver(tour.plan.driver).grace(Duration::ZERO);
    let mut runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(news.send(News::Failed(error))),
    };
    // Where nobody waits for news or gives the start any more, the run has been called off.
    if news.send(News::Ready(runtime.driver().to_string())).is_err() || start.recv().is_err() {
        return;
    }
    let visits = runtime.block_on(visit_all(tour, place));
    let times = visits.expect("a runtime of this thread, in use by nobody else");
    let _ = news.send(News::Done(times, clock::nanos()));
}

/// Runs this thread's share of the clients until no visit is left, or the run is interrupted. Clients that are left then
/// end with the runtime.
async fn visit_all(tour: &Arc<Tour>, place: usize) -> Vec<Times> {
    let VisitPlan { clients, threads, connections, .. } = tour.plan;
    let clients = clients.min(connections);
    let share = clients / threads + usize::from(place < clients % threads);
    let times = Rc::new(RefCell::new(Vec::new()));
    let clients: Vec<_> =
        (0..share).map(|_| annulus::spawn(visit_on(Arc::clone(tour), Rc::clone(&times)))).collect();
    for mut client in clients {
        let ended = loop {
            match time::timeout(BEAT, &mut client).await {
                Ok(ended) => break ended,
                Err(_) if tour.interrupted.load(Relaxed) => return times.take(),
                Err(_) => {}
            }
        };
        if let Err(JoinError::Panicked(panic)) = ended {
            std::panic::resume_unwind(panic);
        }
    }
    times.take()
}

/// One client: visit after visit, until none is left or one has failed.
async fn visit_on(tour: Arc<Tour>, times: Rc<RefCell<Vec<Times>>>) {
    while let Some(number) = tour.next() {
        match visit(&tour.plan, number).await {
            Ok(took) => {
                times.borrow_mut().push(took);
                tour.completed.fetch_add(1, Relaxed);
            }
            Err(fault) => return tour.lock_faults().note(number, &fault),
        }
    }
}

impl Tour {
    fn new(plan: VisitPlan) -> Tour {
        let (begun, completed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (interrupted, faults) = (AtomicBool::new(false), Mutex::default());
        Tour { plan, begun, completed, interrupted, faults }
    }

    /// The number of the next visit, if one is left.
    fn next(&self) -> Option<usize> {
        if self.interrupted.load(Relaxed) {
            return None;
        }
        let number = self.begun.fetch_add(1, Relaxed);
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
