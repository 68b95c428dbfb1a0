//! `annulus bench`: measures contenders side by side in one run and keeps the results.

pub(crate) mod args;
mod build;
mod compare;
mod echo;
mod list;
mod map;
mod measure;
mod page;
mod results;
mod run;
mod serve;
mod servers;
mod subject;
mod sweep;
mod tables;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Compare servers and other programs side by side
#[derive(Args, Debug)]
#[command(after_long_help = measure::AFTER_HELP, args_conflicts_with_subcommands = true,
          subcommand_negates_reqs = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: measure::RunArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Echo(Box<echo::EchoArgs>),
    Map(map::MapArgs),
    List(list::ListArgs),
    Build(build::BuildArgs),
    Compare(compare::CompareArgs),
    Page(page::PageArgs),
    Serve(serve::ServeArgs),
}

pub(crate) fn run(args: BenchArgs) -> Result<ExitCode> {
    match args.verb {
        None => measure::run(args.run),
        Some(Verb::Echo(args)) => echo::run(*args),
        Some(Verb::Map(args)) => map::run(args),
        Some(Verb::List(args)) => list::run(&args),
        Some(Verb::Build(args)) => build::run(&args),
        Some(Verb::Compare(args)) => compare::run(args),
        Some(Verb::Page(args)) => page::run(args),
        Some(Verb::Serve(args)) => serve::run(args),
    }
}
