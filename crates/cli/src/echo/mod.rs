//! `annulus echo`: a server that sends back what it gets.

mod guests;
mod ring;
mod signals;
mod stats;
mod tasks;
mod threads;

use crate::address::Address;
use crate::output::Target;
use crate::span;
use crate::usage::Misuse;
use annulus::DriverChoice;
use annulus_load::{affinity, limits};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use ring::RingArgs;
use stats::Stats;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

const EXAMPLES: &str = "\
Prints one line on standard error when it is ready. SIGINT or SIGTERM: stops
accepting, finishes what is in flight, exits 0; a second one exits at once.

Examples:
  annulus echo                              serve on 127.0.0.1:7000
  annulus echo --listen [::]:0              any free port, IPv6 and IPv4
  annulus echo --driver threads --pin 0     the baseline, on CPU 0
  annulus echo --stats - --idle-timeout 30  figures as JSON when it ends";

/// Serve TCP echo
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EchoArgs {
    /// Where to listen; port 0 picks a free one and prints it
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7000")]
    listen: Address,
    /// How to serve: auto, uring, epoll, or threads (a blocking thread a
    /// connection)
    #[arg(long, default_value = "auto")]
    driver: Mode,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Stop accepting at this many until one closes [default: as many as
    /// files can be open]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    max_connections: Option<u64>,
    /// Close a connection on which nothing has moved for this long: seconds,
    /// or 500ms, 2m [default: never]
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    idle_timeout: Option<Duration>,
    /// After a signal, how long what is in flight may take to finish
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = span::parse)]
    grace: Duration,
    #[command(flatten)]
    ring: RingArgs,
    /// Write figures as JSON at the end, to a file or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    stats: Option<Target>,
}

/// Who serves: tasks on the runtime, or threads of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Tasks(DriverChoice),
    Threads,
}

/// What the server was told to do, in terms of what it does.
#[derive(Clone, Debug)]
struct Plan {
    listen: Address,
    addresses: Vec<SocketAddr>,
    /// Connections at once.
    room: usize,
    idle_timeout: Option<Duration>,
    grace: Duration,
    ring: RingArgs,
}

pub(crate) fn run(args: EchoArgs) -> Result<ExitCode> {
    let sheet = args.stats.clone().map(Target::open).transpose()?;
    let (mode, cpu) = (args.driver, args.pin);
    let plan = plan(args)?;
    let _pinned = cpu.map(affinity::pin).transpose()?;
    let stats = serve(&plan, mode)?;
    if let Some(sheet) = sheet {
        sheet.write_json(&stats)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(plan: &Plan, mode: Mode) -> Result<Stats> {
    plan.ring.check(mode)?;
    let choice = match mode {
        Mode::Tasks(choice) => choice,
        Mode::Threads => return threads::serve(plan, "as demanded"),
    };
    let runtime = tasks::runtime(choice, &plan.ring);
    tasks::serve(plan, runtime.with_context(|| format!("cannot serve with --driver {choice}"))?)
}

fn plan(args: EchoArgs) -> Result<Plan> {
    if args.idle_timeout.is_some_and(|limit| limit.is_zero()) {
        return Err(Misuse(
            "an idle time-out of zero: ask for more, such as 30s, or leave it out".into(),
        )
        .into());
    }
    let room = match args.max_connections {
        Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
        None => limits::room(),
    };
    limits::reserve(room)?;
    let addresses = args.listen.resolve()?;
    Ok(Plan {
        addresses,
        listen: args.listen,
        room,
        idle_timeout: args.idle_timeout,
        grace: args.grace,
        ring: args.ring,
    })
}

impl Plan {
    /// Explains why the address could not be had.
    fn cannot_listen(&self, error: io::Error) -> anyhow::Error {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "another program listens there: stop it, or choose another port (0 picks one)"
            }
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need root or CAP_NET_BIND_SERVICE: choose one above"
            }
            io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address: try 127.0.0.1 or 0.0.0.0"
            }
            _ => return anyhow!("cannot listen on {}: {error}", self.listen),
        };
        anyhow!("cannot listen on {}: {}: {advice}", self.listen, error.kind())
    }
}

/// The one line that says the server is ready.
fn announce(address: io::Result<SocketAddr>, how: &str) -> Result<()> {
    let address = address.context("cannot tell the address listened on")?;
    eprintln!("annulus echo: listening on {address} ({how})");
    Ok(())
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        match text {
            "threads" => Ok(Mode::Threads),
            _ => text.parse().map(Mode::Tasks).map_err(|error| format!("{error}, threads")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        assert_eq!("threads".parse(), Ok(Mode::Threads));
        assert_eq!("uring".parse(), Ok(Mode::Tasks(DriverChoice::Uring)));
        let error = "kqueue".parse::<Mode>().unwrap_err();
        assert!(
            ["kqueue", "auto", "uring", "threads"].iter().all(|part| error.contains(part)),
            "{error}"
        );
    }
}
