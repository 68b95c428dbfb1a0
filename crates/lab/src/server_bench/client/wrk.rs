//! `wrk`, for HTTP/1.1, with a script of ours that prints its numbers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::line;
use crate::bench::Sample;
use crate::server_bench::installed::Installed;
use crate::server_bench::load::Load;

pub(super) const PROGRAM: Installed = Installed { program: "wrk", package: "wrk" };

/// What the script prints at the end, before its numbers.
const MARK: &str = "measured";

/// The numbers behind [`MARK`], in order.
const NUMBERS: [&str; 7] =
    ["operations", "us", "mean_us", "p50_us", "p99_us", "p99_9_us", "errors"];

/// The command line that loads a server for `seconds`.
pub(super) fn words(load: &Load, address: &str, seconds: u64, script: PathBuf) -> Vec<OsString> {
    let words = format!("-t1 -c{} -d{seconds} --timeout 10 -s", load.connections);
    line(PROGRAM, &words, [script.into(), load.url(address).into()])
}

/// Writes the script for a load; its path.
pub(super) fn write_script(load: &Load, directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join(format!("{}.lua", load.name));
    fs::write(&path, script(load.depth))?;
    Ok(path)
}

/// Sends `depth` requests at once, and prints numbers at the end.
fn script(depth: u64) -> String {
    let pipelined = format!(
        "init = function(args)\n  all = string.rep(wrk.format(), {depth})\nend\nrequest = function() return all end\n"
    );
    let done = format!(
        "done = function(summary, latency)\n  local e = summary.errors\n  io.write(string.format('{MARK} %d %d %f %d %d %d %d\\n',\n    \
         summary.requests, summary.duration, latency.mean, latency:percentile(50), latency:percentile(99),\n    \
         latency:percentile(99.9), e.connect + e.read + e.write + e.status + e.timeout))\nend\n"
    );
    if depth > 1 { pipelined + &done } else { done }
}

/// The numbers in its output.
pub(super) fn sample(printed: &str) -> Option<Sample> {
    let line = printed.lines().find_map(|line| line.strip_prefix(MARK))?;
    let numbers: Vec<f64> =
        line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let mut sample = Sample::default();
    for (name, number) in NUMBERS.into_iter().zip(&numbers) {
        // wrk's correction for coordinated omission can leave no percentile if requests are pipelined: it prints 0 then.
        if *number > 0.0 || !name.starts_with('p') {
            sample.set(name, *number);
        }
    }
    sample.set("ns", sample.get("us")? * 1e3);
    (numbers.len() == NUMBERS.len()).then_some(sample)
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_read_from_the_output() {
        let printed = "Running 1s test\nmeasured 65000 1003000 812.5 790 1600 2400 0\n";
        let sample = super::sample(printed).expect("a sample");
        let numbers = ["operations", "ns", "mean_us", "p50_us", "p99_us", "p99_9_us"];
        let numbers = numbers.map(|name| sample.get(name).expect(name));
        assert_eq!(numbers, [65000.0, 1.003e9, 812.5, 790.0, 1600.0, 2400.0]);
        let without = super::sample("measured 65000 1003000 812.5 790 0 0 0").expect("a sample");
        assert_eq!((without.get("p50_us"), without.get("p99_us")), (Some(790.0), None));
        assert_eq!(super::sample("measured 65000 1003000 812.5\n"), None);
    }
}
