//! `annulus bench`: servers side by side, in one run.

mod bulk;
mod cells;
mod echo;
mod field;
mod file;
mod moment;
mod nop;
mod peer;
mod pins;
mod results;
mod run;
mod servers;
mod session;
mod setup;
mod size;
mod suite;
mod table;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Compare servers side by side
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Echo(setup::EchoArgs),
    /// Compare UDP echo servers: as bench echo, with datagrams; --pipeline is
    /// how many are under way at each client
    Udp(setup::EchoArgs),
    /// Compare echo servers over Unix sockets: as bench echo, with streams at
    /// paths
    Unix(setup::EchoArgs),
    Bulk(bulk::BulkArgs),
    File(file::FileArgs),
    Nop(nop::NopArgs),
    Suite(suite::SuiteArgs),
}

pub(crate) fn run(args: BenchArgs) -> Result<ExitCode> {
    match args.bench {
        Bench::Echo(args) => echo::run(args, setup::Transport::Tcp),
        Bench::Udp(args) => echo::run(args, setup::Transport::Udp),
        Bench::Unix(args) => echo::run(args, setup::Transport::Unix),
        Bench::Bulk(args) => bulk::run(args),
        Bench::File(args) => file::run(args),
        Bench::Nop(args) => nop::run(args),
        Bench::Suite(args) => suite::run(args),
    }
}
