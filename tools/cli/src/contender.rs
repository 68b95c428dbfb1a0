//! `annulus contender`: acts as a contender of a suite, which reads jobs from standard input and
//! prints figures.

use annulus_lab::{file, nop};
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Each line on standard input is a job, and each line on standard output its
figures, as JSON: operations, ns and cpu_ns.

Examples:
  echo 1024 5 | perf record annulus contender nop task
  echo 20 40960 4096 | annulus contender file tasks /dev/shm";

/// Act as a contender of a suite: read jobs, print figures
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ContenderArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// NOPs per second: each job is ENTRIES SECONDS
    Nop {
        /// ring, lookup (finds the slot of each completion by its token) or task (each completion
        /// wakes the task)
        name: String,
    },
    /// Open, write, read, close: each job is WORKERS CYCLES BYTES
    File {
        /// threads or tasks
        name: String,
        /// The directory for the files
        directory: PathBuf,
    },
}

pub(crate) fn run(args: &ContenderArgs) -> Result<ExitCode> {
    match &args.bench {
        Bench::Nop { name } => nop::answer_all(name)?,
        Bench::File { name, directory } => file::answer_all(name, directory)?,
    }
    Ok(ExitCode::SUCCESS)
}
