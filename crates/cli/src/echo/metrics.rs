//! `--metrics`: the stats of all workers over HTTP, served by the first of them.
//!
//! A request is answered and its connection closed. The head of a request, the time it may take and the number of connections are
//! limited, so that a client can neither hold memory nor keep others out for long.

use super::ask::ask_all;
use super::{Listen, Plan};
use annulus::Handle;
use annulus::net::{ConnectionLimit, ListenOptions, TcpListener, TcpStream};
use annulus::shards::Shard;
use annulus::stats::{Stats, prometheus};
use annulus::time;
use anyhow::{Context, Result};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Descriptors: the listener, and its connections.
pub(super) const FILES: usize = 1 + CONNECTIONS;

/// Most connections at once; further ones wait in the backlog.
const CONNECTIONS: usize = 16;
/// How long a connection may take, from the request to its close.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of the head of a request.
const HEAD: usize = 8 * 1024;
/// Most bytes after the head that are read and discarded, so that the answer is not lost with them.
const REST: usize = 64 * 1024;

/// Listens at the first available address.
pub(super) fn open(plan: &Plan, listen: &Listen) -> Result<(TcpListener, String)> {
    let options = ListenOptions::new().limit(&ConnectionLimit::new(CONNECTIONS));
    let listener = options.bind(listen.addresses.as_slice());
    let listener = listener.map_err(|error| plan.cannot_listen(&listen.endpoint, error));
    let listener = listener.context("--metrics")?;
    let address = listener.local_addr().context("cannot read the address of --metrics")?;
    Ok((listener, format!("http://{address}/metrics")))
}

/// Answers requests. Ends only by failing.
pub(super) async fn serve(listener: TcpListener, shard: Shard) -> io::Result<()> {
    let handles: Arc<[Handle]> = shard.handles().into();
    loop {
        let (stream, _) = listener.accept().await?;
        let handles = Arc::clone(&handles);
        drop(annulus::spawn(async move {
            // A client that fails or is slow is disconnected.
            _ = time::timeout(TIMEOUT, answer(stream, &handles)).await;
        }));
    }
}

async fn answer(mut stream: TcpStream, handles: &[Handle]) -> io::Result<()> {
    let Some(head) = read_head(&mut stream).await? else { return Ok(()) };
    let request = head.as_deref().map_or(Err(Refusal::TOO_LARGE), Request::parse);
    let response = match request {
        Ok(Request { has_body }) => ok(&metrics(handles).await, has_body),
        Err(refusal) => refusal.response(),
    };
    stream.send(response).await?;
    stream.shutdown().await?;
    let mut rest = 0;
    while rest < REST
        && let Some(lease) = stream.recv().await?
    {
        rest += lease.len();
    }
    Ok(())
}

/// The head of a request, without the empty line at its end; an error if it is too large. `None` if the client ends before.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Result<String, ()>>> {
    let mut head = Vec::new();
    while let Some(lease) = stream.recv().await? {
        // The end may lie on both sides of a boundary.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&lease);
        if let Some(end) = head[from..].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            head.truncate(from + end);
            return Ok(Some(Ok(String::from_utf8_lossy(&head).into_owned())));
        }
        if head.len() > HEAD {
            return Ok(Some(Err(())));
        }
    }
    Ok(None)
}

/// A request for the metrics.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    has_body: bool,
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: &'static str,
    text: &'static str,
    header: &'static str,
}

impl Refusal {
    const MALFORMED: Self = Self {
        status: "400 Bad Request",
        text: "this is no HTTP/1 request; send GET /metrics HTTP/1.1",
        header: "",
    };
    const UNKNOWN: Self =
        Self { status: "404 Not Found", text: "there is only /metrics", header: "" };
    const METHOD: Self = Self {
        status: "405 Method Not Allowed",
        text: "only GET and HEAD are answered",
        header: "Allow: GET, HEAD\r\n",
    };
    const TOO_LARGE: Self = Self {
        status: "431 Request Header Fields Too Large",
        text: "the head of a request has at most 8192 bytes",
        header: "",
    };

    fn response(&self) -> Vec<u8> {
        let Self { status, text, header } = self;
        let len = text.len() + 1;
        format!(
            "HTTP/1.1 {status}\r\n{header}Content-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {len}\r\nConnection: close\r\n\r\n{text}\n"
        )
        .into()
    }
}

impl Request {
    fn parse(head: &str) -> Result<Self, Refusal> {
        let line = head.split("\r\n").next().unwrap_or_default();
        let words: Vec<&str> = line.split(' ').collect();
        let [method, target, version] = words[..] else { return Err(Refusal::MALFORMED) };
        if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
            return Err(Refusal::MALFORMED);
        }
        if !["GET", "HEAD"].contains(&method) {
            return Err(Refusal::METHOD);
        }
        if target.split('?').next() != Some("/metrics") {
            return Err(Refusal::UNKNOWN);
        }
        Ok(Self { has_body: method == "GET" })
    }
}

fn ok(text: &str, has_body: bool) -> Vec<u8> {
    let len = text.len();
    let body = if has_body { text } else { "" };
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {len}\r\nConnection: close\r\n\r\n{body}"
    )
    .into()
}

/// The stats of the workers that answer in time, and which do.
async fn metrics(handles: &[Handle]) -> String {
    let answers = ask_all(handles, Handle::stats).await.into_iter().enumerate();
    let stats = |(worker, answer): (usize, Result<io::Result<Stats>, _>)| {
        (worker.to_string(), answer.ok().and_then(Result::ok))
    };
    let answers: Vec<(String, Option<Stats>)> = answers.map(stats).collect();
    let up = answers.iter().map(|(worker, stats)| {
        format!("annulus_up{{shard=\"{worker}\"}} {}\n", u8::from(stats.is_some()))
    });
    let up: String = up.collect();
    let stats = answers.iter().filter_map(|(worker, stats)| Some((&**worker, stats.as_ref()?)));
    let text = prometheus(stats);
    format!(
        "# HELP annulus_up Whether the worker's loop answers.\n# TYPE annulus_up gauge\n{up}{text}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_the_metrics_are_told_from_others() {
        let cases = [
            ("GET /metrics HTTP/1.1\r\nHost: a", Ok(Request { has_body: true })),
            ("GET /metrics?x=/ HTTP/1.0", Ok(Request { has_body: true })),
            ("HEAD /metrics HTTP/1.1", Ok(Request { has_body: false })),
            ("GET / HTTP/1.1", Err(Refusal::UNKNOWN)),
            ("GET /metricsx HTTP/1.1", Err(Refusal::UNKNOWN)),
            ("POST /metrics HTTP/1.1", Err(Refusal::METHOD)),
            ("GET /metrics HTTP/2", Err(Refusal::MALFORMED)),
            ("GET /metrics", Err(Refusal::MALFORMED)),
            ("GET  /metrics HTTP/1.1", Err(Refusal::MALFORMED)),
            ("\u{fffd}\u{fffd}", Err(Refusal::MALFORMED)),
            ("", Err(Refusal::MALFORMED)),
        ];
        for (head, expected) in cases {
            assert_eq!(Request::parse(head), expected, "{head}");
        }
    }
}
