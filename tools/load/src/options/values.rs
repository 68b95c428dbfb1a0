//! Values as typed on the command line and as written in TOML.

use crate::mix::MAX_MESSAGE_BYTES;
use crate::plan::{MAX_CLIENTS, MAX_DURATION, MAX_EVENT_LOOPS, MAX_PIPELINE};
use crate::schedule::{Arrivals, MAX_BURST_REQUESTS, parse_number, parse_time};
use serde::de::{Deserialize, Deserializer, Error};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// Parses a number of bytes: `128`, `16K`, `4M` or `1G`. Each unit is 1024 times the one before.
///
/// # Errors
/// Fails if the text is not such a number.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("'{text}' is not a number of bytes: write 4096, 16K, 4M or 1G"))
}

/// Parses `10`, `0.5`, `250ms`, `30s`, `2m` or `1.5h`. A number without a unit is in seconds.
///
/// # Errors
/// Fails if the text is not a time, or if it exceeds thirty days.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).map_err(|error| error.to_string())?;
    if time > MAX_DURATION {
        Err(format!("'{text}' is out of range: use 0 to 30 days"))
    } else {
        Ok(time)
    }
}

/// Parses the argument of `-d`, which is the body of a request for curl.
pub(super) fn measured_time(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| format!("{error}; -d is the duration, and -b the body"))
}

/// Parses the argument of `-t`, which is the duration for some other load generators.
pub(super) fn threads(text: &str) -> Result<u16, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_EVENT_LOOPS as u16).contains(count));
    count.ok_or_else(|| {
        format!(
            "'{text}' is not a number of threads from 1 to {MAX_EVENT_LOOPS}; -t is the number of \
             threads, and -d the duration"
        )
    })
}

/// Parses a whole number. The error names `what` and its limits, which `Plan::validate` checks.
fn whole(text: &str, what: &str, [least, most]: [usize; 2]) -> Result<usize, String> {
    let number = text.parse::<usize>().ok();
    number.ok_or_else(|| format!("'{text}' is not a number of {what} from {least} to {most}"))
}

pub(super) fn connections(text: &str) -> Result<usize, String> {
    whole(text, "connections", [1, MAX_CLIENTS])
}

pub(super) fn pipeline(text: &str) -> Result<usize, String> {
    whole(text, "messages in flight", [1, MAX_PIPELINE])
}

pub(super) fn reply_length(text: &str) -> Result<usize, String> {
    whole(text, "bytes", [1, MAX_MESSAGE_BYTES])
}

/// Replaces the names of Rust's number types in an error message of serde.
#[doc(hidden)]
pub fn without_type_names(message: &str) -> String {
    let types = [
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0"),
        ("expected usize", "expected a whole number from 0"),
        ("expected f64", "expected a number"),
    ];
    types.iter().fold(message.to_owned(), |text, (name, words)| text.replace(name, words))
}

/// Parses the number of a CPU.
#[doc(hidden)]
pub fn parse_cpu(text: &str) -> Result<usize, String> {
    let cpu = text.parse().ok();
    cpu.ok_or_else(|| format!("'{text}' is not the number of a CPU: write 0 for the first one"))
}

/// Parses a number of requests: `500`, `10k` or `1.5M`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let number = parse_number(text).map_err(|error| error.to_string())?;
    match number {
        number if number >= 1.0 && number.fract() == 0.0 && number <= MAX_REQUESTS => {
            Ok(number as u64)
        }
        _ => Err(format!(
            "'{text}' is not a number of requests: use a whole number from 1 to {MAX_REQUESTS}"
        )),
    }
}

/// The largest number of requests that a float holds exactly.
const MAX_REQUESTS: f64 = (1_u64 << 53) as f64;

pub(super) fn request_count<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    parsed(deserializer, count).map(Some)
}

/// Parses a number of requests that are due together: `10` on many connections, or `10:one` on one
/// connection.
pub(super) fn parse_burst(text: &str) -> Result<Arrivals, String> {
    let (count, on_one_connection) = match text.strip_suffix(":one") {
        Some(count) => (count, true),
        None => (text, false),
    };
    let requests = count.parse().ok().filter(|count| (1..=MAX_BURST_REQUESTS).contains(count));
    let requests = requests.ok_or_else(|| {
        format!(
            "'{text}' is not a burst: write the number of requests from 1 to {MAX_BURST_REQUESTS}, \
             and :one after it to send them on one connection, such as 10:one"
        )
    })?;
    Ok(Arrivals::Together { requests, on_one_connection })
}

pub(super) fn burst<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arrivals>, D::Error> {
    parsed(deserializer, parse_burst).map(Some)
}

pub(super) fn length(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes if (1..=MAX_MESSAGE_BYTES as u64).contains(&bytes) => Ok(bytes as usize),
        bytes => {
            Err(format!("bytes per message must be from 1 to {MAX_MESSAGE_BYTES}, not {bytes}"))
        }
    }
}

/// A number or a string in TOML, to be parsed as text.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a number, or a string such as \"10k\"")]
enum Scalar {
    Whole(u64),
    Number(f64),
    Text(String),
}

fn parsed<'de, D: Deserializer<'de>, T, E: Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    let text = match Scalar::deserialize(deserializer)? {
        Scalar::Whole(number) => number.to_string(),
        Scalar::Number(number) => number.to_string(),
        Scalar::Text(text) => text,
    };
    parse(&text).map_err(D::Error::custom)
}

pub(super) fn text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    parsed(deserializer, T::from_str)
}

pub(super) fn optional<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    text(deserializer).map(Some)
}

pub(super) fn duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    parsed(deserializer, parse_duration).map(Some)
}

pub(super) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    parsed(deserializer, length).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_bytes_accepts_units() {
        for (text, expected) in
            [("1", 1), ("1000", 1000), ("16K", 16 << 10), ("4m", 4 << 20), ("1G", 1 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "K", "x", "-1", "1.5K", "99999999999G", "18446744073709551616"] {
            let error = parse_bytes(text).unwrap_err();
            assert!(error.contains(&format!("'{text}'")) && error.contains("16K"), "{error}");
        }
    }

    #[test]
    fn parse_duration_accepts_units_and_rejects_over_30_days() {
        for (text, millis) in [
            ("10", 10_000),
            ("0.5", 500),
            ("250ms", 250),
            ("30s", 30_000),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "ten", "1x", "NaN", "-1", "-1s"] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains("write seconds, such as 10"), "{text}: {error}");
        }
        for text in ["1e9", "1000h"] {
            assert!(parse_duration(text).unwrap_err().contains("0 to 30 days"), "{text}");
        }
    }

    #[test]
    fn parse_burst_accepts_a_count_and_one() {
        for (text, requests, on_one_connection) in
            [("5", 5, false), ("1000000:one", 1_000_000, true)]
        {
            let expected = Arrivals::Together { requests, on_one_connection };
            assert_eq!(parse_burst(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "x", "5:two", ":one", "1000001"] {
            let error = parse_burst(text).unwrap_err();
            assert!(error.contains(&format!("'{text}'")) && error.contains("10:one"), "{error}");
        }
    }
}
