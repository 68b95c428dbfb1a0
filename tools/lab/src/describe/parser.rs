//! Reads the output of a client with regular expressions. Known clients have built-in expressions.
//! For other clients, the user gives the expressions.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use regex_lite::Regex;

use super::known_clients::KNOWN_CLIENTS;
use super::redis_benchmark;
use crate::bench::{REFUSED_KEY, Sample};
use crate::output::quoted;

/// A reader for the output of a client.
#[derive(Clone, Debug)]
pub struct Parser(ParserKind);

#[derive(Clone, Debug)]
enum ParserKind {
    /// Lists of expressions. The first list that finds a number of requests or a rate counts. If
    /// several expressions of a list are for one number, the first that matches counts, but errors,
    /// aborted requests and refusals are summed.
    Patterns { lists: Vec<Vec<Pattern>>, are_required: bool },
    /// The table that redis-benchmark prints.
    RedisBenchmark,
}

/// An expression for a number in the output.
#[derive(Clone, Debug)]
struct Pattern {
    number: NumberKind,
    /// The factor to µs, for a time without a unit in the output.
    unit: Option<f64>,
    expression: Regex,
    key: String,
}

/// The meaning of a number in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberKind {
    Requests,
    Rate,
    Time,
    /// Requests without a reply, summed over all matches.
    Errors,
    /// Requests that the rate counts although the client aborted them at its end, summed over all
    /// matches.
    Aborted,
    /// Replies that refuse the request, summed over all matches.
    Refused,
    /// A latency, with its name in a sample.
    Latency(&'static str),
}

/// The keys of numbers.
const NUMBER_NAMES: [(&str, NumberKind); 11] = [
    ("requests", NumberKind::Requests),
    ("requests_per_second", NumberKind::Rate),
    ("rate", NumberKind::Rate),
    ("time", NumberKind::Time),
    ("errors", NumberKind::Errors),
    ("aborted", NumberKind::Aborted),
    ("refused", NumberKind::Refused),
    ("mean", NumberKind::Latency("mean_us")),
    ("p50", NumberKind::Latency("p50_us")),
    ("p99", NumberKind::Latency("p99_us")),
    ("p99.9", NumberKind::Latency("p99_9_us")),
];

/// Units of time, and their factors to µs.
const TIME_UNITS: [(&str, f64); 8] = [
    ("ns", 1e-3),
    ("us", 1.0),
    ("µs", 1.0),
    ("ms", 1e3),
    ("s", 1e6),
    ("sec", 1e6),
    ("secs", 1e6),
    ("m", 6e7),
];

/// Returns the name of a program without its directories.
fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl Parser {
    /// Returns the parser for the output of a command line, like [`choose`](Parser::choose). The
    /// client may be an argument of the program, as in `ssh HOST wrk` or `ip netns exec NAME wrk`.
    pub(crate) fn of_command(words: &[String], parse: &[String]) -> Result<Parser> {
        let is_known = |word: &&String| {
            let name = base_name(word);
            let is_client = name == redis_benchmark::PROGRAM
                || KNOWN_CLIENTS.iter().any(|(known, _)| *known == name);
            // The path of a URL names no program.
            is_client && !word.contains("://")
        };
        let program = words.iter().find(is_known).or(words.first());
        Parser::choose(program.map_or("", String::as_str), parse)
    }

    /// Returns the parser for the output of a program: the given expressions, each
    /// `KEY=EXPRESSION`, or without them the built-in ones.
    ///
    /// # Errors
    /// If the program is unknown, an expression is invalid, or none is for the rate or the
    /// requests.
    pub(crate) fn choose(program: &str, parse: &[String]) -> Result<Parser> {
        let name = base_name(program);
        if !parse.is_empty() {
            let patterns = parse_all(parse.iter().map(String::as_str))?;
            return Ok(Parser(ParserKind::Patterns { lists: vec![patterns], are_required: true }));
        }
        if name == redis_benchmark::PROGRAM {
            return Ok(Parser(ParserKind::RedisBenchmark));
        }
        match KNOWN_CLIENTS.iter().find(|(known, _)| *known == name) {
            Some((_, lists)) => {
                let lists = lists.iter().map(|list| parse_all(list.iter().copied()));
                let lists = lists.collect::<Result<_>>()?;
                Ok(Parser(ParserKind::Patterns { lists, are_required: false }))
            }
            None => bail!(
                "the output format of {name} is unknown: add expressions (--parse, or parse in a file), such as \
                 'rate=([0-9.]+) requests per second' and 'p99=p99 ([0-9.]+ms)'; known clients: {}, {}",
                KNOWN_CLIENTS.map(|(name, _)| name).join(", "),
                redis_benchmark::PROGRAM
            ),
        }
    }

    /// Returns true if [`sample`](Self::sample) needs the requested number, because it neither
    /// reads the number of requests from the output nor computes it.
    pub(crate) fn needs_requests(&self) -> bool {
        matches!(self.0, ParserKind::RedisBenchmark)
    }

    /// Returns the sample in an output: `operations`, `ns`, `errors`, refused requests and
    /// latencies. `requests` is the requested number, if known; `took` is how long the client ran.
    ///
    /// # Errors
    /// If the output cannot be read; the error quotes its last line.
    pub(crate) fn sample(
        &self,
        printed: &str,
        requests: Option<u64>,
        took: Duration,
    ) -> Result<Sample, String> {
        let unreadable = || {
            let last = printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("(empty)");
            format!("cannot be read; its last line: {}", quoted(last))
        };
        match &self.0 {
            ParserKind::RedisBenchmark => {
                redis_benchmark::sample(printed, requests.unwrap_or_default())
                    .ok_or_else(unreadable)
            }
            ParserKind::Patterns { lists, are_required } => {
                for patterns in lists {
                    let found = FoundNumbers::of(patterns, printed, *are_required);
                    let found = found.map_err(|why| {
                        format!("is not as expected ({why}) and {}", unreadable())
                    })?;
                    if let Some(sample) = found.sample(took) {
                        return Ok(sample);
                    }
                }
                Err(unreadable())
            }
        }
    }
}

/// Parses the expressions of a list, of which one must be for the rate or the requests.
fn parse_all<'a>(all: impl Iterator<Item = &'a str>) -> Result<Vec<Pattern>> {
    let patterns = all.map(Pattern::parse).collect::<Result<Vec<_>>>()?;
    let has = |number| patterns.iter().any(|pattern| pattern.number == number);
    ensure!(
        has(NumberKind::Rate) || has(NumberKind::Requests),
        "no expression for rate or requests: add one, such as 'rate=([0-9.]+) requests per second'"
    );
    Ok(patterns)
}

/// The numbers found in an output.
#[derive(Default)]
struct FoundNumbers {
    requests: Option<f64>,
    /// Requests per second.
    rate: Option<f64>,
    /// The time of the run in µs.
    time: Option<f64>,
    errors: f64,
    aborted: f64,
    refused: f64,
    latencies: Vec<(&'static str, f64)>,
}

impl FoundNumbers {
    fn of(patterns: &[Pattern], printed: &str, are_required: bool) -> Result<FoundNumbers> {
        let mut found = FoundNumbers::default();
        for pattern in patterns {
            let mut numbers = pattern.numbers(printed);
            if let NumberKind::Errors | NumberKind::Aborted | NumberKind::Refused = pattern.number {
                found.set(pattern.number, numbers.sum::<Result<f64>>()?);
                continue;
            }
            match numbers.next().transpose()? {
                Some(number) => found.set(pattern.number, number),
                None => ensure!(!are_required, "{} is not found", pattern.key),
            }
        }
        Ok(found)
    }

    /// Sets a number unless it is already set. Errors, aborted requests and refusals are summed.
    fn set(&mut self, what: NumberKind, number: f64) {
        match what {
            NumberKind::Requests => self.requests = self.requests.or(Some(number)),
            NumberKind::Rate => self.rate = self.rate.or(Some(number)),
            NumberKind::Time => self.time = self.time.or(Some(number)),
            NumberKind::Errors => self.errors += number,
            NumberKind::Aborted => self.aborted += number,
            NumberKind::Refused => self.refused += number,
            NumberKind::Latency(name) if self.latencies.iter().all(|(known, _)| *known != name) => {
                self.latencies.push((name, number));
            }
            NumberKind::Latency(_) => {}
        }
    }

    /// Computes the sample. A missing number of requests follows from the rate and the time. If the
    /// output has a number of requests and a rate, the time follows from them; otherwise a missing
    /// time is replaced by the duration of the client's run.
    fn sample(&self, took: Duration) -> Option<Sample> {
        let took_us = self.time.unwrap_or(took.as_secs_f64() * 1e6);
        let (operations, us) = match (self.requests, self.rate) {
            (Some(requests), Some(rate)) if rate > 0.0 => (requests, requests / rate * 1e6),
            (Some(requests), _) => (requests, took_us),
            (None, rate) => (((rate? * took_us / 1e6).round() - self.aborted).max(0.0), took_us),
        };
        let mut sample = Sample::from([
            ("operations", operations),
            ("ns", us * 1e3),
            ("errors", self.errors),
            (REFUSED_KEY, self.refused),
        ]);
        for (name, number) in &self.latencies {
            // If requests are pipelined, wrk's correction for coordinated omission can leave no
            // percentiles, and wrk prints 0. Percentiles in whole ms can also be 0.
            if *number > 0.0 {
                sample.set(name, *number);
            }
        }
        Some(sample)
    }
}

impl Pattern {
    /// Parses `KEY=EXPRESSION`, where the only group is the number. A time may have its unit after
    /// the number, or else after the key, as in `p99_ms`.
    fn parse(text: &str) -> Result<Pattern> {
        let (key, expression) = text.split_once('=').ok_or_else(|| {
            anyhow!("'{text}' has no '=': write KEY=EXPRESSION, such as 'rate=([0-9.]+) requests per second'")
        })?;
        let (name, unit) = TIME_UNITS
            .iter()
            .find_map(|(unit, factor)| {
                Some((key.strip_suffix(unit)?.strip_suffix('_')?, Some(*factor)))
            })
            .unwrap_or((key, None));
        let number =
            NUMBER_NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        let Some(number) = number else {
            let known = NUMBER_NAMES.map(|(name, _)| name).join(", ");
            bail!(
                "unknown key '{key}': known keys are {known}, and times with a unit, such as p99_ms"
            );
        };
        let expression = Regex::new(expression).map_err(|why| anyhow!("'{text}': {why}"))?;
        let groups = expression.captures_len() - 1;
        ensure!(
            groups == 1,
            "'{text}' has {groups} groups: put the number, and nothing else, in parentheses"
        );
        Ok(Pattern { number, unit, expression, key: key.to_owned() })
    }

    /// Returns the numbers in an output, times in µs.
    fn numbers<'a>(&'a self, printed: &'a str) -> impl Iterator<Item = Result<f64>> + 'a {
        self.expression.captures_iter(printed).map(move |captures| {
            let text = captures.get(1).map_or("", |group| group.as_str());
            self.number(text)
                .ok_or_else(|| anyhow!("{self}: '{text}' is not a number{}", self.hint()))
        })
    }

    fn number(&self, text: &str) -> Option<f64> {
        let (number, rest) = split_number(text.trim())?;
        let rest = rest.trim();
        if !matches!(self.number, NumberKind::Time | NumberKind::Latency(_)) {
            return rest.is_empty().then_some(number);
        }
        let factor = match rest {
            "" => self.unit?,
            unit => TIME_UNITS.iter().find(|(known, _)| *known == unit)?.1,
        };
        Some(number * factor)
    }

    /// Returns advice for a time without a unit.
    fn hint(&self) -> &'static str {
        match self.number {
            NumberKind::Time | NumberKind::Latency(_) if self.unit.is_none() => {
                " with a unit: include the unit in the group, or add one to the key, such as p99_ms"
            }
            _ => "",
        }
    }
}

/// Returns the number at the start of a text, and the rest. Commas separate thousands if at most
/// three digits precede the first one and three follow each; otherwise, a comma separates decimals.
fn split_number(text: &str) -> Option<(f64, &str)> {
    static LEADING_NUMBER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^\d[\d.,]*(?:[eE][+-]?\d+)?").expect("the constant expression is invalid")
    });
    let found = LEADING_NUMBER.find(text)?.as_str();
    let whole = found.split('.').next().unwrap_or(found);
    let groups: Vec<&str> = whole.split(',').collect();
    let are_thousands = groups[0].len() <= 3 && groups[1..].iter().all(|group| group.len() == 3);
    let plain = match found.contains(',') {
        true if are_thousands => found.replace(',', ""),
        true => found.replacen(',', ".", 1),
        false => found.to_owned(),
    };
    Some((plain.parse().ok()?, &text[found.len()..]))
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use annulus_load::recording::{ClassInterval, Interval, Recording, RunInfo};

    use super::*;

    const RUN_TIME: Duration = Duration::from_secs(2);

    fn read(program: &str, printed: &str) -> Result<Sample, String> {
        Parser::choose(program, &[])
            .expect("the client has no parser")
            .sample(printed, None, RUN_TIME)
    }

    #[track_caller]
    fn assert_numbers(sample: &Sample, expected: &[(&str, f64)]) {
        for (name, number) in expected {
            let found = sample.get(name).unwrap_or_else(|| panic!("no {name} in {sample:?}"));
            assert!((found / number - 1.0).abs() < 1e-6 || found == *number, "{name}: {found}");
        }
    }

    #[test]
    fn the_client_is_found_in_the_arguments_of_another_program() {
        let parser = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Parser::of_command(&words, &[]).map(|parser| format!("{parser:?}"))
        };
        for client in ["wrk", "redis-benchmark"] {
            let alone = parser(&format!("{client} -c1 a:1")).expect("the client has no parser");
            for before in ["ssh -p 22 load1 /usr/bin/", "ip netns exec name ", "env A=1 nice "] {
                let inner = parser(&format!("{before}{client} -c1 a:1"));
                assert_eq!(inner.expect("the client was not found"), alone, "{before}");
            }
        }
        for unknown in ["ssh load1 other http://a:1/", "ssh load1 other http://a:1/wrk"] {
            let error = parser(unknown).expect_err("an unknown client").to_string();
            assert!(error.contains("the output format of ssh is unknown"), "{error}");
        }
    }

    #[test]
    fn output_of_our_wrk_script_is_read() {
        let printed = "Running 1s test\nmeasured 65000 1003000 812.5 790 1600 2400 0\n";
        let numbers = [
            ("operations", 65000.0),
            ("ns", 1.003e9),
            ("mean_us", 812.5),
            ("p50_us", 790.0),
            ("p99_us", 1600.0),
            ("p99_9_us", 2400.0),
            ("errors", 0.0),
        ];
        assert_numbers(&read("wrk", printed).expect("no sample was read"), &numbers);
        let without =
            read("wrk", "measured 65000 1003000 812.5 790 0 0 3").expect("no sample was read");
        assert_eq!((without.get("p99_us"), without.get("errors")), (None, Some(3.0)));
    }

    #[test]
    fn plain_wrk_output_is_read() {
        let printed = "Running 1s test @ http://127.0.0.1:1/\n  1 threads and 50 connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
            Latency   812.50us  100.00us   3.00ms   90.00%\n    Req/Sec    65.00k     1.00k   66.00k    70.00%\n  Latency Distribution\n     \
            50%  790.00us\n     75%    1.10ms\n     99%    1.60ms\n  65000 requests in 1.00s, 9.00MB read\n  \
            Socket errors: connect 0, read 1, write 2, timeout 3\n  Non-2xx or 3xx responses: 4\nRequests/sec:  64000.00\nTransfer/sec:      9.00MB\n";
        let numbers = [
            ("operations", 65000.0),
            ("ns", 65.0 / 64.0 * 1e9),
            ("mean_us", 812.5),
            ("p50_us", 790.0),
            ("p99_us", 1600.0),
            ("errors", 6.0),
            ("refused", 4.0),
        ];
        assert_numbers(&read("/usr/bin/wrk", printed).expect("no sample was read"), &numbers);
    }

    #[test]
    fn percentiles_of_wrk2_are_read() {
        let printed = "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency     0.90ms    1.00ms   9.00ms   90.00%\n  \
            Latency Distribution (HdrHistogram - Recorded Latency)\n 50.000%    0.85ms\n 75.000%    1.10ms\n 90.000%    1.30ms\n \
            99.000%    2.50ms\n 99.900%    7.25ms\n 99.990%    9.00ms\n  10000 requests in 2.00s, 9.00MB read\nRequests/sec:   5000.00\n";
        let numbers = [("p50_us", 850.0), ("p99_us", 2500.0), ("p99_9_us", 7250.0)];
        assert_numbers(&read("wrk", printed).expect("no sample was read"), &numbers);
    }

    #[test]
    fn h2load_hey_oha_and_ab_output_is_read() {
        let h2load = "finished in 2.00s, 50000.00 req/s, 4.24MB/s\n\
            requests: 101000 total, 101000 started, 100000 done, 100000 succeeded, 7 failed, 5 errored, 1 timeout\n\
            status codes: 100000 2xx, 0 3xx, 1 4xx, 1 5xx\n\
            time for request:      403us     20.51ms     15.81ms      2.16ms    72.30%\n";
        let numbers = [
            ("operations", 1e5),
            ("ns", 2e9),
            ("mean_us", 15_810.0),
            ("errors", 6.0),
            ("refused", 2.0),
        ];
        assert_numbers(&read("h2load", h2load).expect("no sample was read"), &numbers);
        let hey = "Summary:\n  Total:\t2.0000 secs\n  Slowest:\t0.0100 secs\n  Average:\t0.0012 secs\n  Requests/sec:\t5000.0000\n\n\
            Latency distribution:\n  50% in 0.0011 secs\n  99% in 0.0030 secs\n\nStatus code distribution:\n  [200]\t9990 responses\n  \
            [503]\t10 responses\n\nError distribution:\n  [3]\tGet \"http://127.0.0.1:1/\": refused\n";
        let numbers = [
            ("operations", 1e4),
            ("ns", 2e9),
            ("mean_us", 1200.0),
            ("p50_us", 1100.0),
            ("p99_us", 3000.0),
            ("errors", 3.0),
            ("refused", 10.0),
        ];
        assert_numbers(&read("hey", hey).expect("no sample was read"), &numbers);
        let oha = "Summary:\n  Success rate:\t100.00%\n  Total:\t2000.0 ms\n  Average:\t1.2 ms\n  Requests/sec:\t5000.0\n\n\
            Response time distribution:\n  50.00% in 1.1 ms\n  99.00% in 3.0 ms\n  99.90% in 4.0 ms\n\nStatus code distribution:\n  [200] 9990 responses\n\n\
            Error distribution:\n  [10] aborted due to deadline\n  [2] connection refused\n";
        let numbers = [
            ("operations", 9990.0),
            ("p50_us", 1100.0),
            ("p99_us", 3000.0),
            ("p99_9_us", 4000.0),
            ("errors", 2.0),
        ];
        assert_numbers(&read("oha", oha).expect("no sample was read"), &numbers);
        let ab = "Time taken for tests:   2.000 seconds\nComplete requests:      10000\nFailed requests:        1\nNon-2xx responses:      2\n\
            Requests per second:    5000.00 [#/sec] (mean)\nTime per request:       10.000 [ms] (mean)\n\
            Time per request:       0.200 [ms] (mean, across all concurrent requests)\n\n  50%      9\n  99%     20\n 100%     30 (longest request)\n";
        let numbers = [
            ("operations", 1e4),
            ("ns", 2e9),
            ("mean_us", 10_000.0),
            ("p50_us", 9000.0),
            ("p99_us", 20_000.0),
            ("errors", 1.0),
            ("refused", 2.0),
        ];
        assert_numbers(&read("ab", ab).expect("no sample was read"), &numbers);
    }

    /// wrk prints errors and refusals itself, and the lab's script prints them again.
    #[test]
    fn errors_and_refusals_that_an_output_repeats_count_once() {
        let wrk = "Socket errors: connect 0, read 1, write 2, timeout 3\n  Non-2xx or 3xx responses: 40\n\
            Requests/sec:  64000.00\nmeasured 65 1003000 812.5 790 1600 2400 6 40\n";
        let numbers = [("operations", 65.0), ("errors", 6.0), ("refused", 40.0)];
        assert_numbers(&read("wrk", wrk).expect("no sample was read"), &numbers);
        let class = || ClassInterval { answered: 50, refused: 40, ..ClassInterval::default() };
        let interval = |start| Interval {
            answered: 100,
            refused: 80,
            failed: 3,
            classes: vec![class(), class()],
            ..Interval::new(start, 1.0)
        };
        let recording = Recording {
            seconds: 2.0,
            classes: vec!["GET /a".into(), "GET /b".into()],
            intervals: vec![interval(0.0), interval(1.0)],
            ..Recording::new(RunInfo::default())
        };
        let mut printed = b"a warning\n".to_vec();
        recording.write(&mut printed).expect("the recording cannot be written");
        let printed = String::from_utf8(printed).expect("the recording is not text");
        let numbers = [("operations", 200.0), ("errors", 6.0), ("refused", 160.0)];
        assert_numbers(&read("annulus", &printed).expect("no sample was read"), &numbers);
    }

    #[test]
    fn output_of_other_programs_is_read_by_expressions() {
        let parse = [
            "requests_per_second=did ([0-9,]+) a second",
            "p99=p99 is ([0-9.]+ ?[a-z]+)",
            "mean_ms=mean ([0-9.]+)",
            "errors=bad: ([0-9]+)",
        ];
        let parser =
            Parser::choose("some", &parse.map(str::to_owned)).expect("the expressions are invalid");
        let printed = "did 1,500 a second\np99 is 3 ms, mean 1.5\n";
        let sample = parser.sample(printed, None, RUN_TIME).expect("no sample was read");
        assert_numbers(
            &sample,
            &[
                ("operations", 3000.0),
                ("ns", 2e9),
                ("p99_us", 3000.0),
                ("mean_us", 1500.0),
                ("errors", 0.0),
            ],
        );
        let error = parser
            .sample("did 5 a second\nso it was\n", None, RUN_TIME)
            .expect_err("an output without p99 was read");
        assert!(error.contains("p99 is not found") && error.contains("so it was"), "{error}");
        let error = parser
            .sample(&printed.replace("3 ms", "3 fortnights"), None, RUN_TIME)
            .expect_err("an unknown unit was accepted");
        assert!(error.contains("'3 fortnights' is not a number"), "{error}");
    }

    /// Programs print numbers in the format of their users' locale.
    #[test]
    fn split_number_reads_thousands_decimals_and_exponents() {
        for (text, number, rest) in [
            ("1,500 x", 1500.0, " x"),
            ("1,234,567.5", 1_234_567.5, ""),
            ("1,5 ms", 1.5, " ms"),
            ("12,25s", 12.25, "s"),
            ("1.2e-05", 1.2e-5, ""),
            ("3E2us", 300.0, "us"),
            ("7", 7.0, ""),
        ] {
            assert_eq!(split_number(text), Some((number, rest)), "{text}");
        }
        assert!(["", "ms", ",5", "1,2,3,4.5.6"].iter().all(|text| split_number(text).is_none()));
    }

    #[test]
    fn an_unreadable_output_is_quoted() {
        for program in ["wrk", "h2load", "hey", "ab", "redis-benchmark"] {
            let error = read(program, "so much\nunable to connect\n\n").expect_err(program);
            assert_eq!(error, "cannot be read; its last line: unable to connect");
            assert_eq!(
                read(program, "").expect_err(program),
                "cannot be read; its last line: (empty)"
            );
        }
    }

    #[test]
    fn invalid_expressions_are_refused() {
        for (text, part) in [
            ("rate", "write KEY=EXPRESSION"),
            ("speed=(.*)", "unknown key 'speed': known keys are requests, "),
            ("rate=(", "'rate=(': "),
            ("rate=.*", "'rate=.*' has 0 groups"),
            ("rate=(a)(b)", "has 2 groups"),
            ("p99_ms=(.*)", "no expression for rate or requests"),
        ] {
            let error = Parser::choose("some", &[text.to_owned()]).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
        let parser = Parser::choose("some", &["rate=(.*)".into(), "p99=p99 (.*)".into()])
            .expect("the expressions are invalid");
        let error = parser
            .sample("5\np99 3\n", None, RUN_TIME)
            .expect_err("a time without a unit was accepted");
        assert!(error.contains("such as p99_ms"), "{error}");
    }
}
