//! `annulus bench`: servers side by side, in one run.

pub(crate) mod args;
pub(crate) mod echo;
pub(crate) mod file;
pub(crate) mod nop;
mod programs;
pub(crate) mod results;
pub(crate) mod run;
pub(crate) mod server_bench;

use annulus_lab::echo::Transport;
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
    Echo(echo::EchoArgs),
    /// Compare UDP echo servers: as bench echo, with datagrams; --pipeline is how many are in flight per client
    Udp(echo::EchoArgs),
    /// Compare echo servers over Unix sockets: as bench echo, with streams at paths
    Unix(echo::EchoArgs),
    File(file::FileArgs),
    Nop(nop::NopArgs),
    Programs(server_bench::ServerBenchArgs),
}

pub(crate) fn run(args: BenchArgs) -> Result<ExitCode> {
    match args.bench {
        Bench::Echo(args) => echo::run(args, Transport::Tcp),
        Bench::Udp(args) => echo::run(args, Transport::Udp),
        Bench::Unix(args) => echo::run(args, Transport::Unix),
        Bench::File(args) => file::run(args),
        Bench::Nop(args) => nop::run(args),
        Bench::Programs(args) => server_bench::run(args),
    }
}
