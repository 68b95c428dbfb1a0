//! `annulus echo`: an echo server.

mod ask;
mod datagrams;
mod metrics;
mod mode;
mod own_addresses;
mod registry;
mod ring;
mod self_test;
mod stats;
mod stream;
mod tasks;
mod tasks_list;
mod threads;

use crate::output::{self, Target, note};
use crate::signals::{SIGHUP, SIGINT, SIGTERM};
use crate::usage::{UsageError, only_with, options_error};
use annulus::MemoryLimit;
use annulus::shards::{Pinning, Spread};
use annulus_driver::PoolSize;
use annulus_kernel::Mapping;
use annulus_load::limits::OpenFileShortage;
use annulus_load::{
    Address, Endpoint, affinity, counted, limits, parse_bytes, parse_cpu, parse_duration,
};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use datagrams::DatagramArgs;
use mode::Mode;
use ring::RingArgs;
use stats::Stats;
use std::collections::BTreeSet;
use std::io;
use std::iter::successors;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

const AFTER_HELP: &str = "\
Prints one line on standard error when it is ready. SIGINT, SIGTERM or SIGHUP
(unless ignored, as under nohup): stops accepting, finishes what is in flight
and exits with 0; a second signal exits at once. SIGUSR1: prints on standard
error what every task waits for, or with --driver threads the number of
connections.

UDP datagrams whose source is the server itself or port 0 are counted (refused
in --stats) but not answered: the server would echo its own echoes forever. An
echo server cannot tell another echo server from a client, so do not expose it
to networks on which sources can be forged.

Examples:
  annulus echo                              serve on 127.0.0.1:7000
  annulus echo --listen [::]:0              any free port, IPv6 and IPv4
  annulus echo --listen 127.0.0.1:7000 --listen udp://127.0.0.1:7000
  annulus echo --listen unix:/run/echo --listen unix-datagram:/run/echo-udp
  annulus echo --driver threads --pin 0     the baseline, on CPU 0
  annulus echo --workers 4                  four runtimes, each pinned to a CPU
  annulus echo --metrics 127.0.0.1:9100     serve http://127.0.0.1:9100/metrics
  annulus echo --stats - --idle-timeout 30  statistics as JSON at the end";

/// Serve echo over TCP, UDP and Unix sockets
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct EchoArgs {
    /// Where to listen; may be given several times
    ///
    /// HOST:PORT, udp://HOST:PORT, unix:/path or unix-datagram:/path, or @name instead of a path for
    /// an abstract name. Port 0 picks a free port and prints it. A path left behind by a server that
    /// has ended is reused
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    listen: Vec<Endpoint>,
    /// Number of 256 KiB receive buffers per worker, a power of two. Their addresses are reserved
    /// (counted in VIRT); memory is used as data arrives [default: 1024, or as many as the
    /// address-space limit (ulimit -v) allows]
    #[arg(long, value_name = "COUNT", value_parser = parse_buffer_count)]
    recv_buffers: Option<u32>,
    /// How to serve: auto, uring, epoll or threads
    ///
    /// With threads, each connection has a blocking thread
    #[arg(long, default_value = "auto")]
    driver: Mode,
    /// Number of runtimes, each on its own thread and CPU
    ///
    /// Only the first serves datagrams and Unix sockets
    #[arg(long, value_name = "COUNT", default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Which worker gets a connection: least-connections (the one with the
    /// fewest), hash (the kernel chooses by the addresses) or cpu (the one on
    /// the CPU that received it) [default: least-connections]
    #[arg(long, value_name = "HOW")]
    spread: Option<Spread>,
    /// Run on these CPUs
    ///
    /// Several workers run on them in turn [default: any CPU for one worker; for several, the CPUs
    /// that this process may use]
    #[arg(long, value_name = "CPU[,CPU]", value_delimiter = ',', value_parser = parse_cpu)]
    pin: Vec<usize>,
    /// Maximum number of open connections
    ///
    /// Further ones wait in the kernel's backlog until one closes [default: as many as the limit of
    /// open files allows]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_OPEN_FILES))]
    max_connections: Option<u64>,
    /// Memory for connections and datagrams: 64M, 1G
    ///
    /// All workers share it. Connections that hold the most wait first [default: a quarter of the
    /// memory of the control group or machine, see annulus doctor]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory_limit)]
    memory_limit: Option<usize>,
    /// Close connections that are idle for this long
    ///
    /// In seconds, or with a unit: 500ms, 2m [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle_timeout: Option<Duration>,
    /// Time to finish after a signal [default: 5]
    ///
    /// Connections finish what is in flight
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    shutdown_timeout: Option<Duration>,
    #[command(flatten)]
    datagrams: DatagramArgs,
    #[command(flatten)]
    ring: RingArgs,
    /// Serve Prometheus metrics at http://HOST:PORT/metrics
    ///
    /// Also times the turns of the loop and the polls of tasks, and serves a trace of the last few
    /// seconds as /trace, for ui.perfetto.dev
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Address>,
    /// Write statistics as JSON at the end
    ///
    /// To a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    stats: Option<Target>,
}

/// More files than a process can have open.
const MAX_OPEN_FILES: u64 = i32::MAX as u64;
/// The default of `--shutdown-timeout`.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Signals that stop the server.
const STOP_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Address space for one more thread: the allocator's arena and the stack.
const THREAD_ADDRESS_BYTES: usize = 72 << 20;
/// Address space for the datagrams of a runtime.
const DATAGRAM_ADDRESS_BYTES: usize = 68 << 20;
/// Descriptors reserved for an additional worker: the ring, or epoll and its timer; the wake-up; a
/// listener for each address.
const FILES_PER_WORKER: usize = 8;

#[derive(Clone, Debug)]
struct Listen {
    endpoint: Endpoint,
    /// Candidate socket addresses: the first available one is used. Empty for a path.
    addresses: Vec<SocketAddr>,
}

/// The settings of the server.
#[derive(Clone, Debug)]
struct Plan {
    listens: Vec<Listen>,
    max_connections: Option<usize>,
    idle_timeout: Option<Duration>,
    shutdown_timeout: Duration,
    datagrams: DatagramArgs,
    ring: RingArgs,
    recv_buffers: Option<u32>,
    /// The number of buffers that fit into the address space, if the default number does not.
    fewer_buffers: Option<u32>,
    memory: MemoryLimit,
    workers: usize,
    spread: Spread,
    pinning: Pinning,
    metrics: Option<Listen>,
}

pub(crate) fn run(args: EchoArgs) -> Result<ExitCode> {
    let file = args.stats.clone().map(Target::open).transpose()?;
    let mode = args.driver;
    let plan = plan(args)?;
    let stats = serve(&plan, mode)?;
    output::deliver(file, &stats, None)?;
    Ok(ExitCode::SUCCESS)
}

fn serve(plan: &Plan, mode: Mode) -> Result<Stats> {
    plan.ring.check(mode)?;
    match mode {
        Mode::Tasks(choice) => tasks::serve(plan, choice),
        Mode::Threads => serve_with_threads(plan),
    }
}

fn serve_with_threads(plan: &Plan) -> Result<Stats> {
    let refused = [
        (plan.workers > 1, "--workers", "each connection has a thread"),
        (
            plan.memory.source() == MemoryLimit::GIVEN,
            "--memory-limit",
            "each thread has its own buffer",
        ),
        (plan.metrics.is_some(), "--metrics", "no runtime exists to measure"),
        (plan.recv_buffers.is_some(), "--recv-buffers", "each thread has its own buffer"),
    ];
    if let Some((_, option, why)) = refused.into_iter().find(|(given, ..)| *given) {
        let text = format!("{option} with --driver threads: {why}; leave one of them out");
        return Err(UsageError(text).into());
    }
    let [listen @ Listen { endpoint: Endpoint::Tcp(_), .. }] = plan.listens.as_slice() else {
        let text = "--driver threads serves exactly one TCP address: choose the uring or epoll driver for anything else";
        return Err(UsageError(text.into()).into());
    };
    let cpu = if let Pinning::On(cpus) = &plan.pinning { cpus.first() } else { None };
    let _pinned = cpu.copied().map(affinity::pin).transpose()?;
    threads::serve(plan, listen)
}

fn parse_buffer_count(text: &str) -> Result<u32, String> {
    const MAX_RECV_BUFFERS: u32 = 32_768;
    let count = text
        .parse()
        .ok()
        .filter(|count| u32::is_power_of_two(*count) && *count <= MAX_RECV_BUFFERS);
    count.ok_or_else(|| format!("write a power of two from 1 to {MAX_RECV_BUFFERS}"))
}

impl EchoArgs {
    /// Rejects options that would have no effect.
    fn check_options(&self) -> Result<(), UsageError> {
        let listens = |kinds: fn(&Endpoint) -> bool| self.listen.iter().any(kinds);
        only_with("several --workers", self.workers > 1, &[("--spread", self.spread.is_some())])?;
        let of_streams = [
            ("--max-connections", self.max_connections.is_some()),
            ("--idle-timeout", self.idle_timeout.is_some()),
            ("--shutdown-timeout", self.shutdown_timeout.is_some()),
            ("--zero-copy-threshold", self.ring.zero_copy_threshold.is_some()),
        ];
        only_with("a --listen for streams", listens(Endpoint::is_stream), &of_streams)?;
        let of_datagrams = [
            ("--outstanding", self.datagrams.outstanding.is_some()),
            ("--socket-buffer", self.datagrams.socket_buffer.is_some()),
        ];
        let has_datagrams = listens(|endpoint| !endpoint.is_stream());
        only_with("a --listen for datagrams", has_datagrams, &of_datagrams)
    }
}

/// Parses a memory limit and checks its range.
fn parse_memory_limit(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(parse_bytes(text)?).map_err(|error| error.to_string())?;
    MemoryLimit::new(bytes).check().map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn plan(args: EchoArgs) -> Result<Plan> {
    args.check_options()?;
    if args.idle_timeout.is_some_and(|limit| limit.is_zero()) {
        return Err(UsageError(
            "the idle timeout must be above zero: use more, such as 30s, or leave it out".into(),
        )
        .into());
    }
    let workers = usize::from(args.workers);
    if workers > 1 && !args.listen.iter().any(|endpoint| matches!(endpoint, Endpoint::Tcp(_))) {
        let text = format!(
            "--workers {workers}: only TCP connections are spread over workers; also listen on a TCP address, or leave it out"
        );
        return Err(UsageError(text).into());
    }
    let of_metrics = if args.metrics.is_some() { metrics::METRICS_FILES } else { 0 };
    let files = (workers - 1) * FILES_PER_WORKER + of_metrics;
    let max_connections = args.max_connections.map(|count| count as usize);
    match max_connections {
        // The error is about the connections, so its advice leaves room for the other files.
        Some(max_connections) => limits::reserve(max_connections + files).map_err(|shortage| {
            OpenFileShortage { connections: max_connections as u64, ..shortage }
        })?,
        None => limits::raise(),
    }
    let has_datagrams = args.listen.iter().any(|endpoint| !endpoint.is_stream());
    let fewer_buffers =
        args.recv_buffers.is_none().then(|| fewer_buffers(workers, has_datagrams)).flatten();
    let listen = |endpoint: Endpoint| {
        endpoint.resolve().map_err(options_error).map(|addresses| Listen { endpoint, addresses })
    };
    Ok(Plan {
        listens: args.listen.into_iter().map(listen).collect::<Result<_>>()?,
        max_connections,
        idle_timeout: args.idle_timeout,
        shutdown_timeout: args.shutdown_timeout.unwrap_or(SHUTDOWN_TIMEOUT),
        datagrams: args.datagrams,
        ring: args.ring,
        recv_buffers: args.recv_buffers,
        fewer_buffers,
        memory: args.memory_limit.map_or_else(MemoryLimit::of_process, MemoryLimit::new),
        workers,
        spread: args.spread.unwrap_or_default(),
        pinning: pinning(args.pin, workers)?,
        metrics: args.metrics.map(|address| listen(Endpoint::Tcp(address))).transpose()?,
    })
}

/// Returns the largest number of receive buffers, a power of two, for which address space can be
/// reserved. Returns `None` if the default fits, and also if nothing fits: building the first
/// runtime then reports why.
fn fewer_buffers(workers: usize, has_datagrams: bool) -> Option<u32> {
    let others = (workers - 1) * THREAD_ADDRESS_BYTES
        + if has_datagrams { DATAGRAM_ADDRESS_BYTES } else { 0 };
    let fits = |count: &u32| {
        let pools = PoolSize { count: *count, ..PoolSize::default() }.reserved() * workers;
        // A quarter more for stacks, rings and the heap.
        Mapping::anonymous(pools + pools / 4 + others).is_ok()
    };
    let default = PoolSize::default().count;
    let mut counts = successors(Some(default), |count| (*count > 1).then_some(count / 2));
    counts.find(fits).filter(|count| *count < default)
}

/// Returns the CPUs of the workers. By default, a single worker may run on any CPU.
fn pinning(cpus: Vec<usize>, workers: usize) -> Result<Pinning> {
    if cpus.len() > workers {
        let text = format!("--pin has {} CPUs for {workers} worker(s)", cpus.len());
        return Err(
            UsageError(format!("{text}: give at most one per worker, or raise --workers")).into()
        );
    }
    cpus.iter().try_for_each(|cpu| affinity::check(*cpu))?;
    match (cpus.is_empty(), workers) {
        (true, 1) => Ok(Pinning::None),
        (true, _) => affinity::allowed().map(Pinning::On).context("cannot read the allowed CPUs"),
        (false, _) => Ok(Pinning::On(cpus)),
    }
}

impl Plan {
    /// Prints the line that announces the server, followed by warnings.
    fn announce(&self, addresses: &[String], how: &str) {
        let (workers, cpus) = (self.workers, self.cpus());
        let address = addresses.join(", ");
        let cpus_text = counted(cpus, "CPU");
        let workers_text =
            if workers > 1 { format!("; {workers} workers, {cpus_text}") } else { String::new() };
        note(format_args!("annulus echo: listening on {address} ({how}{workers_text})"));
        if let Some(count) = self.fewer_buffers {
            note(format_args!(
                "annulus echo: warning: {count} receive buffers per worker, not {}: no more address space can be \
                 reserved; raise `ulimit -v`, or choose --recv-buffers",
                PoolSize::default().count
            ));
        }
        if workers > cpus {
            note(format_args!(
                "annulus echo: warning: more workers ({workers}) than CPUs ({cpus}): they share\n\
                 CPUs, so throughput is no higher, and a request may wait for another worker"
            ));
        }
    }

    /// Returns the number of distinct CPUs that the workers use, or the number of workers if they
    /// are not pinned.
    fn cpus(&self) -> usize {
        match &self.pinning {
            Pinning::On(cpus) => cpus.iter().collect::<BTreeSet<_>>().len(),
            _ => self.workers,
        }
    }

    /// Adds advice to an error from listening.
    fn cannot_listen(&self, endpoint: &Endpoint, error: io::Error) -> anyhow::Error {
        if error.kind() == io::ErrorKind::PermissionDenied
            && let Some(first) = endpoint.first_unprivileged_port()
        {
            return anyhow!(
                "cannot listen on {endpoint}: {}: ports below {first} need root or CAP_NET_BIND_SERVICE: choose one above",
                error.kind()
            );
        }
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse if endpoint.is_path() => {
                "another program listens there, or the path is not a socket: stop the program, or choose another path"
            }
            io::ErrorKind::PermissionDenied if endpoint.is_path() => {
                "its directory is not writable: choose a path in another directory"
            }
            io::ErrorKind::NotFound if endpoint.is_path() => {
                "the directory does not exist: create it, or choose another path"
            }
            io::ErrorKind::AddrInUse => {
                "another program listens there: stop it, or choose another port (0 picks one)"
            }
            io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address: try 127.0.0.1 or 0.0.0.0"
            }
            // The error already contains the address.
            _ => return anyhow!("cannot serve: {error}"),
        };
        anyhow!("cannot listen on {endpoint}: {}: {advice}", error.kind())
    }
}
