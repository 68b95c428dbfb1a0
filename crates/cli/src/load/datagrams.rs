//! `annulus load udp`: datagrams, and what became of them.

use super::{Outcome, Watch, classify};
use crate::duration;
use crate::endpoint::Endpoint;
use crate::output::{self, Target};
use crate::table::{client, failings, latency, thousands};
use crate::text::Listing;
use annulus::DriverChoice;
use annulus_load::datagrams::{self, DatagramPlan, DatagramReport, MAX_DATAGRAM, MAX_WINDOW};
use annulus_load::{MAX_CLIENTS, ServerAddress};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Each client keeps so many datagrams under way, and sends another when an echo
has come or has taken too long. Datagrams of 8 bytes and more carry a number, so
that echoes that come twice, late or out of order are told apart; shorter ones
are counted. Every byte is checked.

Loss is told, and is no failure, unless nothing came back at all. Corrupt echoes
and sockets that fail make the exit status 1.

Examples:
  annulus load udp -c 1000 -l 60000 -t 10
  annulus load udp -a unix-datagram:/run/letters
  annulus load udp --window 32 -l 1200 --segments       (echo --segments)
  annulus load udp -a 127.0.0.1:7000 --window 16 --json - | jq .lost";

/// Measure an echo server of datagrams: how many a second, loss, order
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct UdpArgs {
    /// The server to call: HOST:PORT, udp://HOST:PORT, or unix-datagram:/path
    #[arg(short, long, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    address: Endpoint,
    /// Clients: a socket each
    #[arg(short = 'c', long = "number", value_name = "CLIENTS", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..=MAX_CLIENTS as u64))]
    number: u64,
    /// Bytes a datagram, up to 65,507
    #[arg(short, long, value_name = "BYTES", default_value_t = 512,
          value_parser = clap::value_parser!(u64).range(1..=MAX_DATAGRAM as u64))]
    length: u64,
    /// Datagrams under way at each client
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=MAX_WINDOW as u64))]
    window: u64,
    /// Send as one what there is room for in the window, and have the kernel put
    /// together what comes (GSO and GRO): for UDP
    #[arg(long)]
    segments: bool,
    /// How long to measure: seconds, or 500ms, 2m
    #[arg(short = 't', long, value_name = "TIME", default_value = "60", value_parser = duration::parse)]
    duration: Duration,
    /// How long to run before measuring
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = duration::parse)]
    warm_up: Duration,
    /// A datagram whose echo has not come after this long is lost
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration::parse)]
    timeout: Duration,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Write the results as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// What the clients run on: auto, uring or epoll
    #[arg(long, default_value = "auto")]
    driver: DriverChoice,
    /// Chooses what the clients send
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: UdpArgs) -> Result<ExitCode> {
    let json = args.json.clone().map(Target::open).transpose()?;
    let plan = plan(args)?;
    let mut watch = Watch::new()?;
    let report = datagrams::run(&plan, &mut watch).map_err(classify)?;
    let page = (report.seconds > 0.0).then(|| page(&plan.address, &report));
    output::deliver(json, &report, page)?;
    Outcome {
        address: &report.address,
        interrupted: report.interrupted,
        answered: report.received,
        errors: &report.errors,
        first_error: report.first_error.as_deref(),
    }
    .judge(&watch)
}

fn plan(args: UdpArgs) -> Result<DatagramPlan> {
    Ok(DatagramPlan {
        address: args.address.datagrams()?,
        clients: args.number as usize,
        length: args.length as usize,
        window: args.window as usize,
        segments: args.segments,
        warm_up: args.warm_up,
        duration: args.duration,
        timeout: args.timeout,
        pin: args.pin,
        seed: args.seed,
        driver: args.driver,
    })
}

fn page(server: &ServerAddress, report: &DatagramReport) -> String {
    let mut page = Listing::new();
    let DatagramReport { clients, window, seconds, .. } = report;
    let server = match server {
        ServerAddress::Inet(address) => format!("udp://{address}"),
        ServerAddress::Unix(path) => format!("unix-datagram:{}", path.display()),
    };
    let length = thousands(report.length as u64);
    let how = if report.segments { ", as segments" } else { "" };
    let what = format!("{clients} clients × {length} bytes, {window} under way each{how}");
    page.row("server", &format!("{server}, {what}"));
    let rate = thousands(report.datagrams_per_second.round() as u64);
    page.row("echoes/s", &format!("{rate}, {:.1} MB/s one way", report.megabytes_per_second));
    page.row("sent", &format!("{} in {seconds:.3} s", thousands(report.sent)));
    for (name, count) in [
        ("received", report.received),
        ("lost", report.lost),
        ("late", report.late),
        ("duplicated", report.duplicated),
        ("reordered", report.reordered),
        ("corrupt", report.corrupt),
    ] {
        page.row(name, &thousands(count));
    }
    latency(&mut page, &report.latency_us);
    client(&mut page, report.client_cpu_share, &report.driver);
    failings(&mut page, &report.errors, &report.doubts);
    page.finish()
}
