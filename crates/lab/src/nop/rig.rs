//! The real measuring: contenders as processes, each asked in its turn.

use std::time::Duration;

use super::{Burst, Contender, Entries};
use crate::record::{Outcome, control_name};
use crate::schedule::{Measure, Visit};
use crate::server::{ServerError, Spec};

/// How much longer than its slice an answer may take: setting a ring up, warming up, and the moods of a machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// All contenders of a comparison, up and waiting.
#[derive(Debug)]
pub struct Rig {
    contenders: Vec<Contender>,
    cells: Vec<Entries>,
    slice: Duration,
}

impl Rig {
    /// Starts every contender, and the first of them a second time as the control, which comes last.
    pub fn start(specs: &[Spec], cells: &[Entries], slice: Duration) -> Result<Rig, ServerError> {
        let control = specs.first().map(|first| first.named(control_name(&first.name)));
        let contenders =
            specs.iter().chain(&control).map(Contender::start).collect::<Result<_, _>>()?;
        Ok(Rig { contenders, cells: cells.to_vec(), slice })
    }

    fn ask(&mut self, visit: Visit) -> Result<Burst, ServerError> {
        let contender = &mut self.contenders[visit.server];
        let question = format!("{} {}", self.cells[visit.cell].0, self.slice.as_secs_f64());
        let answer = contender.ask(&question, self.slice + PATIENCE)?;
        Burst::parse(&answer).ok_or_else(|| contender.unanswered(&question, format!("`{answer}`")))
    }
}

impl Measure<Burst> for Rig {
    fn measure(&mut self, visit: Visit) -> Outcome<Burst> {
        self.ask(visit).map_err(|error| error.to_string())
    }
}
