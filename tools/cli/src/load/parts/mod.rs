//! A run of several machines: which part this process has, and where the parts meet.
//!
//! The first part listens at the meeting point. It starts all parts together, shows the sum of
//! their figures, and merges their recordings.

mod first;
mod follower;
mod launcher;
mod protocol;

pub(super) use first::First;
pub(super) use follower::follow;

use crate::token::Token;
use crate::usage::{UsageError, only_with};
use annulus_load::{Address, Part, parse_duration};
use anyhow::Result;
use clap::Args;
use launcher::Launched;
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable with the token.
const TOKEN_VARIABLE: &str = "ANNULUS_MEET_TOKEN";
/// How long to wait for other parts, unless the user says otherwise.
const USUAL_PATIENCE: Duration = Duration::from_secs(60);
const HEADING: &str = "Several machines";

/// The options for a run of several machines.
#[derive(Args, Debug)]
pub(super) struct PartArgs {
    /// Take part in a run of several machines, which meet at this address. Part 1 listens on it and
    /// prints the report. Give all parts the same options, except --part
    #[arg(long, value_name = "HOST:PORT", help_heading = HEADING)]
    meet: Option<Address>,
    /// Which part of the run this machine takes, such as 2/4 [default: from the rank set by mpirun,
    /// srun or a Kubernetes Job]
    #[arg(long, value_name = "PART/COUNT", help_heading = HEADING)]
    part: Option<Part>,
    /// The number of parts, if the launcher does not set it
    #[arg(long, value_name = "COUNT", conflicts_with = "part", help_heading = HEADING)]
    parts: Option<usize>,
    /// A file with the token that all parts know [default: the variable ANNULUS_MEET_TOKEN]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    meet_token_file: Option<PathBuf>,
    /// How long to wait for the other parts: for each to arrive, to be ready and to report
    /// [default: 60]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = HEADING)]
    meet_timeout: Option<Duration>,
}

/// Where the parts of a run meet.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) part: Part,
    address: Address,
    token: Token,
    patience: Duration,
}

impl PartArgs {
    /// Returns the meeting, or `None` if the run has only one part.
    ///
    /// # Errors
    /// Fails if options are missing or contradict each other.
    pub(super) fn meeting(self) -> Result<Option<Meeting>> {
        let options = [
            ("--part", self.part.is_some()),
            ("--parts", self.parts.is_some()),
            ("--meet-token-file", self.meet_token_file.is_some()),
            ("--meet-timeout", self.meet_timeout.is_some()),
        ];
        only_with("--meet", self.meet.is_some(), &options)?;
        let variable = |name: &str| std::env::var(name).ok();
        let Some(address) = self.meet else {
            if let Ok(Some(launched)) = launcher::part(variable, None) {
                warn_of_several_runs(&launched);
            }
            return Ok(None);
        };
        let part = match self.part {
            Some(part) => part,
            None => launcher::part(variable, self.parts).map_err(UsageError)?.map_or_else(
                || {
                    Err(UsageError(
                        "no launcher has numbered this part: add --part, such as --part 1/4".into(),
                    ))
                },
                |launched| Ok(launched.part),
            )?,
        };
        let token = match &self.meet_token_file {
            Some(path) => Some(Token::read(path)?),
            None => Token::from_variable(TOKEN_VARIABLE)?,
        };
        let token = token.ok_or_else(|| {
            UsageError(format!(
                "--meet needs a token, so that only your parts join: give all parts the same one \
                 with --meet-token-file FILE or in the variable {TOKEN_VARIABLE}"
            ))
        })?;
        let patience = self.meet_timeout.unwrap_or(USUAL_PATIENCE);
        Ok(Some(Meeting { part, address, token, patience }))
    }
}

/// Warns that a launcher has started several processes that each run the whole load.
fn warn_of_several_runs(Launched { part, launcher }: &Launched) {
    if part.count() > 1 && part.index() == 0 {
        crate::output::note(format_args!(
            "annulus: {launcher} has started {} processes, and each runs the whole load: add \
             --meet HOST:PORT to divide one load among them",
            part.count()
        ));
    }
}
