//! How long and how often, and whom of those that a suite asks for there is.

use super::report::Answers;
use annulus_lab::bench::Cell;
use annulus_lab::cores::Cores;
use annulus_lab::echo;
use annulus_lab::suite::{Question, Suite};
use annulus_load::limits;
use std::time::Duration;

/// What a quick run may take, about.
const QUICK: Duration = Duration::from_secs(50);

/// How a suite is run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) cores: Cores,
    pub(super) quick: bool,
    /// Rounds that were asked for.
    pub(super) rounds: Option<usize>,
    pub(super) seed: u64,
}

impl Plan {
    /// How often each server is visited in each cell.
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 15 })
    }

    /// Leaves out cells of a quick run, evenly, until it ends in time; `cost` is what one visit to a cell takes.
    pub(super) fn thin<C>(
        &self,
        cells: Vec<C>,
        servers: usize,
        cost: impl Fn(&C) -> Duration,
        answers: &mut Answers,
    ) -> Vec<C> {
        let visits = (servers * self.rounds()) as u32;
        let total: Duration = cells.iter().map(|cell| cost(cell) * visits).sum();
        let keep = if self.quick { QUICK.as_secs_f64() / total.as_secs_f64() } else { 1.0 };
        if keep >= 1.0 {
            return cells;
        }
        let all = cells.len();
        let kept = ((all as f64 * keep) as usize).max(1);
        answers.note(format!("--quick: {kept} of {all} cells"));
        // The first and the last stay, where there is room for two.
        let step = (all - 1) as f64 / (kept.max(2) - 1) as f64;
        let places: Vec<usize> = (0..kept).map(|n| (n as f64 * step).round() as usize).collect();
        let numbered = cells.into_iter().enumerate();
        numbered.filter(|(place, _)| places.contains(place)).map(|(_, cell)| cell).collect()
    }
}

/// What all questions have to say of one thing, each once, in order.
pub(super) fn every<T: PartialEq>(suite: &Suite, of: impl Fn(&Question) -> Vec<T>) -> Vec<T> {
    let mut all = Vec::new();
    for one in suite.questions().flat_map(|question| of(&question)) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// Clients and bytes of a question that has both.
pub(super) fn cell(question: &Question) -> Option<Cell> {
    Some(echo::cell(question.clients?, question.bytes?))
}

/// The cells of a suite; those with more connections than the process may open files are told, and left out.
pub(super) fn cells(suite: &Suite, answers: &mut Answers) -> Vec<Cell> {
    let all = every(suite, |question| cell(question).into_iter().collect());
    let most = limits::room() / 2;
    let fits = |cell: &Cell| cell.number("clients").is_none_or(|clients| clients <= most as u64);
    let (some, beyond): (Vec<Cell>, Vec<Cell>) = all.into_iter().partition(fits);
    for cell in beyond {
        answers.note(format!(
            "{cell}: at most {most} fit under the limit of open files; raise it (ulimit -Hn)"
        ));
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(quick: bool) -> Plan {
        let cores = Cores { server: 0, load: 0 };
        Plan { cores, quick, rounds: None, seed: 1 }
    }

    #[test]
    fn only_a_quick_run_leaves_cells_out_and_says_so() {
        let cells: Vec<usize> = (0..24).collect();
        let second = |_: &usize| Duration::from_secs(1);
        let mut answers = Answers::default();
        assert_eq!(plan(false).thin(cells.clone(), 4, second, &mut answers), cells);
        assert!(answers.notes.is_empty());
        let kept = plan(true).thin(cells.clone(), 4, second, &mut answers);
        assert_eq!(kept, [0, 8, 15, 23]);
        assert_eq!(answers.notes, ["--quick: 4 of 24 cells"]);
        let kept = plan(true).thin(cells, 100, second, &mut answers);
        assert_eq!(kept, [0], "one at least");
    }
}
