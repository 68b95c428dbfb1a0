//! Options of the benches whose contenders are programs.

use super::args::some_time;
use super::run::{OutputArgs, peers};
use crate::usage::UsageError;
use annulus_lab::bench::{Cell, Plan, Rounds};
use annulus_lab::cores::Cores;
use annulus_lab::distinct;
use annulus_lab::programs::{Definition, Setup};
use anyhow::Result;
use clap::Args;
use std::time::Duration;

/// What these benches have in common.
#[derive(Args, Debug)]
pub(super) struct ProgramArgs {
    /// The contenders to measure
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    contenders: Vec<String>,
    /// How often each contender is measured in each cell
    #[arg(long, value_name = "COUNT", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// How long a slice is measured: seconds, or 50ms [default: 0.05]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    seconds: Option<Duration>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl ProgramArgs {
    /// Checks the contenders, and returns the comparison.
    pub(super) fn setup(
        self,
        definition: &'static Definition,
        cells: Vec<Cell>,
        cores: Cores,
    ) -> Result<Setup> {
        let contenders = match self.contenders.as_slice() {
            [] => definition.usual.iter().map(|&name| name.to_owned()).collect(),
            _ => self.contenders,
        };
        distinct(&contenders, |contender| format!("contender '{contender}'"))?;
        let known: Vec<&str> = definition.contenders.iter().map(|known| known.name).collect();
        if let Some(name) = contenders.iter().find(|name| !known.contains(&name.as_str())) {
            let text = format!("unknown contender '{name}': one of {}", known.join(", "));
            return Err(UsageError(text).into());
        }
        let rounds = Rounds::fixed(self.rounds as usize);
        Ok(Setup {
            definition,
            plan: Plan { name: definition.name.into(), rounds, seed: self.output.seed },
            contenders,
            cells,
            slice: self.seconds.unwrap_or(definition.usual_slice),
            cores,
            peers: peers(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Asserts the length of a comparison, if a slice takes so much more than its cost.
    #[track_caller]
    pub(crate) fn ends_within_a_minute(setup: &Setup, more: Duration) {
        let rounds = setup.plan.rounds.least;
        let slices = (setup.contenders.len() + 1) * setup.cells.len() * rounds;
        let total = (setup.cost() + more) * slices as u32;
        assert!(total <= Duration::from_secs(60), "{slices} slices take {total:?}");
        assert!(rounds >= 15);
    }
}
