//! The clients: how each is called, and what it prints.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::catalogue::Load;
use crate::bench::Sample;

/// What wrk prints by our script at its end, before its numbers.
const MARK: &str = "measured";

/// The numbers behind [`MARK`], in order.
const NUMBERS: [&str; 6] = ["operations", "us", "mean_us", "p50_us", "p99_us", "errors"];

/// A program that loads servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// `wrk`, for HTTP/1.1; requests are pipelined by a script.
    Wrk,
    /// `h2load`, for HTTP/2.
    H2load,
}

impl Client {
    /// The name of its program.
    fn program(self) -> &'static str {
        match self {
            Client::Wrk => "wrk",
            Client::H2load => "h2load",
        }
    }

    /// Why it cannot be used, if it cannot.
    pub(super) fn missing(self) -> Option<String> {
        let package = match self {
            Client::Wrk => "wrk",
            Client::H2load => "nghttp2-client",
        };
        missing(self.program(), package)
    }

    /// The command line that loads a server for `seconds`. Scripts are written to the directory.
    pub(super) fn command(
        self,
        load: &Load,
        address: &str,
        seconds: u64,
        scripts: &Path,
    ) -> io::Result<Vec<OsString>> {
        let url = format!("{}://{address}{}", load.scheme, load.path);
        let Load { connections, depth, .. } = load;
        let words = match self {
            Client::Wrk => {
                let script = scripts.join(format!("{}.lua", load.name));
                fs::write(&script, wrk_script(*depth))?;
                let words = format!("-t1 -c{connections} -d{seconds} --timeout 10 -s");
                return Ok(line(self, &words, [script.into(), url.into()]));
            }
            Client::H2load => format!("-t1 -c{connections} -m{depth} -D {seconds}"),
        };
        Ok(line(self, &words, [url.into()]))
    }

    /// The sample in its output.
    ///
    /// # Errors
    /// If a request failed, or the output is not what is expected.
    pub(super) fn sample(self, printed: &str) -> Result<Sample, String> {
        let numbers = match self {
            Client::Wrk => of_wrk(printed),
            Client::H2load => of_h2load(printed),
        };
        let Some(sample) = numbers else {
            let last = printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            return Err(format!("the output of {} makes no sense: {last}", self.program()));
        };
        match (sample.get("errors"), sample.get("operations")) {
            (Some(0.0), Some(1.0..)) => Ok(sample),
            (Some(0.0), _) => Err("no request was answered; make the slice longer".into()),
            (errors, _) => Err(format!("{} requests failed", errors.unwrap_or_default())),
        }
    }
}

/// Why a program of a Debian package cannot be used, if it cannot.
pub(super) fn missing(program: &str, package: &str) -> Option<String> {
    // Its status is of no interest: wrk prints its version and fails.
    match Command::new(program).arg("--version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(format!("{program} is not installed: apt-get install {package}"))
        }
        Err(error) => Some(format!("cannot run {program}: {error}")),
        Ok(_) => None,
    }
}

fn line<const N: usize>(client: Client, words: &str, rest: [OsString; N]) -> Vec<OsString> {
    let words = words.split(' ').map(OsString::from);
    [client.program().into()].into_iter().chain(words).chain(rest).collect()
}

/// Sends `depth` requests at once, and prints numbers at the end.
fn wrk_script(depth: u64) -> String {
    let pipelined = format!(
        "init = function(args)\n  all = string.rep(wrk.format(), {depth})\nend\nrequest = function() return all end\n"
    );
    let done = format!(
        "done = function(summary, latency)\n  local e = summary.errors\n  io.write(string.format('{MARK} %d %d %f %d %d %d\\n',\n    \
         summary.requests, summary.duration, latency.mean, latency:percentile(50), latency:percentile(99),\n    \
         e.connect + e.read + e.write + e.status + e.timeout))\nend\n"
    );
    if depth > 1 { pipelined + &done } else { done }
}

fn of_wrk(printed: &str) -> Option<Sample> {
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

/// Reads lines such as these; h2load prints no percentiles.
///
/// ```text
/// finished in 1.00s, 62345.00 req/s, 4.24MB/s
/// requests: 63345 total, 63345 started, 62345 done, 62345 succeeded, 0 failed, 0 errored, 0 timeout
/// time for request:      403us     20.51ms     15.81ms      2.16ms    72.30%
/// ```
fn of_h2load(printed: &str) -> Option<Sample> {
    let after = |start: &str| printed.lines().find_map(|line| line.trim().strip_prefix(start));
    let rate: f64 =
        after("finished in ")?.split(", ").nth(1)?.strip_suffix(" req/s")?.parse().ok()?;
    let requests = after("requests: ")?;
    let count = |what: &str| -> Option<f64> {
        requests.split(", ").find_map(|part| part.strip_suffix(what))?.trim().parse().ok()
    };
    let succeeded = count(" succeeded")?;
    let mean = after("time for request:")?.split_whitespace().nth(2).and_then(micros)?;
    Some(Sample::from([
        ("operations", succeeded),
        ("ns", succeeded / rate * 1e9),
        ("mean_us", mean),
        ("errors", count(" failed")? + count(" timeout")?),
    ]))
}

/// A time such as `403us`, `20.51ms` or `1.02s`, in µs.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (number, scale) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    number.parse::<f64>().ok().map(|number| number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const H2LOAD: &str = "finished in 2.00s, 50000.00 req/s, 4.24MB/s\n\
        requests: 101000 total, 101000 started, 100000 done, 100000 succeeded, 0 failed, 0 errored, 0 timeout\n\
        time for request:      403us     20.51ms     15.81ms      2.16ms    72.30%\n";

    #[test]
    fn numbers_are_read_from_the_output_of_wrk() {
        let printed = "Running 1s test\nmeasured 65000 1003000 812.5 790 1600 0\n";
        let sample = Client::Wrk.sample(printed).expect("a sample");
        let numbers = ["operations", "ns", "mean_us", "p50_us", "p99_us"];
        let numbers = numbers.map(|name| sample.get(name).expect(name));
        assert_eq!(numbers, [65000.0, 1.003e9, 812.5, 790.0, 1600.0]);
        let without = Client::Wrk.sample("measured 65000 1003000 812.5 790 0 0").expect("a sample");
        assert_eq!((without.get("p50_us"), without.get("p99_us")), (Some(790.0), None));
    }

    #[test]
    fn numbers_are_read_from_the_output_of_h2load() {
        let sample = Client::H2load.sample(H2LOAD).expect("a sample");
        let numbers = ["operations", "ns", "mean_us"].map(|name| sample.get(name).expect(name));
        assert_eq!((numbers, sample.get("p99_us")), ([100_000.0, 2e9, 15_810.0], None));
    }

    #[test]
    fn failed_requests_no_requests_and_other_output_are_refused() {
        let failed = Client::Wrk.sample("measured 65000 1003000 812.5 790 1600 3");
        assert_eq!(failed.unwrap_err(), "3 requests failed");
        let failed = Client::H2load.sample(&H2LOAD.replace("0 failed", "7 failed"));
        assert_eq!(failed.unwrap_err(), "7 requests failed");
        let none = Client::Wrk.sample("measured 0 1003000 0.0 0 0 0");
        assert!(none.unwrap_err().starts_with("no request was answered"));
        for client in [Client::Wrk, Client::H2load] {
            let other = client.sample("measured so much\nunable to connect\n").unwrap_err();
            assert!(other.ends_with("makes no sense: unable to connect"), "{other}");
        }
    }

    #[test]
    fn times_have_units() {
        let times = ["403us", "20.51ms", "1.02s", "7", "x"].map(micros);
        assert_eq!(times, [Some(403.0), Some(20_510.0), Some(1.02e6), None, None]);
    }
}
