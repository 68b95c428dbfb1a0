//! `annulus lab`: comparisons whose results are kept in files.

mod build;
mod compare;
mod list;
mod report;
mod run;
mod serve;
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
    Run(Box<run::RunArgs>),
    List(list::ListArgs),
    Build(build::BuildArgs),
    Compare(compare::CompareArgs),
    Report(report::ReportArgs),
    Serve(serve::ServeArgs),
}

pub(crate) fn run(args: LabArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Run(args) => run::run(*args),
        Verb::List(args) => list::run(&args),
        Verb::Build(args) => build::run(&args),
        Verb::Compare(args) => compare::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Serve(args) => serve::run(args),
    }
}
