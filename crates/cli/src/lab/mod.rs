//! `annulus lab`: comparisons whose results are kept in files.

mod progress;
mod run;
mod servers;
mod subject;
mod tables;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Measure published tables and other comparisons, and keep the results
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::RunArgs),
}

pub(crate) fn run(args: LabArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Run(args) => run::run(args),
    }
}
