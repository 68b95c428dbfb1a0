//! `annulus bench echo`: comparisons of echo servers over TCP, UDP and Unix sockets.

use super::args::{CoreArgs, bytes, max_rounds, parse_nonzero_time};
use super::measure;
use super::run::peers;
use crate::output::Target;
use crate::usage::{UsageError, condense};
use annulus::DriverChoice;
use annulus_lab::bench::{Cell, Plan, Rounds};
use annulus_lab::describe::{Contender, Setup};
use annulus_lab::distinct;
use annulus_lab::echo::{self, Catalogue, Echo, Transport};
use annulus_load::{
    MAX_CLIENTS, MAX_EVENT_LOOPS, MAX_MESSAGE_BYTES, MAX_PIPELINE, Options, parse_duration,
};
use anyhow::Result;
use clap::{Args, Parser};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const AFTER_HELP: &str = "\
Starts every server, pinned to one core, and keeps them running. The load runs
on another core and measures the servers in turn in short slices, round after
round. A second instance of the first server is the control: it must perform
like the first.

With --per-connection, each message has its own connection: connect, send,
receive, close. Average and p99 then cover the echo, from the send to the last
byte; CPU time is per connection.

A CPU ratio divides a server's CPU time per request by the first server's,
within each round; the median is shown, with its 95 % interval. A winner is
named only if it is better by more than 3 % and by more than the control
deviates, with an interval adjusted for the number of cells.

Servers: uring, epoll and threads (ours), and the directories in tools/peers/,
built if named; write peer:NAME if one of ours has the same name. Ours take any
number of options of annulus echo: uring+OPTION or uring+OPTION=VALUE. A peer
takes one of its modes: go-uring+sqpoll.

Examples:
  annulus bench echo                                    about 50 seconds
  annulus bench echo --connections 1,50 --bytes 128,16K --precision 0.03
  annulus bench echo --per-connection -c 1000 --bytes 16K --idle 30
  annulus bench echo --servers uring,uring+locked-down
  annulus bench echo --json - | jq .verdicts";

/// Compare echo servers: CPU time per request, requests/s, latency
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct EchoArgs {
    /// tcp, udp or unix
    ///
    /// The transport between clients and servers
    #[arg(long, value_name = "KIND", default_value = "tcp")]
    transport: Transport,
    /// Numbers of connections
    ///
    /// Each is measured with each of --bytes
    #[arg(short, long, value_name = "COUNT,…", value_delimiter = ',', default_value = "1,50,200",
          value_parser = clap::value_parser!(u64).range(1..=MAX_CLIENTS as u64))]
    connections: Vec<u64>,
    /// Bytes per message: 128, 16K, 1M
    ///
    /// One number or several
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "128",
          value_parser = parse_message_bytes)]
    bytes: Vec<u64>,
    /// Servers by name: uring, epoll, threads, peer:NAME …
    ///
    /// Each is compared with the first [default: uring,epoll,threads; for udp and unix uring,epoll]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    servers: Vec<String>,
    /// Rounds to measure
    ///
    /// In a round, each server is measured once at each size
    #[arg(short, long, value_name = "COUNT", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// Until intervals are within ± this, such as 0.03
    ///
    /// Measures more rounds, at most 100, until half the width of every CPU ratio's interval is at
    /// most this
    #[arg(long, value_name = "RATIO", value_parser = parse_precision)]
    precision: Option<f64>,
    /// How long a slice is measured
    ///
    /// In seconds, or with a unit: 300ms
    #[arg(short, long, value_name = "TIME", default_value = "0.15", value_parser = parse_nonzero_time)]
    duration: Duration,
    /// How long a slice runs before it is measured
    #[arg(long, value_name = "TIME", default_value = "0.05", value_parser = parse_duration)]
    warm_up: Duration,
    /// Messages in flight each
    ///
    /// On each connection
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=MAX_PIPELINE as u64))]
    pipeline: u64,
    /// The driver of the clients: auto, uring or epoll
    #[arg(long, value_name = "KIND", default_value = "auto")]
    client: DriverChoice,
    /// A new connection for each message
    ///
    /// Connect, send, receive, close; also compares average and p99
    #[arg(long, conflicts_with = "pipeline")]
    per_connection: bool,
    /// Number of event loops of the load [default: 1]
    #[arg(short, long, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=MAX_EVENT_LOOPS as i64))]
    threads: Option<u16>,
    /// Read every server's memory again after it has been idle for this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle: Option<Duration>,
    /// Write every figure as JSON
    ///
    /// To a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// Keep the results there, with pages
    ///
    /// An interrupted run resumes from the results in this directory
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The seed for the order of slices and the payload
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print every figure, not only the deciding ones
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    cores: CoreArgs,
}

pub(crate) fn run(args: EchoArgs) -> Result<ExitCode> {
    let setup = setup(&args)?;
    measure::measure_one(setup, args.out, (args.json, args.verbose))
}

/// Returns the built-in servers and the peers in `tools/peers`, here or in a parent directory.
pub(crate) fn catalogue() -> Catalogue {
    /// The arguments of `annulus echo`.
    #[derive(Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Echo {
        #[command(flatten)]
        _args: crate::echo::EchoArgs,
    }
    let check_own = |arguments: &[String]| {
        let parsed = Echo::try_parse_from(arguments);
        parsed.map(drop).map_err(|error| condense(&error.to_string()))
    };
    Catalogue::new(peers(), check_own)
}

/// Checks the arguments and sets up the comparison.
pub(crate) fn setup(args: &EchoArgs) -> Result<Setup> {
    let transport = args.transport;
    let (cores, catalogue) = (args.cores.choose()?, catalogue());
    let load = Options {
        warm_up: Some(args.warm_up),
        pin: Some(cores.load),
        seed: Some(args.seed),
        pipeline: (!args.per_connection).then_some(args.pipeline as usize),
        driver: args.client,
        per_connection: args.per_connection,
        threads: args.threads,
        ..Options::default()
    };
    // The metric to which --precision applies.
    let metric = if args.per_connection { "mean_us" } else { "cpu_us" };
    let most = max_rounds(Some(args.rounds));
    let rounds = Rounds::precise(args.rounds, most, metric, args.precision);
    let name = transport.kind().unwrap_or("echo").into();
    let echo = Echo {
        plan: Plan { name, rounds, seed: args.seed },
        servers: servers(args, transport, &catalogue)?,
        transport,
        load,
        time: args.duration,
        cores,
        peers: catalogue.into_peers(),
    };
    let mut setup = echo.setup(&cells(args)?)?;
    setup.idle = args.idle;
    Ok(setup)
}

/// Returns the named servers, or the default ones.
fn servers(args: &EchoArgs, transport: Transport, catalogue: &Catalogue) -> Result<Vec<Contender>> {
    let usual = match transport {
        Transport::Tcp => &["uring", "epoll", "threads"][..],
        Transport::Udp | Transport::Unix => &["uring", "epoll"],
    };
    let usual: Vec<String> = usual.iter().map(|&name| name.into()).collect();
    let names = if args.servers.is_empty() { &usual } else { &args.servers };
    let chosen = names.iter().map(|name| catalogue.choose(name, transport).map_err(UsageError));
    let chosen = chosen.collect::<Result<_, _>>()?;
    distinct(names, |name| format!("server '{name}'"))?;
    Ok(chosen)
}

/// Returns every combination of --connections and --bytes. A duplicate is an error.
fn cells(args: &EchoArgs) -> Result<Vec<Cell>> {
    let EchoArgs { connections, bytes, .. } = args;
    let pairs = connections.iter().flat_map(|&count| bytes.iter().map(move |&b| (count, b)));
    let cells: Vec<Cell> = pairs.map(|(c, b)| echo::cell(c as usize, b as usize)).collect();
    distinct(&cells, Cell::to_string)?;
    Ok(cells)
}

/// Parses `128`, `16K` or `1M`.
fn parse_message_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        value if (1..=MAX_MESSAGE_BYTES as u64).contains(&value) => Ok(value),
        value => Err(format!("{value} bytes are out of range: use 1 to {MAX_MESSAGE_BYTES}")),
    }
}

/// Parses half the width of an interval, above 0 and at most 1.
pub(crate) fn parse_precision(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(half) if half > 0.0 && half <= 1.0 => Ok(half),
        _ => Err("write a number above 0 and at most 1, such as 0.03".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::{parsed, refused};
    use annulus_load::limits;

    fn setup(line: &str, transport: Transport) -> Result<Setup> {
        let line = format!("--transport {} {line}", transport.kind().unwrap_or("tcp"));
        super::setup(&parsed(&line).expect("the line does not parse"))
    }

    #[test]
    fn default_comparison_takes_less_than_a_minute() {
        let setup = setup("", Transport::Tcp).unwrap();
        assert!(setup.cost() < Duration::from_secs(55), "{:?}", setup.cost());
        assert!(setup.plan.rounds.least >= 15);
    }

    #[test]
    fn cells_are_every_combination_of_connections_and_bytes() {
        let cells = |line: &str| {
            let loads = setup(line, Transport::Tcp).unwrap().loads;
            loads.iter().map(|load| load.cell.job()).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(cells("--connections 1,50 --bytes 1,128"), "1 1, 1 128, 50 1, 50 128");
        assert_eq!(cells("--connections 1 --bytes 16K,1M"), "1 16384, 1 1048576");
        assert_eq!(cells(""), "1 128, 50 128, 200 128");
    }

    #[test]
    fn values_out_of_range_do_not_parse() {
        for line in [
            "--rounds 0",
            "--duration 0",
            "--connections 0",
            "--bytes 0",
            "--connections 1,x",
            "--duration -1",
            "--precision 0",
            "--precision NaN",
            "--per-connection --pipeline 2",
        ] {
            assert!(parsed::<EchoArgs>(line).is_err(), "{line}");
        }
        let error = parsed::<EchoArgs>("--duration 0").unwrap_err().to_string();
        assert!(error.contains("'0'") && error.contains("write 0.3"), "{error}");
        for (text, part) in [
            ("", "'' is not a number of bytes"),
            ("é", "'é' is not a number of bytes"),
            ("65M", "68157440 bytes are out of range: use 1 to 67108864"),
            ("18446744073709551615M", "is not a number of bytes"),
        ] {
            let error = parse_message_bytes(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn usage_errors_name_the_value_and_a_remedy() {
        for (line, part) in [
            ("--servers uring,tokyo", "no server 'tokyo': known servers are uring, epoll, threads"),
            ("--servers uring,uring", "server 'uring' is given twice"),
            ("--servers uring+spin=5", "unexpected argument '--spin'"),
            (
                "--servers uring+shutdown-timeout=soon",
                "invalid value 'soon' for '--shutdown-timeout",
            ),
            ("--servers uring+driver=epoll", "cannot be used multiple times"),
            ("--servers uring+help", "unexpected argument '--help'"),
            ("--bytes 1048576 --pipeline 65", "1 connection × 1048576 bytes: 65 messages"),
            ("--connections 5,5", "5 connections × 128 bytes is given twice"),
        ] {
            refused(setup(line, Transport::Tcp), part);
        }
    }

    #[test]
    fn udp_and_unix_have_their_own_servers_and_limits() {
        let plain = setup("--pipeline 4", Transport::Udp).unwrap();
        assert_eq!(plain.names(), ["uring", "epoll"]);
        for (line, part) in [
            ("--servers uring,threads", "server 'threads' serves TCP only"),
            ("--bytes 65508", "bytes per datagram must be from 1 to 65507, not 65508"),
            ("--pipeline 1025", "datagrams in flight must be from 1 to 1024, not 1025"),
            ("--per-connection", "--per-connection does nothing without"),
        ] {
            refused(setup(line, Transport::Udp), part);
        }
        let plain = setup("--per-connection", Transport::Unix).unwrap();
        assert_eq!(plain.names(), ["uring", "epoll"]);
        refused(
            setup("--servers uring,threads", Transport::Unix),
            "server 'threads' serves TCP only",
        );
    }

    #[test]
    fn more_clients_than_open_files_is_an_error_with_both_numbers() {
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let Some(beyond) = most.filter(|&most| most < MAX_CLIENTS as u64) else {
            return assert!(
                limits::available_connections() >= MAX_CLIENTS,
                "fewer connections are available than the limit on open files allows"
            );
        };
        let line = format!("--connections {beyond}");
        let error = setup(&line, Transport::Tcp).unwrap_err().to_string();
        assert!(error.contains(&beyond.to_string()) && error.contains("limit"), "{error}");
    }
}
