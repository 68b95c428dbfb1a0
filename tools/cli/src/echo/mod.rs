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
use annulus_load::{Address, Endpoint, affinity, limits, parse_bytes, parse_duration};
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
(unless it is ignored, as under nohup): stops accepting, finishes what is in
flight, exits 0; a second one exits at once.
SIGUSR1: prints every task and what it waits for on standard error, or with
--driver threads the number of connections.

UDP datagrams with the server itself or port 0 as source are not answered, but
counted (refused in --stats): the echo of one would be echoed without end. An
echo server cannot distinguish another one from a client: do not expose it to
networks on which sources can be forged.

Examples:
  annulus echo                              serve on 127.0.0.1:7000
  annulus echo --listen [::]:0              any free port, IPv6 and IPv4
  annulus echo --listen 127.0.0.1:7000 --listen udp://127.0.0.1:7000
  annulus echo --listen unix:/run/echo --listen unix-datagram:/run/echo-udp
  annulus echo --driver threads --pin 0     the baseline, on CPU 0
  annulus echo --workers 4                  four runtimes, pinned to a CPU each
  annulus echo --metrics 127.0.0.1:9100     and http://127.0.0.1:9100/metrics
  annulus echo --stats - --idle-timeout 30  statistics as JSON when it ends";

/// Serve echo over TCP, UDP and Unix sockets
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct EchoArgs {
    /// Where to listen: HOST:PORT, udp://HOST:PORT, unix:/path or unix-datagram:/path, with @name for an abstract name;
    /// port 0 picks a free one and prints it. The path of a server that has ended is reused. May be given several times
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    listen: Vec<Endpoint>,
    /// Receive buffers of 256 KiB for each worker, a power of two. Their addresses are reserved (counted in VIRT);
    /// memory is used as data arrives [default: 1024, or as many as a limit of addresses (ulimit -v) allows]
    #[arg(long, value_name = "COUNT", value_parser = parse_buffer_count)]
    recv_buffers: Option<u32>,
    /// How to serve: auto, uring, epoll, or threads (a blocking thread per connection)
    #[arg(long, default_value = "auto")]
    driver: Mode,
    /// Runtimes, each on a thread and a CPU of its own; only the first serves datagrams and Unix sockets
    #[arg(long, value_name = "COUNT", default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Which worker gets a connection: least-connections (the one with the
    /// fewest), hash (the kernel chooses by the addresses) or cpu (the one on
    /// the CPU that received it) [default: least-connections]
    #[arg(long, value_name = "HOW")]
    spread: Option<Spread>,
    /// Run on this CPU; with several workers, a list of CPUs to use in turn [default: several workers use those that
    /// this process may use]
    #[arg(long, value_name = "CPU[,CPU]", value_delimiter = ',')]
    pin: Vec<usize>,
    /// Most connections open at once; further ones wait in the kernel's backlog until one closes [default: as many as
    /// files can be open]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    max_connections: Option<u64>,
    /// Most bytes that all workers together hold for connections and datagrams: 64M, 1G; those that hold the most wait
    /// first [default: a quarter of the memory of the control group or machine, see annulus doctor]
    #[arg(long, value_name = "BYTES", value_parser = parse_memory_limit)]
    memory_limit: Option<usize>,
    /// Close a connection without activity for this long: seconds, or 500ms, 2m [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle_timeout: Option<Duration>,
    /// After a signal, how long connections may take to finish what is in flight [default: 5]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    shutdown_timeout: Option<Duration>,
    #[command(flatten)]
    datagrams: DatagramArgs,
    #[command(flatten)]
    ring: RingArgs,
    /// Serve metrics for Prometheus over HTTP, as /metrics at this HOST:PORT, measure how long turns of the loop and polls of
    /// tasks take, and serve the last seconds of them as /trace, for ui.perfetto.dev [default: none of it]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Address>,
    /// Write statistics as JSON at the end, to a file or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    stats: Option<Target>,
}

/// The default of `--shutdown-timeout`.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Signals that stop the server.
const STOP_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Addresses that the memory allocator reserves for a further thread, with its stack, and a runtime for datagrams.
const THREAD_ADDRESS_BYTES: usize = 72 << 20;
const DATAGRAM_ADDRESS_BYTES: usize = 68 << 20;
/// Descriptors per further worker: ring, or epoll and timer; wake-up; listener; two per signal.
const FILES_PER_WORKER: usize = 8;

/// A listen address.
#[derive(Clone, Debug)]
struct Listen {
    endpoint: Endpoint,
    /// The socket addresses, of which the first available one is used. A path has none.
    addresses: Vec<SocketAddr>,
}

/// The settings of the server.
#[derive(Clone, Debug)]
struct Plan {
    listens: Vec<Listen>,
    /// Most connections at once, if limited.
    max_connections: Option<usize>,
    idle_timeout: Option<Duration>,
    shutdown_timeout: Duration,
    datagrams: DatagramArgs,
    ring: RingArgs,
    recv_buffers: Option<u32>,
    /// As many as fit, if those of the default do not.
    fewer_buffers: Option<u32>,
    memory: MemoryLimit,
    workers: usize,
    spread: Spread,
    pinning: Pinning,
    /// Where to serve metrics.
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
        (plan.workers > 1, "--workers", "there is a thread a connection"),
        (
            plan.memory.source() == MemoryLimit::GIVEN,
            "--memory-limit",
            "each thread has a buffer of its own",
        ),
        (plan.metrics.is_some(), "--metrics", "there is no runtime to measure"),
        (plan.recv_buffers.is_some(), "--recv-buffers", "each thread has one of its own"),
    ];
    if let Some((_, option, why)) = refused.into_iter().find(|(given, ..)| *given) {
        let text = format!("{option} with --driver threads: {why}; leave one of them out");
        return Err(UsageError(text).into());
    }
    let [listen @ Listen { endpoint: Endpoint::Tcp(_), .. }] = plan.listens.as_slice() else {
        let text = "--driver threads listens on one TCP address: choose the uring or epoll driver for more";
        return Err(UsageError(text.into()).into());
    };
    let cpu = if let Pinning::On(cpus) = &plan.pinning { cpus.first() } else { None };
    let _pinned = cpu.copied().map(affinity::pin).transpose()?;
    threads::serve(plan, listen, "as demanded")
}

/// A number of buffers that a runtime can have.
fn parse_buffer_count(text: &str) -> Result<u32, String> {
    const MAX_RECV_BUFFERS: u32 = 32_768;
    let count = text
        .parse()
        .ok()
        .filter(|count| u32::is_power_of_two(*count) && *count <= MAX_RECV_BUFFERS);
    count.ok_or_else(|| format!("write a power of two from 1 to {MAX_RECV_BUFFERS}"))
}

impl EchoArgs {
    /// Rejects options without an effect.
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
        only_with("a --listen for datagrams", has_datagrams, &of_datagrams)?;
        let has_udp = listens(|endpoint| matches!(endpoint, Endpoint::Udp(_)));
        only_with("a --listen udp://", has_udp, &[("--segments", self.datagrams.segments)])
    }
}

/// A memory limit that a runtime accepts.
fn parse_memory_limit(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(parse_bytes(text)?).map_err(|error| error.to_string())?;
    MemoryLimit::new(bytes).check().map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn plan(args: EchoArgs) -> Result<Plan> {
    args.check_options()?;
    if args.idle_timeout.is_some_and(|limit| limit.is_zero()) {
        return Err(UsageError(
            "an idle time-out of zero: ask for more, such as 30s, or leave it out".into(),
        )
        .into());
    }
    let workers = usize::from(args.workers);
    if workers > 1 && !args.listen.iter().any(|endpoint| matches!(endpoint, Endpoint::Tcp(_))) {
        let text = format!(
            "--workers {workers}: only TCP connections are spread over workers; listen at a TCP address, too, or leave it out"
        );
        return Err(UsageError(text).into());
    }
    let of_metrics = if args.metrics.is_some() { metrics::METRICS_FILES } else { 0 };
    let files = (workers - 1) * FILES_PER_WORKER + of_metrics;
    let max_connections =
        args.max_connections.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    match max_connections {
        Some(max_connections) => limits::reserve(max_connections.saturating_add(files))?,
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

/// The number of buffers for which addresses can be reserved, if they cannot for the default: a power of two. `None`, too, if they
/// cannot for any: then the error of the first runtime says why.
fn fewer_buffers(workers: usize, has_datagrams: bool) -> Option<u32> {
    let others = (workers - 1) * THREAD_ADDRESS_BYTES
        + if has_datagrams { DATAGRAM_ADDRESS_BYTES } else { 0 };
    let fits = |count: &u32| {
        let pools = PoolSize { count: *count, ..PoolSize::default() }.reserved() * workers;
        // A quarter for stacks, rings and the heap.
        Mapping::anonymous(pools + pools / 4 + others).is_ok()
    };
    let default = PoolSize::default().count;
    let mut counts = successors(Some(default), |count| (*count > 1).then_some(count / 2));
    counts.find(fits).filter(|count| *count < default)
}

/// The CPUs of the workers. A single worker may run anywhere by default.
fn pinning(cpus: Vec<usize>, workers: usize) -> Result<Pinning> {
    if cpus.len() > workers {
        let text = format!("--pin names {} CPUs for {workers} worker(s)", cpus.len());
        return Err(UsageError(format!("{text}: name as many at most, or raise --workers")).into());
    }
    cpus.iter().try_for_each(|cpu| affinity::check(*cpu))?;
    match (cpus.is_empty(), workers) {
        (true, 1) => Ok(Pinning::None),
        (true, _) => affinity::allowed().map(Pinning::On).context("cannot read the allowed CPUs"),
        (false, _) => Ok(Pinning::On(cpus)),
    }
}

impl Plan {
    /// Prints the line that announces the server, and warnings.
    fn announce(&self, addresses: &[String], how: &str) {
        let (workers, cpus) = (self.workers, self.cpus());
        let address = addresses.join(", ");
        let workers_text =
            if workers > 1 { format!("; {workers} workers, {cpus} CPUs") } else { String::new() };
        note(format_args!("annulus echo: listening on {address} ({how}{workers_text})"));
        if let Some(count) = self.fewer_buffers {
            note(format_args!(
                "annulus echo: warning: {count} receive buffers a worker, not {}: no more addresses can be reserved; raise \
                 `ulimit -v`, or choose --recv-buffers",
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

    /// The number of CPUs that several workers run on.
    fn cpus(&self) -> usize {
        match &self.pinning {
            Pinning::On(cpus) => cpus.iter().collect::<BTreeSet<_>>().len(),
            _ => self.workers,
        }
    }

    /// Explains why an address is not available.
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
                "another program listens there, or it is no socket: stop it, or choose another path"
            }
            io::ErrorKind::PermissionDenied if endpoint.is_path() => {
                "its directory is not writable: choose a path in another one"
            }
            io::ErrorKind::NotFound if endpoint.is_path() => {
                "there is no such directory: create it, or choose another path"
            }
            io::ErrorKind::AddrInUse => {
                "another program listens there: stop it, or choose another port (0 picks one)"
            }
            io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address: try 127.0.0.1 or 0.0.0.0"
            }
            // The error names the address.
            _ => return anyhow!("cannot serve: {error}"),
        };
        anyhow!("cannot listen on {endpoint}: {}: {advice}", error.kind())
    }
}
