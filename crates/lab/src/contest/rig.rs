//! The real measuring: contenders as processes, each asked in its turn.

use std::time::Duration;

use super::{Contender, Question};
use crate::record::{Outcome, control_name};
use crate::schedule::{Measure, Visit};
use crate::server::{ServerError, Spec};

/// All contenders of a comparison, up and waiting.
#[derive(Debug)]
pub struct Rig<Q> {
    contenders: Vec<Contender>,
    cells: Vec<Q>,
    slice: Duration,
}

impl<Q: Question> Rig<Q> {
    /// Starts every contender, and the first of them a second time as the control, which comes last.
    pub fn start(specs: &[Spec], cells: &[Q], slice: Duration) -> Result<Rig<Q>, ServerError> {
        let control = specs.first().map(|first| first.named(control_name(&first.name)));
        Rig::without_control(specs.iter().chain(&control), cells, slice)
    }

    /// Starts these and nobody else: for a look that compares nothing.
    pub fn without_control<'a>(
        specs: impl IntoIterator<Item = &'a Spec>,
        cells: &[Q],
        slice: Duration,
    ) -> Result<Rig<Q>, ServerError> {
        let contenders = specs.into_iter().map(Contender::start).collect::<Result<_, _>>()?;
        Ok(Rig { contenders, cells: cells.to_vec(), slice })
    }

    fn ask(&mut self, visit: Visit) -> Result<Q::Answer, ServerError> {
        let (contender, cell) = (&mut self.contenders[visit.server], &self.cells[visit.cell]);
        let question = cell.line(self.slice);
        let answer = contender.ask(&question, cell.patience(self.slice))?;
        cell.read(&answer).ok_or_else(|| contender.unanswered(&question, format!("`{answer}`")))
    }
}

impl<Q: Question> Measure<Q::Answer> for Rig<Q> {
    fn measure(&mut self, visit: Visit) -> Outcome<Q::Answer> {
        self.ask(visit).map_err(|error| error.to_string())
    }
}
