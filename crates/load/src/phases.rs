//! The phases of a run whose clients are tasks of one thread: warm up, measure, finish.

use crate::clock;
use crate::measured::{ClientKind, Measured, Measuring, check_interrupted};
use crate::metrics::Metrics;
use crate::run::{LoadError, Observer};
use annulus::{DriverChoice, Runtime, time};
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

/// How often to ask the observer for an interruption while nothing is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The clients of a run.
pub(crate) trait Pool {
    /// Whether every client has ended.
    fn is_finished(&self) -> bool;

    /// How often to call [`Pool::sweep`].
    fn sweep_interval(&self) -> Duration;

    /// Ends or gives up what has waited too long.
    fn sweep(&mut self);
}

/// Runs a future on a runtime of the calling thread; returns the driver with its reason, too.
pub(crate) fn on_runtime<T>(
    driver: DriverChoice,
    future: impl Future<Output = T>,
) -> Result<(String, T), LoadError> {
    // No data is left to send when the future ends.
    let builder = Runtime::builder().driver(driver).shutdown_timeout(Duration::ZERO);
    let mut runtime = builder.build().map_err(LoadError::Runtime)?;
    let driver = runtime.driver().to_string();
    let output = runtime.try_block_on(future).map_err(LoadError::Runtime)?;
    Ok((driver, output))
}

/// Warms up, then measures. Either phase ends early if every client has ended or the observer interrupts.
pub(crate) async fn measure(
    pool: &mut impl Pool,
    [warm_up, duration]: [Duration; 2],
    observer: &mut dyn Observer,
    metrics: &Metrics,
) -> Measured {
    if wait_phase(pool, warm_up, |_| check_interrupted(observer)).await.is_break() {
        return Measured::interrupted();
    }
    if pool.is_finished() {
        return Measured::default();
    }
    let mut window = Measuring::open(observer, metrics, duration, ClientKind::Tasks);
    let ended = wait_phase(pool, duration, |elapsed| window.progress(elapsed)).await;
    window.close(ended)
}

/// Waits for a future; `None` if the observer interrupts first.
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

/// Lets the clients work for `length`, until all have ended, or until `each` breaks.
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
        time::sleep(pool.sweep_interval().min(length - elapsed)).await;
        pool.sweep();
    }
}
