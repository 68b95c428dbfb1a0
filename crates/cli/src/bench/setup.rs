//! What was asked for, and what will be done.

use super::cells;
use super::pins::Pins;
use super::servers::{Catalogue, Choice};
use crate::output::Target;
use crate::span;
use crate::usage::{Misuse, only_with};
use annulus_lab::cores::Cores;
use annulus_lab::record::Metric;
use annulus_lab::rig::{Letters, Load, Visits, Work};
use annulus_lab::schedule::Cell;
use annulus_load::visits::{MAX_CONNECTIONS, MAX_LOOPS};
use annulus_load::{MAX_CLIENTS, MAX_LENGTH, MAX_PIPELINE, Mode, Place, limits};
use anyhow::Result;
use clap::Args;
use std::net::Ipv4Addr;
use std::time::Duration;

const EXPLAIN: &str = "\
Starts every server, pinned to one core, and keeps all up. The load runs on
another core and visits them in turn in short slices, round after round. The
first server runs a second time as a control: it must come out equal to itself.

With --per-connection each message has a connection of its own: connect, send,
receive all of it, close. Average and p99 are then of the echo, from the send to
the last byte; CPU is a connection's.

A CPU ratio is a server's CPU time a request over the first one's, taken within
each round: the median, with its bootstrap 95 % interval. A winner is named only
where the interval excludes 1 by more than the control strays from it.

Servers: uring, epoll and threads (ours), and the folders in peers/, built when
asked for; peer:NAME where one of ours has the same name. Ours take the options
of annulus echo: uring+OPTION or uring+OPTION=VALUE, any number of them; a peer
takes one of its modes: go-uring+sqpoll.

Examples:
  annulus bench echo                                    about 50 seconds
  annulus bench echo --cells 1x128,50x1000,100x16K,10x1M --precision 0.03
  annulus bench echo --clients 50 --pipeline 16
  annulus bench echo --clients 50 --client threads
  annulus bench echo --per-connection --cells 1000x16K --idle 30
  annulus bench echo --servers uring,uring-floor --rounds 40
  annulus bench echo --servers uring,uring+locked-down
  annulus bench echo --json - | jq .verdicts";

/// Compare echo servers: CPU time a request, requests/s, latency
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(crate) struct EchoArgs {
    /// Connections: one number or several [default: 1,50,200]
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=MAX_CLIENTS as u64))]
    clients: Vec<u64>,
    /// Bytes a message: one number or several [default: 128]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=MAX_LENGTH as u64))]
    bytes: Vec<u64>,
    /// Connections and bytes in pairs, such as 1x128,100x16K,10x1M; alone, or
    /// beside every --clients with every --bytes
    #[arg(long, value_name = "COUNTxBYTES,…", value_delimiter = ',', value_parser = cells::parse)]
    cells: Vec<Cell>,
    /// Servers by name; the others are compared with the first [default:
    /// uring,epoll,threads; for udp and unix uring,epoll]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    servers: Vec<String>,
    /// How often each server is visited at each size
    #[arg(long, value_name = "COUNT", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// Go on with more rounds until half the width of every CPU ratio's interval
    /// is at most this, such as 0.03
    #[arg(long, value_name = "RATIO", value_parser = cells::precision)]
    precision: Option<f64>,
    /// The most rounds that --precision may take
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "precision",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds_max: u64,
    /// How long a visit is measured: seconds, or 300ms
    #[arg(long, value_name = "TIME", default_value = "0.2", value_parser = some_time)]
    seconds: Duration,
    /// How long a visit runs before it is measured
    #[arg(long, value_name = "TIME", default_value = "0.05", value_parser = span::parse)]
    warm_up: Duration,
    /// Messages in flight at each connection
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=MAX_PIPELINE as u64))]
    pipeline: u64,
    /// What the clients run on: auto, uring or epoll, or threads (a blocking
    /// thread a connection: requests arrive one at a time)
    #[arg(long, value_name = "KIND", default_value = "auto")]
    client: Mode,
    /// Clients send as one what leaves at once, and have the kernel put together
    /// what comes (GSO and GRO): for bench udp, with --pipeline
    #[arg(long)]
    segments: bool,
    /// A connection a message: connect, send, receive all of it, close; compares
    /// average and p99, too
    #[arg(long, conflicts_with_all = ["pipeline", "seconds", "warm_up"])]
    per_connection: bool,
    /// Connections a visit, with --per-connection [default: as many as clients,
    /// but 200 at least]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_CONNECTIONS as u64))]
    connections: Option<u64>,
    /// Event loops of the load, with --per-connection [default: 1]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_LOOPS as u64))]
    threads: Option<u64>,
    /// Read every server's memory again after it was left alone for this long
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    idle: Option<Duration>,
    #[command(flatten)]
    pins: Pins,
    /// Write everything as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// Decides the order of visits, what is sent, and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What the servers are spoken to over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    Unix,
}

impl Transport {
    /// What a peer calls it that serves it; TCP they all do.
    fn kind(self) -> Option<&'static str> {
        match self {
            Transport::Tcp => None,
            Transport::Udp => Some("udp"),
            Transport::Unix => Some("unix"),
        }
    }

    /// The name of the comparison.
    pub(crate) fn bench(self) -> &'static str {
        self.kind().unwrap_or("echo")
    }
}

/// A comparison that can be carried out.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) transport: Transport,
    pub(crate) catalogue: Catalogue,
    pub(crate) choices: Vec<Choice>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) rounds: usize,
    /// Half the width that intervals should have, and the rounds that may take.
    pub(crate) precision: Option<f64>,
    most: usize,
    pub(crate) work: Work,
    /// How long the servers are left alone before their memory is read again.
    pub(crate) idle: Option<Duration>,
    pub(crate) cores: Cores,
    pub(crate) json: Option<Target>,
    pub(crate) seed: u64,
}

impl Setup {
    /// Checks what was asked for.
    pub(crate) fn new(args: EchoArgs, transport: Transport, catalogue: Catalogue) -> Result<Setup> {
        let seed = args.seed;
        let (_, cores) = args.pins.choose()?;
        let servers = servers(&args, transport);
        let choices = choices(&catalogue, &servers)?;
        if let Some(kind) = transport.kind() {
            choices.iter().try_for_each(|choice| catalogue.check(choice, kind).map_err(Misuse))?;
        }
        let cells = cells::of(&args.clients, &args.bytes, &args.cells)?;
        limits::reserve(cells.iter().map(|cell| cell.clients).max().unwrap_or_default())?;
        let work = work(&args, transport, cores.load)?;
        cells.iter().try_for_each(|&cell| check(work, cell))?;
        let (idle, json) = (args.idle, args.json);
        let (rounds, most, precision) =
            (args.rounds as usize, args.rounds_max as usize, args.precision);
        Ok(Setup {
            transport,
            catalogue,
            choices,
            cells,
            rounds,
            precision,
            most,
            work,
            idle,
            cores,
            json,
            seed,
        })
    }

    /// What is to be known precisely: what the comparison is about.
    pub(crate) fn figure(&self) -> Metric {
        match self.work {
            Work::Loop(_) | Work::Letters(_) => Metric::Cpu,
            Work::Visits(_) => Metric::Mean,
        }
    }

    /// The rounds of a cell at most.
    pub(crate) fn rounds_max(&self) -> usize {
        if self.precision.is_some() { self.rounds.max(self.most) } else { self.rounds }
    }
}

/// A length of time that is not zero.
pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    match span::parse(text)? {
        Duration::ZERO => Err("nothing can be measured in no time: write 0.3 or 300ms".into()),
        time => Ok(time),
    }
}

fn choices(catalogue: &Catalogue, names: &[String]) -> Result<Vec<Choice>> {
    let choices = names.iter().map(|name| catalogue.choose(name).map_err(Misuse));
    let choices = choices.collect::<Result<Vec<_>, _>>()?;
    distinct(names, |name| format!("server '{name}'"))?;
    Ok(choices)
}

pub(super) use annulus_lab::distinct;

/// The names that were given, or those where none were.
fn servers(args: &EchoArgs, transport: Transport) -> Vec<String> {
    let names: &[&str] = match transport {
        _ if !args.servers.is_empty() => return args.servers.clone(),
        Transport::Tcp => &["uring", "epoll", "threads"],
        Transport::Udp | Transport::Unix => &["uring", "epoll"],
    };
    names.iter().map(|&name| name.into()).collect()
}

/// What the load does in each visit.
fn work(args: &EchoArgs, transport: Transport, core: usize) -> Result<Work> {
    let of_visits =
        [("--connections", args.connections.is_some()), ("--threads", args.threads.is_some())];
    only_with("--per-connection", args.per_connection, &of_visits)?;
    let (pin, seed) = (Some(core), args.seed);
    if transport == Transport::Udp {
        return letters(args, core);
    }
    if args.segments {
        return Err(Misuse("--segments: only bench udp has them, leave it out".into()).into());
    }
    match (args.per_connection, args.client) {
        (false, client) => {
            let (warm_up, duration) = (args.warm_up, args.seconds);
            let pipeline = args.pipeline as usize;
            Ok(Work::Loop(Load { warm_up, duration, pin, seed, client, pipeline }))
        }
        (true, Mode::Tasks(driver)) => {
            let connections = args.connections.map(|count| count as usize);
            let threads = args.threads.unwrap_or(1) as usize;
            Ok(Work::Visits(Visits { connections, threads, pin, seed, driver }))
        }
        (true, Mode::Threads) => {
            let text = "--per-connection with --client threads: it runs on event loops, as many as --threads says";
            Err(Misuse(text.into()).into())
        }
    }
}

/// What the load does in each visit where it sends datagrams.
fn letters(args: &EchoArgs, core: usize) -> Result<Work> {
    let Mode::Tasks(driver) = args.client else {
        return Err(Misuse("--client threads sends no datagrams: leave it out".into()).into());
    };
    if args.per_connection {
        return Err(Misuse("--per-connection: datagrams have no connection".into()).into());
    }
    let (warm_up, duration) = (args.warm_up, args.seconds);
    let (pin, seed, window) = (Some(core), args.seed, args.pipeline as usize);
    let segments = args.segments;
    Ok(Work::Letters(Letters { warm_up, duration, window, segments, pin, seed, driver }))
}

/// Whether the load can do this to any server at all.
fn check(work: Work, cell: Cell) -> Result<()> {
    let anyone = Place::Inet((Ipv4Addr::LOCALHOST, 1).into());
    let checked = match work {
        Work::Loop(load) => load.plan(cell, anyone).validate(),
        Work::Visits(visits) => visits.plan(cell, anyone).validate(),
        Work::Letters(letters) => letters.plan(cell, anyone).validate(),
    };
    checked.map_err(|error| Misuse(format!("{cell}: {error}")).into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Command;

    /// What a verb is told by a line of arguments.
    pub(crate) fn parsed<A: Args>(line: &str) -> Result<A, clap::Error> {
        let verb = A::augment_args(Command::new("verb").no_binary_name(true));
        A::from_arg_matches(&verb.try_get_matches_from(line.split_whitespace())?)
    }

    fn setup(line: &str) -> Result<Setup> {
        Setup::new(parsed(line).expect("it parses"), Transport::Tcp, Catalogue::here())
    }

    #[test]
    fn without_arguments_it_ends_within_a_minute() {
        let setup = setup("").unwrap();
        let servers = setup.choices.len() as u32 + 1;
        let slices = servers * setup.cells.len() as u32 * setup.rounds as u32;
        // 20 ms a slice for connecting and parting is more than 200 connections take.
        let Work::Loop(load) = setup.work else { panic!("a loop is the default") };
        let slice = load.warm_up + load.duration + Duration::from_millis(20);
        assert!(slice * slices < Duration::from_secs(55), "{slices} slices of {slice:?}");
        assert!(setup.rounds >= 15);
    }

    #[test]
    fn values_out_of_range_do_not_parse() {
        for line in [
            "--rounds 0",
            "--seconds 0",
            "--clients 0",
            "--bytes 0",
            "--clients 1,x",
            "--seconds -1",
            "--cells 0x1",
            "--precision 0",
            "--rounds-max 20",
            "--per-connection --pipeline 2",
        ] {
            assert!(parsed::<EchoArgs>(line).is_err(), "{line}");
        }
        let error = parsed::<EchoArgs>("--seconds 0").unwrap_err().to_string();
        assert!(error.contains("'0'") && error.contains("write 0.3"), "{error}");
    }

    #[test]
    fn misuse_names_the_value_and_the_way_out() {
        for (line, part) in [
            ("--servers uring,tokyo", "no server 'tokyo': there are uring, epoll, threads"),
            ("--servers uring,uring", "server 'uring' is asked for twice"),
            ("--bytes 1048576 --pipeline 65", "1 client × 1048576 bytes: 65 messages"),
            ("--clients 10001 --client threads", "at most 10000"),
            ("--per-connection --client threads", "on event loops, as many as --threads says"),
            ("--connections 5 --seconds 1", "--connections does nothing without --per-connection"),
            ("--threads 2 --seconds 1", "--threads does nothing without --per-connection"),
            ("--clients 5,5", "5 clients × 128 bytes is asked for twice"),
            ("--server-pin 9999", "--server-pin 9999: this process may use "),
        ] {
            let error = setup(line).unwrap_err();
            assert!(error.is::<Misuse>(), "{line}: {error}");
            assert!(error.to_string().contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn datagrams_have_servers_and_limits_of_their_own() {
        let setup = |line: &str| {
            Setup::new(parsed(line).expect("it parses"), Transport::Udp, Catalogue::here())
        };
        let plain = setup("--pipeline 4").unwrap();
        assert!(matches!(plain.work, Work::Letters(_)) && plain.choices.len() == 2);
        for (line, part) in [
            ("--servers uring,threads", "server 'threads' serves TCP only"),
            ("--bytes 65508", "65508 bytes a datagram: ask for 1 to 65507"),
            ("--pipeline 1025", "1025 datagrams under way: ask for 1 to 1024"),
            ("--client threads", "--client threads sends no datagrams"),
            ("--segments --per-connection", "datagrams have no connection"),
            ("--per-connection", "datagrams have no connection"),
        ] {
            let error = setup(line).unwrap_err();
            assert!(error.is::<Misuse>() && error.to_string().contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn unix_sockets_have_servers_of_their_own() {
        let setup = |line: &str| {
            Setup::new(parsed(line).expect("it parses"), Transport::Unix, Catalogue::here())
        };
        let error = setup("--segments").unwrap_err().to_string();
        assert!(error.contains("only bench udp has them"), "{error}");
        let plain = setup("--per-connection").unwrap();
        assert!(matches!(plain.work, Work::Visits(_)) && plain.choices.len() == 2);
        let error = setup("--servers uring,threads").unwrap_err();
        assert!(error.to_string().contains("server 'threads' serves TCP only"), "{error}");
    }

    #[test]
    fn more_clients_than_open_files_is_told_with_both_numbers() {
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let Some(beyond) = most.filter(|&most| most < MAX_CLIENTS as u64) else {
            return assert!(limits::room() >= MAX_CLIENTS, "no limit here that could be passed");
        };
        let error = setup(&format!("--clients {beyond}")).unwrap_err().to_string();
        assert!(error.contains(&beyond.to_string()) && error.contains("limit"), "{error}");
    }
}
