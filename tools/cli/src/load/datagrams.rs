//! `annulus load udp`: datagrams.

use super::recorded::OutputArgs;
use super::{CommonArgs, carry_out};
use crate::duration;
use crate::endpoint::Endpoint;
use annulus::DriverChoice;
use annulus_load::{Datagrams, MAX_DATAGRAM, MAX_WINDOW};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Each client keeps --window datagrams in flight, and sends another when one is
echoed or lost. Datagrams of 8 bytes and more carry a number, so that
duplicated, late and reordered echoes are recognized; shorter ones are matched
in order. Every byte is verified.

Loss is reported, and is no failure unless everything was lost. Corrupt echoes
and sockets that fail make the exit status 1.

Examples:
  annulus load udp -c 1000 -l 60000 -t 10
  annulus load udp -a unix-datagram:/run/echo
  annulus load udp --window 32 -l 1200 --segments       (echo --segments)
  annulus load udp -a 127.0.0.1:7000 --window 16 --json - | jq .datagrams.lost";

/// Measure an echo server of datagrams: how many a second, loss, order
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct UdpArgs {
    /// The server: HOST:PORT, udp://HOST:PORT, or unix-datagram:/path
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    address: Endpoint,
    /// Bytes per datagram, up to 65,507
    #[arg(short, long, value_name = "BYTES", default_value_t = 512,
          value_parser = clap::value_parser!(u64).range(1..=MAX_DATAGRAM as u64))]
    length: u64,
    #[command(flatten)]
    common: CommonArgs,
    /// Datagrams in flight per client
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=MAX_WINDOW as u64))]
    window: u64,
    /// Send as much at once as the window allows, with segmentation, and
    /// receive with coalescing (GSO and GRO): for UDP
    #[arg(long)]
    segments: bool,
    /// A datagram that is not echoed for this long is lost
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration::parse)]
    timeout: Duration,
    /// The driver of the clients: auto, uring or epoll
    #[arg(long, default_value = "auto")]
    driver: DriverChoice,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: UdpArgs) -> Result<ExitCode> {
    let UdpArgs { address, length, common, window, segments, timeout, driver, output } = args;
    let workload = Datagrams { window: window as usize, segments, driver };
    let mut plan = common.plan(length as usize, workload, address.datagrams()?);
    plan.reply_timeout = timeout;
    output.set(&mut plan);
    let output = output.open(common.json.as_ref())?;
    carry_out(plan, None, common.json, output)
}
