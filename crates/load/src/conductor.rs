//! The course of a run of tasks: connect, warm up, measure, part.

use crate::board::{Board, Phase};
use crate::clock;
use crate::connect::connect_all;
use crate::crew::Crew;
use crate::measured::{Clients, Measured, Measuring, go_on};
use crate::plan::Plan;
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
    board: &Arc<Board>,
) -> Result<(String, Measured), LoadError> {
    // At the end nothing is left to send that anyone waits for.
    let builder = Runtime::builder().driver(driver).grace(Duration::ZERO);
    let mut runtime = builder.build().map_err(LoadError::Runtime)?;
    let driver = runtime.driver().to_string();
    let measured = runtime.block_on(conduct(plan, observer, board)).map_err(LoadError::Runtime)?;
    Ok((driver, measured))
}

/// How often the observer is asked whether it interrupts a phase that has no window.
const GLANCE: Duration = Duration::from_millis(100);

/// Nothing is measured unless every client is connected. The clients of a run that was interrupted end with the runtime.
async fn conduct(plan: &Plan, observer: &mut dyn Observer, board: &Arc<Board>) -> Measured {
    let Some(streams) = unless_interrupted(observer, connect_all(plan, board)).await else {
        return Measured::interrupted();
    };
    let mut measured = Measured::default();
    if board.is_flawless() {
        let mut crew = Crew::start(plan, streams, board);
        measured = measure(&mut crew, [plan.warm_up, plan.duration], observer, board).await;
        board.enter(Phase::Over);
        if !measured.interrupted {
            let finished = unless_interrupted(observer, crew.finish()).await;
            measured.interrupted = finished.is_none();
        }
    }
    measured
}

/// Lets the clients warm up, and measures while any of them is left, unless that is interrupted.
pub(crate) async fn measure(
    company: &mut impl Company,
    [warm_up, duration]: [Duration; 2],
    observer: &mut dyn Observer,
    board: &Board,
) -> Measured {
    let mut measured = Measured::default();
    if attend(company, warm_up, |_| go_on(observer)).await.is_break() {
        measured = Measured::interrupted();
    } else if !company.is_gone() {
        let mut window = Measuring::open(observer, board, duration, Clients::Tasks);
        let ended = attend(company, duration, |elapsed| window.progress(elapsed)).await;
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
        match time::timeout(GLANCE, future.as_mut()).await {
            Ok(value) => return Some(value),
            Err(_) if observer.is_interrupted() => return None,
            Err(_) => {}
        }
    }
}

/// Clients at work, as a run sees them.
pub(crate) trait Company {
    /// Whether no client is at work any more.
    fn is_gone(&self) -> bool;

    /// How often to [`Company::sweep`].
    fn sweep_interval(&self) -> Duration;

    /// Looks for what has waited too long.
    fn sweep(&mut self);
}

/// Lets the clients work for `length`, until none of them is left, or until `each` breaks off.
async fn attend(
    company: &mut impl Company,
    length: Duration,
    mut each: impl FnMut(Duration) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let began = clock::now();
    loop {
        let elapsed = clock::now() - began;
        if elapsed >= length || company.is_gone() {
            return ControlFlow::Continue(());
        }
        each(elapsed)?;
        annulus::time::sleep(company.sweep_interval().min(length - elapsed)).await;
        company.sweep();
    }
}
