//! `h2load`, for HTTP/2.

use std::ffi::OsString;

use super::line;
use crate::bench::Sample;
use crate::server_bench::installed::Installed;
use crate::server_bench::load::Load;

pub(super) const PROGRAM: Installed = Installed { program: "h2load", package: "nghttp2-client" };

/// The command line that loads a server for `seconds`.
pub(super) fn words(load: &Load, address: &str, seconds: u64) -> Vec<OsString> {
    let Load { connections, depth, .. } = load;
    let words = format!("-t1 -c{connections} -m{depth} -D {seconds}");
    line(PROGRAM, &words, [load.url(address).into()])
}

/// Reads lines such as these; there are no percentiles.
///
/// ```text
/// finished in 1.00s, 62345.00 req/s, 4.24MB/s
/// requests: 63345 total, 63345 started, 62345 done, 62345 succeeded, 0 failed, 0 errored, 0 timeout
/// time for request:      403us     20.51ms     15.81ms      2.16ms    72.30%
/// ```
pub(super) fn sample(printed: &str) -> Option<Sample> {
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

    const PRINTED: &str = "finished in 2.00s, 50000.00 req/s, 4.24MB/s\n\
        requests: 101000 total, 101000 started, 100000 done, 100000 succeeded, 0 failed, 0 errored, 0 timeout\n\
        time for request:      403us     20.51ms     15.81ms      2.16ms    72.30%\n";

    #[test]
    fn numbers_are_read_from_the_output() {
        let sample = super::sample(PRINTED).expect("a sample");
        let numbers = ["operations", "ns", "mean_us"].map(|name| sample.get(name).expect(name));
        assert_eq!((numbers, sample.get("p99_us")), ([100_000.0, 2e9, 15_810.0], None));
        let failed = super::sample(&PRINTED.replace("0 failed", "7 failed")).expect("a sample");
        assert_eq!((sample.get("errors"), failed.get("errors")), (Some(0.0), Some(7.0)));
    }

    #[test]
    fn times_have_units() {
        let times = ["403us", "20.51ms", "1.02s", "7", "x"].map(micros);
        assert_eq!(times, [Some(403.0), Some(20_510.0), Some(1.02e6), None, None]);
    }
}
