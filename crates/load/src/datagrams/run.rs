//! From a plan to a report.

use super::client::Client;
use super::plan::DatagramPlan;
use super::report::{DatagramReport, Fate};
use crate::board::{Board, Phase};
use crate::conductor::{Company, measure, unless_interrupted};
use crate::fault::Fault;
use crate::measured::Measured;
use crate::quiet::sweep_interval;
use crate::run::{LoadError, Observer};
use crate::{affinity, clock, limits};
use annulus::{JoinHandle, Runtime, time};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Carries out a plan on the calling thread, which it blocks.
///
/// Loss is no failure. Sockets that fail, and echoes that are those of no datagram, are counted in
/// [`DatagramReport::errors`].
///
/// # Errors
/// Where the run could not begin.
pub fn run(plan: &DatagramPlan, observer: &mut dyn Observer) -> Result<DatagramReport, LoadError> {
    plan.validate().map_err(LoadError::Plan)?;
    limits::reserve(plan.clients).map_err(LoadError::Files)?;
    let _pinned = plan.pin.map(affinity::pin).transpose().map_err(LoadError::Pin)?;
    let board = Arc::new(Board::new());
    let builder = Runtime::builder().driver(plan.driver).grace(Duration::ZERO);
    let mut runtime = builder.build().map_err(LoadError::Runtime)?;
    let driver = runtime.driver().to_string();
    let conducted = runtime.block_on(conduct(plan, observer, &board));
    let (measured, fate) = conducted.map_err(LoadError::Runtime)?;
    drop(runtime);
    // The clients are gone, and with them their pads.
    Ok(DatagramReport::new(plan, driver, measured, fate, board.findings()))
}

async fn conduct(
    plan: &DatagramPlan,
    observer: &mut dyn Observer,
    board: &Arc<Board>,
) -> (Measured, Fate) {
    let mut crew = Crew::start(plan, board);
    let mut measured = Measured::default();
    if board.is_flawless() {
        measured = measure(&mut crew, [plan.warm_up, plan.duration], observer, board).await;
    }
    board.enter(Phase::Over);
    if !measured.interrupted {
        measured.interrupted = unless_interrupted(observer, crew.finish()).await.is_none();
    }
    if measured.interrupted {
        // What is about to come still counts; the rest is given up.
        let _ = time::timeout(LAST_ECHOES, crew.finish()).await;
        crew.give_up();
    }
    (measured, crew.fate())
}

/// How long a run that was interrupted waits for what is under way.
const LAST_ECHOES: Duration = Duration::from_millis(200);

/// All clients of a run.
struct Crew {
    members: Vec<(Rc<Client>, JoinHandle<()>)>,
    timeout: Duration,
}

impl Crew {
    /// Opens every socket and starts its client. After the first failure, which goes on the board, no more are started.
    fn start(plan: &DatagramPlan, board: &Arc<Board>) -> Crew {
        let mut members = Vec::with_capacity(plan.clients);
        for number in 0..plan.clients {
            match Client::open(plan, number, board) {
                Ok(client) => {
                    let client = Rc::new(client);
                    members.push((Rc::clone(&client), annulus::spawn(client.run())));
                }
                Err(error) => {
                    board.fault(number, 0, &Fault::connect(&error));
                    break;
                }
            }
        }
        Crew { members, timeout: plan.timeout }
    }

    /// Waits until every echo has come or been given up.
    async fn finish(&mut self) {
        while !self.is_gone() {
            self.sweep();
            annulus::time::sleep(self.sweep_interval()).await;
        }
    }

    /// Counts what is under way as lost.
    fn give_up(&self) {
        self.members.iter().for_each(|(client, _)| client.give_up_all());
    }

    fn fate(&self) -> Fate {
        let mut fate = Fate::default();
        for (client, _) in &self.members {
            fate.add(client.tally(), client.corrupt());
        }
        fate
    }
}

impl Company for Crew {
    fn is_gone(&self) -> bool {
        self.members.iter().all(|(_, task)| task.is_finished())
    }

    fn sweep_interval(&self) -> Duration {
        sweep_interval(self.timeout)
    }

    fn sweep(&mut self) {
        let now = clock::nanos();
        self.members.iter().for_each(|(client, _)| client.sweep(now, self.timeout));
    }
}
