//! Expressions that find the numbers in the outputs of known clients.

/// Expressions for the line that the lab's script prints in wrk, after wrk's own output.
const WRK_SCRIPT: &[&str] = &[
    r"requests=(?m)^measured (\d+)",
    r"time_us=(?m)^measured \d+ (\d+)",
    r"mean_us=(?m)^measured \d+ \d+ ([\d.]+)",
    r"p50_us=(?m)^measured \d+ \d+ \S+ (\d+)",
    r"p99_us=(?m)^measured \d+ \d+ \S+ \d+ (\d+)",
    r"p99.9_us=(?m)^measured \d+ \d+ \S+ \d+ \d+ (\d+)",
    r"errors=(?m)^measured \d+ \d+ \S+ \d+ \d+ \d+ (\d+)",
    r"refused=(?m)^measured \d+ \d+ \S+ \d+ \d+ \d+ \d+ (\d+)",
];

/// Expressions for wrk's own output. wrk2, whose program is also called wrk, prints percentiles such
/// as `99.000%`.
const WRK: &[&str] = &[
    r"requests=(?m)^\s*(\d+) requests in ",
    r"rate=(?m)^Requests/sec:\s+([\d.]+)",
    r"mean=(?m)^\s+Latency\s+([\d.]+[a-z]+)",
    r"p50=(?m)^\s+50(?:\.000)?%\s+([\d.]+[a-z]+)",
    r"p99=(?m)^\s+99(?:\.000)?%\s+([\d.]+[a-z]+)",
    r"p99.9=(?m)^\s+99\.900%\s+([\d.]+[a-z]+)",
    r"refused=Non-2xx or 3xx responses: (\d+)",
    r"errors=Socket errors: connect (\d+)",
    r"errors=Socket errors: .*read (\d+)",
    r"errors=Socket errors: .*write (\d+)",
    r"errors=Socket errors: .*timeout (\d+)",
];

/// Expressions for h2load, which prints no percentiles.
const H2LOAD: &[&str] = &[
    r"rate=(?m)^finished in [^,]+, ([\d.]+) req/s",
    r"requests=(\d+) succeeded",
    r"errors=(\d+) errored",
    r"refused=(\d+) 4xx",
    r"refused=(\d+) 5xx",
    r"errors=(\d+) timeout",
    r"mean=(?m)^time for request:\s+\S+\s+\S+\s+(\S+)",
];

/// Expressions for hey, and for oha, which prints the same format. Requests that oha aborts at its
/// end are part of its rate, but neither failures nor replies.
const HEY: &[&str] = &[
    r"rate=Requests/sec:\s+([\d.]+)",
    r"time=(?m)^\s+Total:\s+([\d.]+ \w+)",
    r"mean=(?m)^\s+Average:\s+([\d.]+ \w+)",
    r"p50=(?m)^\s+50(?:\.00)?% in ([\d.]+ \w+)",
    r"p99=(?m)^\s+99(?:\.00)?% in ([\d.]+ \w+)",
    r"p99.9=(?m)^\s+99\.90?% in ([\d.]+ \w+)",
    r"refused=\[[45]\d\d\]\s+(\d+) responses",
    r"errors=(?m)^\s+\[(\d+)\]\s+(?:[A-Zb-z]|a[^b])",
    r"aborted=(?m)^\s+\[(\d+)\] aborted due to deadline",
];

/// Expressions for ab, whose percentiles are whole milliseconds.
const AB: &[&str] = &[
    r"requests=(?m)^Complete requests:\s+(\d+)",
    r"rate=(?m)^Requests per second:\s+([\d.]+)",
    r"mean_ms=(?m)^Time per request:\s+([\d.]+) \[ms\] \(mean\)",
    r"p50_ms=(?m)^\s+50%\s+(\d+)",
    r"p99_ms=(?m)^\s+99%\s+(\d+)",
    r"errors=(?m)^Failed requests:\s+(\d+)",
    r"refused=(?m)^Non-2xx responses:\s+(\d+)",
];

/// Expressions for `annulus load --json -`, which exits with 0 despite warnings, and with 1 after
/// failures. Failures and refusals are those of the whole run, which precede all lists, because
/// each interval and each kind of request has its own.
const ANNULUS: &[&str] = &[
    r#"requests="responses":(\d+)"#,
    r#"rate="requests_per_second":([\d.]+)"#,
    r#"errors="format":"annulus-load"[^\[]*?"failed":(\d+)"#,
    r#"refused="format":"annulus-load"[^\[]*?"refused":(\d+)"#,
    r#"mean_us="latency_us":\{[^}]*"mean":([\d.]+)"#,
    r#"p50_us="latency_us":\{[^}]*"p50":([\d.]+)"#,
    r#"p99_us="latency_us":\{[^}]*"p99":([\d.]+)"#,
    r#"p99.9_us="latency_us":\{[^}]*"p99\.9":([\d.]+)"#,
];

/// Expressions for `gcannon --json`.
const GCANNON: &[&str] = &[
    r#"requests="responses": (\d+)"#,
    r#"rate="rps": ([\d.]+)"#,
    r#"refused="4xx": (\d+)"#,
    r#"refused="5xx": (\d+)"#,
    r#"errors="(?:connect|read|timeout)": (\d+)"#,
    r#"mean_us="avg": (\d+)"#,
    r#"p50_us="p50": (\d+)"#,
    r#"p99_us="p99": (\d+)"#,
    r#"p99.9_us="p999": (\d+)"#,
];

/// The clients with known output, by name, with their expressions. If there are several lists, the
/// first one that finds a number of requests or a rate counts.
pub(super) const KNOWN_CLIENTS: [(&str, &[&[&str]]); 7] = [
    ("wrk", &[WRK_SCRIPT, WRK]),
    ("h2load", &[H2LOAD]),
    ("hey", &[HEY]),
    ("oha", &[HEY]),
    ("ab", &[AB]),
    ("annulus", &[ANNULUS]),
    ("gcannon", &[GCANNON]),
];
