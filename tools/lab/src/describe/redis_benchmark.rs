//! The output of `redis-benchmark`, for stores that speak the Redis protocol. With `-e` it prints
//! the errors that it receives; from version 7 on it ends at the first error.

use crate::bench::Sample;

pub(super) const PROGRAM: &str = "redis-benchmark";

/// The start of a line with a received error. The program prints at most one per second.
const ERROR_PREFIX: &str = "Error from server";

/// Reads a table such as the one below. Every request was answered, because the program waits for
/// all answers.
///
/// ```text
/// "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
/// "GET key:0","98039.22","0.262","0.088","0.255","0.359","0.503","1.471"
/// ```
pub(super) fn sample(printed: &str, requests: u64) -> Option<Sample> {
    let mut rows = printed.lines().filter(|line| line.starts_with('"')).map(fields);
    let (titles, values) = (rows.next()?, rows.next()?);
    let number = |title: &str| -> Option<f64> {
        values.get(titles.iter().position(|known| *known == title)?)?.parse().ok()
    };
    let micros = |title| number(title).map(|millis| millis * 1e3);
    let errors = printed.lines().filter(|line| line.starts_with(ERROR_PREFIX)).count();
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
    const PRINTED: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
        \"p99_latency_ms\",\"max_latency_ms\"\n\"GET key:0\",\"50000.00\",\"0.262\",\"0.088\",\"0.255\",\"0.359\",\"0.503\",\"1.471\"\n";

    #[test]
    fn numbers_are_read_from_the_output() {
        let sample = super::sample(PRINTED, 100_000).expect("no sample was read");
        let names = ["operations", "ns", "mean_us", "p50_us", "p99_us", "errors"];
        let numbers = names.map(|name| sample.get(name).expect(name));
        assert_eq!(numbers, [100_000.0, 2e9, 262.0, 255.0, 503.0, 0.0]);
        let failed = format!("Error from server: no\n{PRINTED}");
        assert_eq!(super::sample(&failed, 1).expect("no sample was read").get("errors"), Some(1.0));
        assert_eq!(super::sample("\"test\",\"rps\"\n", 1), None);
    }
}
