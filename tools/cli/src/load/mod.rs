//! `annulus load`: measures how fast a server answers, and verifies every byte.

mod agent;
mod compare;
mod live;
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod parts;
mod summary;

use self::agent::{Agent, AgentOptions};
use self::live::ProgressLine;
use self::metrics::MetricsOptions;
use self::parts::{First, Meeting, PartArgs, follow};
use crate::output::{self, Target, note};
use crate::signals::Stop;
use crate::usage::{UsageError, options_error};
use annulus_load::recording::{Recording, RunInfo};
use annulus_load::{Conditions, LoadError, Options, Plan};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Each connection sends a message, waits for the whole reply, verifies every byte,
and sends the next one. Failures are counted by kind. The exit status is 1
after any failure and after a run without a response. Refusals (status 400 or
above, or a reply other than the expected one) and lost datagrams are results:
the exit status is 1 only if every reply was a refusal, or no echo arrived.

SIGINT, SIGTERM or SIGHUP ends the run, prints the results so far, marked as
interrupted, and exits with 130, 143 or 129; a second signal exits at once.

Response times count from when a request was due, service times from when it was
sent. The book's page on measuring explains the report, open and closed loops,
scenarios, and runs on several machines (--meet).

A FILE.toml has the long options as keys, as well as requests-per-connection,
reconnect, connect-timeout and seed. Relative paths in it are relative to the
current directory, not to the file.

Examples:
  annulus load                             50 connections, 512 bytes, 10 s
  annulus load -c 1000 -l 128 -d 30s       1000 connections, 128 bytes
  annulus load -n 10k -c 20                10,000 requests
  annulus load --rate 20k --pipeline 64    an open loop of 20,000 per second
  annulus load --rate 20k --burst 20       20 at once, on 20 connections
  annulus load udp://127.0.0.1:7000 -l 128 datagrams, with loss and order
  annulus load unix:/run/echo              a Unix socket
  annulus load http://127.0.0.1:8080/index.html
                                           HTTP/1.1; https:// for TLS, --h2
  annulus load http://127.0.0.1:8080 --request '9*/items/{random 1 100}' \\
    --request '1*POST /items id={hex 8}' nine reads per write
  annulus load tcp://127.0.0.1:25 --send 'NOOP\\r\\n' --reply-until '\\n'
  annulus load http://127.0.0.1:8080 --fail-if 'p99<5ms,errors<0.1%'
                                           exit status for checks
  annulus load -d 5 --json - | jq .latency_us
  mpirun -n 4 -x ANNULUS_MEET_TOKEN annulus load 10.0.0.9:7000 --rate 2M \\
    --meet 10.0.0.1:7100                   four machines, 500k per second each";

/// The subcommands for recordings.
#[derive(Debug, Subcommand)]
enum Kind {
    Compare(compare::CompareArgs),
}

/// Measure a server over a number of connections: echo, HTTP, or any protocol
/// of requests and replies
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    kind: Option<Kind>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    parts: PartArgs,
    #[command(flatten)]
    agent: AgentOptions,
    #[command(flatten)]
    metrics: MetricsOptions,
}

/// Where to write the recording of a run.
#[derive(Args, Debug)]
struct OutputArgs {
    /// Write the results as JSON
    ///
    /// To a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// A name for the recording
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Exit with 1 if broken: p99<5ms,errors<1%
    ///
    /// The figures are min, mean, max, p50 and other percentiles, errors (failures and refusals),
    /// failed, refused, unsent and rate. A limit on errors replaces the usual exit status for errors
    #[arg(long, value_name = "LIMITS")]
    fail_if: Option<Conditions>,
}

pub(crate) fn run(args: LoadArgs) -> Result<ExitCode> {
    match args.kind {
        Some(Kind::Compare(args)) => compare::run(args),
        None => {
            let plan = args.options.resolved().and_then(|options| options.plan());
            let mut plan = plan.map_err(options_error)?;
            let meeting = args.parts.meeting()?;
            if let Some(meeting) = &meeting {
                plan.part = meeting.part;
                plan.validate().map_err(|error| UsageError(error.to_string()))?;
            }
            match meeting {
                Some(meeting) if plan.part.index() > 0 => follow(meeting, &plan),
                meeting => {
                    let watchers = (args.agent.connect()?, args.metrics);
                    carry_out(&plan, args.output, meeting, watchers)
                }
            }
        }
    }
}

fn carry_out(
    plan: &Plan,
    output: OutputArgs,
    meeting: Option<Meeting>,
    (agent, metrics): (Option<Agent>, MetricsOptions),
) -> Result<ExitCode> {
    let OutputArgs { json, label, fail_if } = output;
    let json = json.map(Target::open).transpose()?;
    let mut watch = ProgressLine::new(metrics.start()?, agent)?;
    let (mut recording, stopped) = match meeting {
        None => (annulus_load::run(plan, &mut watch).map_err(classify)?, None),
        Some(meeting) => {
            let mut first = First::meet(meeting, plan, &mut watch)?;
            let own = annulus_load::run(plan, &mut first).map_err(classify);
            first.finish(own)?
        }
    };
    (recording.run.command, recording.run.label) = (command(), label);
    watch.agent.take().into_iter().for_each(|agent| agent.add_to(&mut recording));
    let text = (recording.seconds > 0.0).then(|| summary::text(&recording));
    output::deliver_with(json, |writer| recording.write(writer), text)?;
    exit_status(&recording, &watch.stop, stopped.as_deref(), fail_if.as_ref())
}

/// The command line of this process.
fn command() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn classify(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Plan(error) => UsageError(error.to_string()).into(),
        other => other.into(),
    }
}

/// Returns the exit status. An interrupted run exits with the status of its signal. A run fails if
/// another part has `stopped` it or is missing, if it breaks a condition, or if it has no response.
/// Unless the conditions limit errors, it also fails if it has errors, or if every reply is a
/// refusal.
fn exit_status(
    recording: &Recording,
    stop: &Stop,
    stopped: Option<&str>,
    conditions: Option<&Conditions>,
) -> Result<ExitCode> {
    if let Some((signal, status)) = stop.reason().filter(|_| recording.interrupted) {
        note(format_args!(
            "annulus: interrupted by {signal}: the results cover only a part of the run"
        ));
        return Ok(status);
    }
    if let Some(why) = stopped {
        bail!("the run was stopped: {why}");
    }
    if let Some(part) = recording.run.parts.iter().find(|part| part.missing.is_some()) {
        let why = part.missing.as_deref().unwrap_or_default();
        bail!("the results are partial: part {} ({}) is missing: {why}", part.part, part.host);
    }
    let Recording { run: RunInfo { address, protocol, .. }, errors, first_error, .. } = recording;
    let responses = recording.summary().responses;
    let allow_errors = responses > 0 && conditions.is_some_and(Conditions::allow_errors);
    if !errors.is_empty() && !allow_errors {
        let kinds: Vec<_> = errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let first = first_error.as_deref().unwrap_or_default();
        bail!("errors at {address}: {} ({first})", kinds.join(", "));
    }
    if responses == 0 {
        bail!(
            "no response arrived from {address} within the measured time: measure for longer (--duration), or \
             check that a server for {protocol} listens there"
        );
    }
    if let Some(replies) = recording.only_refusals().filter(|_| !allow_errors) {
        let first = recording.first_refusal.as_deref().unwrap_or("no text");
        bail!("every reply from {address} is a refusal ({replies}; {first}): check the request");
    }
    let broken = conditions.map(|conditions| conditions.broken_by(recording)).unwrap_or_default();
    if !broken.is_empty() {
        bail!("the run is not within its limits: {}", broken.join("; "));
    }
    Ok(ExitCode::SUCCESS)
}
