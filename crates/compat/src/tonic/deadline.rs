//! The header `grpc-timeout`, which says how long a call may take.

use crate::OnThread;
use annulus::time::{Sleep, sleep};
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::Status;

pub(super) const TIMEOUT_HEADER: &str = "grpc-timeout";

/// The header's units with their length in nanoseconds, finest first.
const TIMEOUT_UNITS: [(char, u64); 6] = [
    ('n', 1),
    ('u', 1_000),
    ('m', 1_000_000),
    ('S', 1_000_000_000),
    ('M', 60 * 1_000_000_000),
    ('H', 3600 * 1_000_000_000),
];

/// The largest number that fits into the header's eight digits.
const MAX_TIMEOUT_COUNT: u128 = 99_999_999;

#[derive(Debug)]
pub(super) struct Deadline {
    sleep: OnThread<Sleep>,
    limit: Duration,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self { sleep: OnThread::new(sleep(limit)), limit }
    }

    /// Completes at the deadline with the status `DEADLINE_EXCEEDED`.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let over = Pin::new(&mut self.sleep).poll(cx);
        over.map(|()| Status::deadline_exceeded(format!("not finished within {:?}", self.limit)))
    }
}

/// Returns the time that a request's `grpc-timeout` header allows; `None` without the header.
///
/// # Errors
/// Fails with the call's status if the header is invalid.
pub(super) fn allowed(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(TIMEOUT_HEADER) else { return Ok(None) };
    let read = value.to_str().ok().and_then(duration);
    read.map(Some).ok_or_else(|| {
        Status::invalid_argument(format!(
            "{TIMEOUT_HEADER} {value:?}: expected one to eight digits and a unit (H, M, S, m, u or n)"
        ))
    })
}

fn duration(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let (_, nanos) = TIMEOUT_UNITS.iter().find(|(name, _)| *name == unit)?;
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u32 = digits.parse().ok()?;
    Some(Duration::from_nanos(*nanos) * count)
}

/// Formats a limit for the header, in the finest unit in which it fits into eight digits, rounded
/// up.
pub(super) fn header(limit: Duration) -> HeaderValue {
    let count = |nanos: u64| limit.as_nanos().div_ceil(u128::from(nanos));
    let unit = TIMEOUT_UNITS.iter().find(|(_, nanos)| count(*nanos) <= MAX_TIMEOUT_COUNT);
    let text = match unit {
        Some((name, nanos)) => format!("{}{name}", count(*nanos)),
        None => format!("{MAX_TIMEOUT_COUNT}H"),
    };
    HeaderValue::try_from(text).expect("digits and a unit are not a valid header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<Option<Duration>, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(TIMEOUT_HEADER, HeaderValue::from_static(text));
        allowed(&headers)
    }

    #[test]
    fn timeout_headers_are_parsed() {
        assert_eq!(allowed(&HeaderMap::new()).unwrap(), None);
        for (text, nanos) in
            [("1n", 1), ("20u", 20_000), ("3m", 3_000_000), ("4S", 4_000_000_000), ("0S", 0)]
        {
            assert_eq!(read(text).unwrap(), Some(Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(read("5M").unwrap(), Some(Duration::from_secs(300)));
        assert_eq!(read("99999999H").unwrap(), Some(Duration::from_secs(3600) * 99_999_999));
        for text in ["", "S", "5", "5s", "-1S", "+1S", "1.5S", "123456789S", "1 S", "S5"] {
            let status = read(text).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{text}");
            assert!(status.message().contains(&format!("{text:?}")), "{status}");
        }
    }

    #[test]
    fn limits_are_rounded_up_in_the_header() {
        for (limit, text) in [
            (Duration::ZERO, "0n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_001), "100001u"),
            (Duration::from_secs(5), "5000000u"),
            (Duration::from_secs(3600), "3600000m"),
            (Duration::MAX, "99999999H"),
        ] {
            assert_eq!(header(limit), text);
        }
    }
}
