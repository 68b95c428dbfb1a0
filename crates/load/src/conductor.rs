//! The course of one run: connect, warm up, measure, part.

use crate::board::{Board, Findings, Phase};
use crate::clock;
use crate::connect::connect_all;
use crate::crew::Crew;
use crate::plan::Plan;
use crate::run::{Observer, Progress};
use std::rc::Rc;
use std::time::Duration;

/// The measured time, and what it cost this thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) length: Duration,
    pub(crate) cpu: Duration,
}

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) window: Window,
    pub(crate) findings: Findings,
}

/// Carries out a plan, inside a runtime. Where a client cannot be connected, nothing is measured.
pub(crate) async fn conduct(plan: &Plan, observer: &mut dyn Observer) -> Outcome {
    let board = Rc::new(Board::new());
    let streams = connect_all(plan, &board).await;
    let mut window = Window::default();
    if board.is_flawless() {
        let mut crew = Crew::start(plan, streams, &board);
        attend(&mut crew, plan.warm_up, |_| ()).await;
        if !crew.is_gone() {
            window = measure(plan, observer, &mut crew, &board).await;
        }
        board.enter(Phase::Over);
        crew.finish().await;
    }
    Outcome { window, findings: board.findings() }
}

async fn measure(
    plan: &Plan,
    observer: &mut dyn Observer,
    crew: &mut Crew,
    board: &Board,
) -> Window {
    observer.window_opened();
    board.enter(Phase::Measuring);
    let (began, cpu) = (clock::now(), clock::thread_cpu());
    let total = plan.duration;
    attend(crew, total, |elapsed| {
        observer.progress(Progress { elapsed, total, responses: board.responses() })
    })
    .await;
    let window = Window { length: clock::now() - began, cpu: clock::thread_cpu() - cpu };
    board.enter(Phase::Over);
    observer.window_closed();
    window
}

/// Lets the crew work for `length`, or until none of it is left.
async fn attend(crew: &mut Crew, length: Duration, mut each: impl FnMut(Duration)) {
    let began = clock::now();
    loop {
        let elapsed = clock::now() - began;
        if elapsed >= length || crew.is_gone() {
            return;
        }
        each(elapsed);
        annulus::time::sleep(crew.sweep_interval().min(length - elapsed)).await;
        crew.sweep();
    }
}
