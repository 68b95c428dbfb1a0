//! The course of a run of tasks: connect, warm up, measure, part.

use crate::clock;
use crate::connect::connect_all;
use crate::measured::{ClientKind, Measured, Measuring, check_interrupted};
use crate::metrics::{Metrics, Phase};
use crate::plan::Plan;
use crate::pool::ClientPool;
use crate::run::{LoadError, Observer};
use annulus::{DriverChoice, Runtime, time};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Carries out a plan on a runtime of the calling thread; returns how, too.
pub(crate) fn run(
    plan: &Plan,
    driver: DriverChoice,
    observer: &mut dyn Observer,
    metrics: &Arc<Metrics>,
) -> Result<(String, Measured), LoadError> {
    // At the end nothing is left to send that anyone waits for.
    let builder = Runtime::builder().driver(driver).grace(Duration::ZERO);
    let mut runtime = builder.build().map_err(LoadError::Runtime)?;
    let driver = runtime.driver().to_string();
    let measured =
        runtime.block_on(run_phases(plan, observer, metrics)).map_err(LoadError::Runtime)?;
    Ok((driver, measured))
}

/// How often the observer is asked whether it interrupts a phase that has no window.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Nothing is measured unless every client is connected. The clients of a run that was interrupted end with the runtime.
async fn run_phases(plan: &Plan, observer: &mut dyn Observer, metrics: &Arc<Metrics>) -> Measured {
    let Some(streams) = unless_interrupted(observer, connect_all(plan, metrics)).await else {
        return Measured::interrupted();
    };
    let mut measured = Measured::default();
    if metrics.has_no_faults() {
        let mut pool = ClientPool::start(plan, streams, metrics);
        measured = measure(&mut pool, [plan.warm_up, plan.duration], observer, metrics).await;
        metrics.set_phase(Phase::Over);
        if !measured.interrupted {
            let finished = unless_interrupted(observer, pool.finish()).await;
            measured.interrupted = finished.is_none();
        }
    }
    measured
}

/// Lets the clients warm up, and measures while any of them is left, unless that is interrupted.
pub(crate) async fn measure(
    pool: &mut impl Pool,
    [warm_up, duration]: [Duration; 2],
    observer: &mut dyn Observer,
    metrics: &Metrics,
) -> Measured {
    let mut measured = Measured::default();
    if wait_phase(pool, warm_up, |_| check_interrupted(observer)).await.is_break() {
        measured = Measured::interrupted();
    } else if !pool.is_finished() {
        let mut window = Measuring::open(observer, metrics, duration, ClientKind::Tasks);
        let ended = wait_phase(pool, duration, |elapsed| window.progress(elapsed)).await;
        measured = window.close(ended);
    }
    measured
}

/// Waits for a future; none once the observer interrupts.
pub(crate) async fn unless_interrupted<T>(
    observer: &dyn Observer,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    loop {
        match time::timeout(POLL_INTERVAL, future.as_mut()).await {
            Ok(value) => return Some(value),
            Err(_) if observer.is_interrupted() => return None,
            Err(_) => {}
        }
    }
}

/// ClientKind at work, as a run sees them.
pub(crate) trait Pool {
    /// Whether no client is at work any more.
    fn is_finished(&self) -> bool;

    /// How often to [`Pool::sweep`].
    fn sweep_interval(&self) -> Duration;

    /// Looks for what has waited too long.
    fn sweep(&mut self);
}

/// Lets the clients work for `length`, until none of them is left, or until `each` breaks off.
async fn wait_phase(
    pool: &mut impl Pool,
    length: Duration,
    mut each: impl FnMut(Duration) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let began = clock::now();
    loop {
        let elapsed = clock::now() - began;
        if elapsed >= length || pool.is_finished() {
            return ControlFlow::Continue(());
        }
        each(elapsed)?;
        annulus::time::sleep(pool.sweep_interval().min(length - elapsed)).await;
        pool.sweep();
    }
}
