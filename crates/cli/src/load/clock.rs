//! `annulus load clock`: the clock of this machine, for runs on others to compare theirs with.

use crate::address::Address;
use crate::output::note;
use crate::signals::{SIGHUP, SIGINT, SIGTERM, Stop};
use annulus_load::reference_clock;
use anyhow::{Context, Result};
use clap::Args;
use std::net::UdpSocket;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Answers the questions of SNTP over UDP, until a signal comes. Any server of NTP
will do as well, if there is one that answers.

Examples:
  annulus load clock --listen 0.0.0.0:1123            on one machine
  annulus load ADDRESS --clock that-machine:1123 ...  on each machine";

/// Show the clock of this machine to runs on others
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ClockArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1123")]
    listen: Address,
}

pub(super) fn run(args: ClockArgs) -> Result<ExitCode> {
    let ClockArgs { listen } = args;
    let stop = Stop::install(&[SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
    let socket = UdpSocket::bind(&listen.resolve()?[..]);
    let socket =
        socket.with_context(|| format!("cannot listen on {listen}: choose another port"))?;
    note(format_args!("annulus load clock: listening on {}", socket.local_addr()?));
    reference_clock::serve(&socket, || stop.has_come()).context("the clock cannot be shown")?;
    Ok(ExitCode::SUCCESS)
}
