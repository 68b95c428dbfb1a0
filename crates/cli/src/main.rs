//! The annulus command: an echo server, a load generator, benchmarks, and a look at the machine.

mod address;
mod bench;
mod doctor;
mod echo;
mod endpoint;
mod grid;
mod load;
mod output;
mod page;
mod span;
mod table;
mod usage;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  annulus echo                         serve on 127.0.0.1:7000
  annulus load -c 200 -l 128 -t 10     200 clients, 128 bytes, 10 seconds
  annulus bench echo                   compare the servers, a minute
  annulus doctor                       what this machine offers

Exit status: 0 done, 1 failed, 2 wrong usage.";

/// An I/O runtime on io_uring, and the tools that prove what it does.
#[derive(Debug, Parser)]
#[command(name = "annulus", version, max_term_width = 80, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Echo(echo::EchoArgs),
    Load(load::LoadArgs),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::explain(&error),
    };
    let done = match cli.command {
        Command::Echo(args) => echo::run(args),
        Command::Load(args) => load::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(args),
    };
    done.unwrap_or_else(|error| usage::fail(&error))
}
