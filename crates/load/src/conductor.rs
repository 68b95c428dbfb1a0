//! The course of a run of tasks: connect, warm up, measure, part.

use crate::board::{Board, Phase};
use crate::clock;
use crate::connect::connect_all;
use crate::crew::Crew;
use crate::measured::{Clients, Measured, Measuring};
use crate::plan::Plan;
use crate::run::{LoadError, Observer};
use annulus::{DriverChoice, Runtime};
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

/// Where a client cannot be connected, nothing is measured.
async fn conduct(plan: &Plan, observer: &mut dyn Observer, board: &Arc<Board>) -> Measured {
    let streams = connect_all(plan, board).await;
    let mut measured = Measured::default();
    if board.is_flawless() {
        let mut crew = Crew::start(plan, streams, board);
        attend(&mut crew, plan.warm_up, |_| ()).await;
        if !crew.is_gone() {
            let mut window = Measuring::open(observer, board, plan.duration, Clients::Tasks);
            attend(&mut crew, plan.duration, |elapsed| window.progress(elapsed)).await;
            measured = window.close();
        }
        board.enter(Phase::Over);
        crew.finish().await;
    }
    measured
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

/// Lets the clients work for `length`, or until none of them is left.
pub(crate) async fn attend(
    company: &mut impl Company,
    length: Duration,
    mut each: impl FnMut(Duration),
) {
    let began = clock::now();
    loop {
        let elapsed = clock::now() - began;
        if elapsed >= length || company.is_gone() {
            return;
        }
        each(elapsed);
        annulus::time::sleep(company.sweep_interval().min(length - elapsed)).await;
        company.sweep();
    }
}
