//! All clients of a run, and the sweep that finds those that get no answer.

use crate::board::{Board, Pad};
use crate::client::{Client, Pulse};
use crate::clock;
use crate::conductor::Company;
use crate::connect::Connection;
use crate::fault::Fault;
use crate::pattern::Tape;
use crate::plan::Plan;
use crate::quiet::{Quiet, sweep_interval};
use annulus::{JoinError, JoinHandle, time};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to close after the client's half-close. Longer is no failure: it owes no bytes any more.
pub(crate) const PARTING: Duration = Duration::from_millis(500);

/// The clients' tasks.
pub(crate) struct Crew {
    members: Vec<Member>,
    board: Arc<Board>,
    reply_timeout: Duration,
}

struct Member {
    task: JoinHandle<()>,
    pulse: Rc<Pulse>,
    quiet: Quiet,
}

impl Crew {
    /// Starts a client on each connection.
    pub(crate) fn start(plan: &Plan, streams: Vec<Connection>, board: &Arc<Board>) -> Crew {
        let (now, began) = (clock::now(), clock::nanos());
        let member = |(number, stream)| {
            let tape = Tape::new(plan.seed, number, plan.length);
            let pad = Pad::new(Arc::clone(board));
            let client = Client::new(number, stream, tape, plan.window(number, began), pad);
            let pulse = client.pulse();
            Member {
                quiet: Quiet::new(pulse.beats(), now),
                pulse,
                task: annulus::spawn(client.run()),
            }
        };
        let members = streams.into_iter().enumerate().map(member).collect();
        Crew { members, board: Arc::clone(board), reply_timeout: plan.reply_timeout }
    }

    /// Waits until every client has ended, sweeping on.
    pub(crate) async fn finish(&mut self) {
        let interval = self.sweep_interval().min(PARTING / 8);
        for number in 0..self.members.len() {
            while let Err(time::Elapsed { .. }) = self.wait(number, interval).await {
                self.sweep();
            }
        }
    }

    async fn wait(&mut self, number: usize, limit: Duration) -> Result<(), time::Elapsed> {
        match time::timeout(limit, &mut self.members[number].task).await? {
            Err(JoinError::Panicked(panic)) => std::panic::resume_unwind(panic),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Company for Crew {
    fn is_gone(&self) -> bool {
        self.members.iter().all(|member| member.task.is_finished())
    }

    fn sweep_interval(&self) -> Duration {
        sweep_interval(self.reply_timeout)
    }

    fn sweep(&mut self) {
        let now = clock::now();
        for (number, member) in self.members.iter_mut().enumerate() {
            if !member.task.is_finished() {
                member.check(number, now, self.reply_timeout, &self.board);
            }
        }
    }
}

impl Member {
    fn check(&mut self, number: usize, now: Duration, limit: Duration, board: &Board) {
        let quiet = self.quiet.lasts(self.pulse.beats(), now);
        if self.pulse.is_parting() {
            if quiet >= limit.min(PARTING) {
                self.task.abort();
            }
        } else if quiet >= limit && self.pulse.owed() > 0 {
            self.task.abort();
            board.fault(number, self.pulse.owed(), &Fault::silence(limit));
        }
    }
}
