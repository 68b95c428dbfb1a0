//! `annulus load`: how fast a server answers, with every byte verified.

mod compare;
mod datagrams;
mod engine;
mod find_rate;
mod http;
mod live;
mod logs;
mod page;
mod recorded;
mod recordings;
mod redis;
mod script;
mod spoken;
mod summary;
mod target;
mod tls;
mod workload;

use self::live::Live;
use self::recorded::Output;
use crate::duration;
use crate::output::{self, Target, note};
use crate::signals::{SIGHUP, SIGINT, SIGTERM, Stop};
use crate::usage::{UsageError, only_with};
use annulus::DriverChoice;
use annulus_load::recording::{Interval, Recording, RunInfo};
use annulus_load::{
    LoadError, MAX_CLIENTS, MAX_CONNECTIONS, MAX_PIPELINE, Observer, PerConnection, Plan, Progress,
    RateSearch, ServerAddress, Streams, Workload,
};
use anyhow::{Context, Result, bail};
use clap::parser::ValueSource;
use clap::{Args, FromArgMatches, Subcommand};
use spoken::{ProtocolArgs, only_for_echo};
use std::process::ExitCode;
use std::time::Duration;
use target::TargetArgs;
pub(crate) use target::parse_twice as parse_target_twice;
use workload::WorkloadArgs;

const EXAMPLES: &str = "\
Each client sends a message, waits for the whole reply, verifies every byte,
and sends the next one. Failures are counted by kind. The exit status is 1
after any failure, and after a run without a response. Replies that refuse
(status 400 or above, errors of Redis, others than expected) are results,
shown as such: only a run without any other reply exits with 1.

SIGINT, SIGTERM or SIGHUP: ends the run, prints the results so far, marked as
interrupted, and exits with 130, 143 or 129; a second one exits at once.

In a closed loop a client waits for its replies, so a server that pauses is
asked less meanwhile, and few latencies show the pause. With --rate (an open
loop) messages are due at their times, as those of independent users are.
Latency is the response time: from when a message was due, also if it is sent
late as its pipeline was full. The service time counts from when it was sent.

Examples:
  annulus load                             50 clients, 512 bytes, a minute
  annulus load -c 1000 -l 128 -t 10        1000 clients, 128 bytes, 10 s
  annulus load -l 128 --pipeline 16        16 messages in flight each
  annulus load --rate 20k --pipeline 64    an open loop of 20,000 a second
  annulus load --rate 20k --arrivals poisson
                                           as from independent users
  annulus load -c 200 --think exp:100ms    users that pause
  annulus load --find-rate 'p99<1ms' -t 60 the highest rate that meets this
  annulus load udp -c 50 -l 128            datagrams: loss and order, too
  annulus load --per-connection -c 1000 -l 16384 --threads 4
                                           connect, send, receive, close
  annulus load [::1]:7000 --pin 1          IPv6, on CPU 1
  annulus load unix:/run/echo              a Unix socket
  annulus load http://127.0.0.1:8080/index.html
                                           HTTP/1.1; https:// for TLS, --h2
  annulus load http://127.0.0.1:8080 --request '9*/items/{random 1 100}' \\
    --request '1*POST /items id={hex 8}' nine reads for one write
  annulus load redis://127.0.0.1 --redis 'GET key:{random 1 1000}'
  annulus load tcp://127.0.0.1:25 --send 'NOOP\\r\\n' --reply-until '\\n'
  annulus load -t 5 --json - | jq .latency_us
  annulus load --hdr a.hdr                 histograms for each second";

/// The examples that `-h` shows in their place.
const BRIEF: &str = "\
Examples:
  annulus load -c 1000 -l 128 -t 10        1000 clients, 128 bytes, 10 s
  annulus load --rate 20k --pipeline 64    an open loop of 20,000 a second
  annulus load http://127.0.0.1:8080/index.html
  annulus load redis://127.0.0.1 --redis 'GET key:{random 1 1000}'

With --help: all options, of HTTP, Redis and TLS too.";

/// Loads other than connections, and what is done with recordings.
#[derive(Debug, Subcommand)]
enum Kind {
    Udp(Box<datagrams::UdpArgs>),
    Compare(compare::CompareArgs),
    Page(page::PageArgs),
}

/// Options of every load.
#[derive(Args, Debug)]
struct CommonArgs {
    /// Clients: a connection or a socket each
    #[arg(short = 'c', long = "number", value_name = "CLIENTS", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..=MAX_CLIENTS as u64))]
    number: u64,
    /// How long to measure: seconds, or 500ms, 2m [default: 60]
    #[arg(short = 't', long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<Duration>,
    /// How long to run before measuring
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = duration::parse)]
    warm_up: Duration,
    /// Run on this CPU
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// Write the results as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// The seed of what the clients send
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measure a server with a number of clients: echo, HTTP, Redis, or any
/// protocol of requests and replies
#[derive(Args, Debug)]
#[command(after_help = BRIEF, after_long_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    kind: Option<Kind>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    common: CommonArgs,
    /// Messages in flight per connection; at most 64 MiB of them
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=MAX_PIPELINE as u64))]
    pipeline: u64,
    /// A connection per message: connect, send, receive, close; and the
    /// average, p99 and totals of that
    #[arg(long, conflicts_with_all = ["pipeline", "rate", "think", "duration", "warm_up"])]
    per_connection: bool,
    /// Connections in total, with --per-connection [default: as many as clients]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_CONNECTIONS as u64))]
    connections: Option<u64>,
    #[command(flatten)]
    engine: engine::EngineArgs,
    #[command(flatten)]
    output: recorded::OutputArgs,
    /// How long a client waits for the next byte before it fails
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = duration::parse)]
    reply_timeout: Duration,
    /// How long a connect may take
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = duration::parse)]
    connect_timeout: Duration,
    /// The driver of the clients: auto, uring or epoll
    #[arg(long, default_value = "auto")]
    driver: DriverChoice,
    #[command(flatten)]
    protocol: ProtocolArgs,
}

pub(crate) fn run(args: LoadArgs) -> Result<ExitCode> {
    match args.kind {
        Some(Kind::Udp(args)) => return datagrams::run(*args),
        Some(Kind::Compare(args)) => return compare::run(args),
        Some(Kind::Page(args)) => return page::run(args),
        None => {}
    }
    let Parsed { plan, search, json, options } = parse(args)?;
    let output = options.open(json.as_ref())?;
    carry_out(plan, search, json, output)
}

/// A load of connections, as options say.
struct Parsed {
    plan: Plan,
    search: Option<RateSearch>,
    json: Option<Target>,
    options: recorded::OutputArgs,
}

/// Checks options, and resolves the address.
fn parse(args: LoadArgs) -> Result<Parsed> {
    check_recording(&args)?;
    let (workload, has_length) = (workload(&args)?, args.workload.has_length());
    let search = args.workload.search(args.common.duration);
    let schedule = args.workload.schedule()?;
    let length = args.workload.length();
    let (target, unix_socket) = args.target.into_parts();
    let (protocol, tls) = args.protocol.resolve(&target)?;
    let of_echo = [("--length", has_length), ("--per-connection", args.per_connection)];
    only_for_echo(&protocol, &of_echo)?;
    let mut plan = args.common.plan(length, workload, target.resolve(unix_socket)?);
    args.output.set(&mut plan);
    (plan.reply_timeout, plan.connect_timeout) = (args.reply_timeout, args.connect_timeout);
    (plan.protocol, plan.tls) = (protocol, tls);
    plan.schedule = schedule;
    let (json, options) = (args.common.json, args.output);
    Ok(Parsed { plan, search, json, options })
}

/// The command with an `-h` of the options without a heading, which are those that any load may need.
pub(crate) fn with_brief_help(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| {
        let is_special = arg.get_help_heading().is_some();
        arg.hide_short_help(is_special)
    })
}

/// The plan of a command line of `annulus load`, without those two words.
///
/// # Errors
/// For options that `annulus load` refuses, and for those that say more than how to load a server.
pub(crate) fn plan_of(words: &[String]) -> Result<Plan> {
    let line = words.join(" ");
    let command = LoadArgs::augment_args(clap::Command::new("load").no_binary_name(true));
    let matches = command.try_get_matches_from(words);
    let refused = |error: clap::Error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        UsageError(format!("'{line}': {}", first.trim_start_matches("error: ")))
    };
    let matches = matches.map_err(refused)?;
    let of_comparison = ["number", "duration", "warm_up", "pipeline"];
    let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    if let Some(id) = of_comparison.iter().find(|id| is_given(id)) {
        let option = id.replace('_', "-");
        return Err(
            UsageError(format!("'{line}': the comparison says --{option}: leave it out")).into()
        );
    }
    let args = LoadArgs::from_arg_matches(&matches).map_err(refused)?;
    let Parsed { plan, search, json, options, .. } = parse(args)?;
    let given = options
        .given()
        .into_iter()
        .chain([("--find-rate", search.is_some()), ("--json", json.is_some())]);
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(UsageError(format!("'{line}': {option} is for annulus load alone: leave it out"))
                .into())
        }
        None => Ok(plan),
    }
}

/// Refuses options of recordings for a search, which leaves none.
fn check_recording(args: &LoadArgs) -> Result<(), UsageError> {
    let mut options = args.output.given().into_iter();
    match options.find(|(_, given)| *given && args.workload.is_search()) {
        Some((option, _)) => Err(UsageError(format!(
            "{option} is for runs that are recorded, and --find-rate is not: leave one of them out"
        ))),
        None => Ok(()),
    }
}

/// The workload of connections.
fn workload(args: &LoadArgs) -> Result<Workload, UsageError> {
    let of_per_connection = [("--connections", args.connections.is_some())];
    only_with("--per-connection", args.per_connection, &of_per_connection)?;
    if !args.per_connection {
        let (pipeline, driver) = (args.pipeline as usize, args.driver);
        let mut streams = Streams { pipeline, driver, ..Streams::default() };
        args.engine.set(&mut streams);
        return Ok(streams.into());
    }
    let driver = args.driver;
    let connections = args.connections.map(|count| count as usize);
    let threads = args.engine.threads.unwrap_or(1) as usize;
    Ok(PerConnection { connections, threads, driver }.into())
}

impl CommonArgs {
    /// The plan of these options, and the usual of others.
    fn plan(&self, length: usize, workload: impl Into<Workload>, address: ServerAddress) -> Plan {
        Plan {
            clients: self.number as usize,
            length,
            warm_up: self.warm_up,
            duration: self.duration.unwrap_or(workload::DURATION),
            pin: self.pin,
            seed: self.seed,
            ..Plan::new(address, workload)
        }
    }
}

/// Runs a load: opens the file of results, measures, prints, writes the recording, and decides the exit status.
fn carry_out(
    plan: Plan,
    search: Option<RateSearch>,
    json: Option<Target>,
    output: Output,
) -> Result<ExitCode> {
    let json = json.map(Target::open).transpose()?;
    let mut watch = Watch::new(output)?;
    if let Some(search) = search {
        return find_rate::run(json, &plan, &search, &mut watch);
    }
    let mut recording = annulus_load::run(&plan, &mut watch).map_err(classify)?;
    let Watch { stop, mut output, .. } = watch;
    output.complete(&mut recording);
    output.write_page(&recording)?;
    let has_figures = recording.seconds > 0.0 && !output.takes_stdout();
    let text = has_figures.then(|| summary::of(&recording));
    output::deliver_with(json, |writer| recording.write(writer), text)?;
    exit_status(&recording, &stop, output.finish())
}

fn classify(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Plan(error) => UsageError(error.to_string()).into(),
        other => other.into(),
    }
}

/// The exit status. An interrupted run exits as after its signal. A run with errors, without any response, of which every reply is a
/// refusal, or whose logs lack something, fails.
fn exit_status(recording: &Recording, stop: &Stop, logs: Result<()>) -> Result<ExitCode> {
    if let Some((signal, status)) = stop.reason().filter(|_| recording.interrupted) {
        note(format_args!(
            "annulus: interrupted by {signal}: the results are of a part of the run"
        ));
        return Ok(status);
    }
    let Recording { run: RunInfo { address, protocol, .. }, errors, first_error, .. } = recording;
    if !errors.is_empty() {
        let kinds: Vec<_> = errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let first = first_error.as_deref().unwrap_or_default();
        bail!("errors at {address}: {} ({first})", kinds.join(", "));
    }
    if recording.summary().responses == 0 {
        bail!(
            "no response came from {address} within the measured time: measure for longer (--duration), or check \
             that a server of {protocol} listens there"
        );
    }
    if let Some(replies) = recording.only_refusals() {
        let first = recording.first_refusal.as_deref().unwrap_or("no text");
        bail!(
            "every reply from {address} is a refusal ({replies}; {first}): check what is asked for"
        );
    }
    logs.map(|()| ExitCode::SUCCESS)
}

/// Shows progress if standard error is a terminal, and ends the run when a signal comes.
struct Watch {
    live: Live,
    stop: Stop,
    output: Output,
}

impl Watch {
    fn new(output: Output) -> Result<Watch> {
        let live = Live::new();
        let stop = Stop::install(&[SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
        Ok(Watch { live, stop, output })
    }
}

impl Observer for Watch {
    fn window_opened(&mut self) {
        self.output.start();
    }

    fn interval(&mut self, interval: &Interval) {
        self.output.write(interval);
        self.live.interval(interval);
    }

    fn window_closed(&mut self) {
        self.live.finish();
    }

    fn is_interrupted(&self) -> bool {
        self.stop.has_come()
    }

    fn progress(&mut self, progress: Progress) {
        self.live.progress(progress);
    }
}
