//! `redis-benchmark`, for stores that speak the Redis protocol.

use std::ffi::OsString;

use annulus_load::Observer;

use super::{line, run_program};
use crate::bench::{Sample, rate};
use crate::server_bench::installed::Installed;
use crate::server_bench::load::Load;

pub(super) const PROGRAM: Installed =
    Installed { program: "redis-benchmark", package: "redis-tools" };

/// Requests that tell how many there are in a slice, for each that is in flight on a connection.
const PROBE: u64 = 1000;

/// More requests a second than there can be: a run that is too short to be timed has infinitely many.
const MOST_RATE: f64 = 1e8;

/// The values that are in every store: `key:0` and so on, of which requests name some.
const KEYS: u32 = 10;

/// How it prints an error that it has received; at most one a second.
const ERROR: &str = "Error from server";

/// Its number of requests is given, not its time. So a short run comes first, behind one that sets the values.
pub(super) fn run(
    load: &Load,
    address: &str,
    seconds: u64,
    observer: &mut dyn Observer,
) -> Result<Sample, String> {
    let run = |load: &Load, command: &str, requests: u64, observer: &mut dyn Observer| {
        let words = words(load, address, requests, command);
        run_program(words, &|printed| sample(printed, requests), observer)
    };
    run(&Load { connections: 1, depth: 1, ..*load }, &values(), 1, &mut ())?;
    let least = PROBE * load.depth;
    let probe = run(load, load.request, least, &mut ())?;
    let rate = rate().of.of(&probe).unwrap_or_default().min(MOST_RATE);
    run(load, load.request, least.max((rate * seconds as f64) as u64), observer)
}

/// The command that sets every value.
fn values() -> String {
    (0..KEYS).fold("MSET".into(), |command, key| format!("{command} key:{key} VXK"))
}

/// The command line for so many requests of a command. With `-e` it prints errors that
/// it receives; from version 7 on it ends at the first.
fn words(load: &Load, address: &str, requests: u64, command: &str) -> Vec<OsString> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let Load { connections, depth, .. } = load;
    let words =
        format!("-h {host} -p {port} -c {connections} -P {depth} -n {requests} -e --csv {command}");
    line(PROGRAM, &words, [])
}

/// Reads a table such as this. Every request was answered: it waits for the answers.
///
/// ```text
/// "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
/// "GET key:0","98039.22","0.262","0.088","0.255","0.359","0.503","1.471"
/// ```
fn sample(printed: &str, requests: u64) -> Option<Sample> {
    let mut rows = printed.lines().filter(|line| line.starts_with('"')).map(fields);
    let (titles, values) = (rows.next()?, rows.next()?);
    let number = |title: &str| -> Option<f64> {
        values.get(titles.iter().position(|known| *known == title)?)?.parse().ok()
    };
    let micros = |title| number(title).map(|millis| millis * 1e3);
    let errors = printed.lines().filter(|line| line.starts_with(ERROR)).count();
    Some(Sample::from([
        ("operations", requests as f64),
        ("ns", requests as f64 / number("rps")? * 1e9),
        ("mean_us", micros("avg_latency_ms")?),
        ("p50_us", micros("p50_latency_ms")?),
        ("p99_us", micros("p99_latency_ms")?),
        ("errors", errors as f64),
    ]))
}

fn fields(line: &str) -> Vec<&str> {
    line.trim_matches('"').split("\",\"").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_bench::client::Client;

    const PRINTED: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
        \"p99_latency_ms\",\"max_latency_ms\"\n\"GET key:0\",\"50000.00\",\"0.262\",\"0.088\",\"0.255\",\"0.359\",\"0.503\",\"1.471\"\n";

    #[test]
    fn numbers_are_read_from_the_output() {
        let sample = super::sample(PRINTED, 100_000).expect("a sample");
        let names = ["operations", "ns", "mean_us", "p50_us", "p99_us", "errors"];
        let numbers = names.map(|name| sample.get(name).expect(name));
        assert_eq!(numbers, [100_000.0, 2e9, 262.0, 255.0, 503.0, 0.0]);
        let failed = format!("Error from server: no\n{PRINTED}");
        assert_eq!(super::sample(&failed, 1).expect("a sample").get("errors"), Some(1.0));
        assert_eq!(super::sample("\"test\",\"rps\"\n", 1), None);
    }

    #[test]
    fn a_command_is_words_behind_the_options() {
        let load = Load {
            name: "get",
            client: Client::RedisBenchmark,
            service: "",
            request: "GET key:0",
            bytes: 0,
            connections: 50,
            depth: 16,
            rate: None,
        };
        let words = words(&load, "127.0.0.1:6379", 1000, load.request);
        let expected =
            "redis-benchmark -h 127.0.0.1 -p 6379 -c 50 -P 16 -n 1000 -e --csv GET key:0";
        assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
        assert!(
            values().starts_with("MSET key:0 VXK key:1 VXK ") && values().ends_with("key:9 VXK")
        );
    }
}
