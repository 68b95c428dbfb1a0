//! `annulus bench programs`: whole programs side by side, under clients.

use super::args::Pins;
use super::run::{OutputArgs, compare, peers};
use crate::load::plan_of;
use annulus_lab::bench::{Plan, Rounds};
use annulus_lab::server_bench::{Comparison, PRECISE, START_TIMEOUT, Setup};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

const EXPLAIN: &str = "\
Starts every server, pinned to one core, and keeps all running; each is
started anew every few rounds. A client (wrk, h2load, redis-benchmark, our own
load) runs on another core and loads them in turn, round after round. The
first server runs a second time as a control: it must be equal to itself. A
server that is not installed is a dash, with the package to install.

CPU time is that of the server and of what it has started: under our load
while all are connected, else over the whole run of the client, connecting and
closing included. Requests and latency are those that the client reports.
System calls are counted by perf, in one further slice of each server under
each load.

A CPU ratio is a server's CPU time per request over the baseline's, taken
within each round: the median, with its 95 % interval.

Comparison http: hyper 1 on runtimes, with the same handler and the same
  settings
  servers  tokio (baseline), uring, epoll (ours), guest (ours inside tokio,
           tasks of tokio), guest-tasks (the same, tasks of ours), monoio,
           compio
  loads    plain (50 connections), plain-500, plain-1, 16k (bodies of 16 KiB),
           pipelined (16 deep), h2 (100 connections with 10 streams)
Comparison https: the same over TLS by rustls, without monoio and compio
  loads    tls (50 connections), tls-1, tls-16k, tls-h2
Comparison files: static files over HTTP/1.1, from the page cache
  servers  nginx (tools/peers/nginx/tuned.conf; baseline), nginx-sendfile,
           nginx-default, uring and epoll (the example static_files), tokio
           (its twin)
  loads    4k and 64k (50 connections), 1m (10)
Comparison store: the protocol of Redis
  servers  redis-server (tools/peers/redis/tuned.conf; baseline), redis-default,
           uring and epoll (the example redis), tokio (its twin)
  loads    get, get-16, get-64, set, …, mget, … (50 connections; 1, 16 or 64
           deep)
Comparison proxy: TCP, to an echo server on the core of the load
  servers  haproxy (tools/peers/haproxy/tuned.cfg; baseline), haproxy-default, nginx
           (tools/peers/nginx/stream.conf), uring and epoll (the example proxy),
           tokio (its twin), socat
  loads    128b and 16k (50 connections), 1m (10), 128b-1, 128b-1000
Comparison proxy-2: proxies on two threads, and on one; they share all cores
  with the load and the echo server, so the CPU time a request is the figure,
  not the rate
  servers  haproxy (tools/peers/haproxy/two-threads.cfg; baseline), haproxy-1
           (tuned.cfg), uring and epoll (the example proxy with two shards),
           uring-1 (with one)
  loads    128b and 16k (50 connections of a thread that batches)
Comparison overload: proxies at fixed times, one message in flight on each of
  200 connections; latency counts from the time at which a message is due,
  `service` from its send. The echo server is on the core of the proxies, so
  that it is they that can do no more
  loads    rate-50, rate-80, rate-95, rate-120: percent of what the baseline
           passes on if each connection waits for its answers, which is
           measured first

Examples:
  annulus bench programs http                           about 12 minutes
  annulus bench programs https                          about 6 minutes
  annulus bench programs files                          about 5 minutes
  annulus bench programs store                          about 13 minutes
  annulus bench programs proxy                          about 10 minutes
  annulus bench programs http --loads plain --servers tokio,uring --rounds 30
  annulus bench programs http --precision 0.01 --json -";

/// Compare whole programs under load: CPU time a request, requests/s, latency, system calls
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(crate) struct ServerBenchArgs {
    /// The comparison
    #[arg(default_value = "http", value_parser = comparison)]
    comparison: Comparison,
    /// Servers by name [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    servers: Vec<String>,
    /// Loads by name [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    loads: Vec<String>,
    /// How often each server is measured under each load
    #[arg(long, value_name = "COUNT", default_value_t = 12,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// Measure further rounds until half the width of every CPU ratio's interval is at most this, such as 0.03
    #[arg(long, value_name = "RATIO", value_parser = super::echo::precision)]
    precision: Option<f64>,
    /// The most rounds that --precision may take
    #[arg(long, value_name = "COUNT", default_value_t = 60, requires = "precision",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds_max: u64,
    /// How long a slice is measured, in whole seconds
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    pins: Pins,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: ServerBenchArgs) -> Result<ExitCode> {
    let output = (args.output.json.clone(), args.output.verbose);
    let setup = setup(args)?;
    compare(output, || setup.prepare())
}

/// Checks the arguments.
pub(crate) fn setup(args: ServerBenchArgs) -> Result<Setup> {
    Ok(Setup {
        plan: Plan {
            name: format!("programs {}", args.comparison.name),
            rounds: Rounds::precise(args.rounds, args.rounds_max, PRECISE, args.precision),
            seed: args.output.seed,
        },
        comparison: args.comparison.only(&args.servers, &args.loads)?,
        time: Duration::from_secs(args.seconds),
        start_timeout: START_TIMEOUT,
        cores: args.pins.choose()?,
        peers: peers(),
        parse: plan_of,
        is_strict: false,
    })
}

fn comparison(name: &str) -> Result<Comparison, String> {
    let known = || Comparison::names().collect::<Vec<_>>().join(", ");
    Comparison::find(name).ok_or_else(|| format!("there are: {}", known()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::{parsed, refused};

    fn of(line: &str) -> Result<Setup> {
        setup(parsed(line).unwrap())
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        let all = of("").unwrap();
        assert_eq!((all.comparison.contenders.len(), all.comparison.loads.len()), (7, 6));
        let some = of("http --servers uring,tokio --loads h2 --precision 0.01").unwrap();
        let names: Vec<_> =
            some.comparison.contenders.iter().map(|one| one.name.as_str()).collect();
        let load = some.comparison.loads[0].name.as_str();
        assert_eq!((names, load), (vec!["uring", "tokio"], "h2"));
        assert_eq!((some.plan.rounds.least, some.plan.rounds.most), (12, 60));
    }

    #[test]
    fn every_comparison_ends_within_a_quarter_of_an_hour() {
        for name in Comparison::names() {
            let setup = of(name).unwrap();
            let pairs = (setup.comparison.contenders.len() + 1) * setup.comparison.loads.len();
            // A slice in each round, and one to count system calls.
            let slices = pairs * (setup.plan.rounds.least + 1);
            let seconds = setup.cost().as_secs_f64() * slices as f64;
            assert!(seconds <= 15.0 * 60.0, "{name}: {slices} slices");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_known() {
        for (line, part) in [
            ("--servers tokyo", "no server 'tokyo': there are tokio, uring, "),
            ("--servers uring,uring", "server 'uring' is given twice"),
            ("--loads fast", "no load 'fast': there are plain, "),
            ("--server-pin 9999", "--server-pin 9999: this process may use "),
        ] {
            refused(of(line), part);
        }
        let error = parsed::<ServerBenchArgs>("gopher").unwrap_err().to_string();
        assert!(
            error.contains("gopher")
                && error.contains("there are: http, https, files, store, proxy, proxy-2, overload"),
            "{error}"
        );
        for line in ["--seconds 0", "--rounds 0", "--rounds-max 20", "--precision 0"] {
            assert!(parsed::<ServerBenchArgs>(line).is_err(), "{line}");
        }
    }
}
