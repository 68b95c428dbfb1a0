//! A minimal HTTP/1 server that answers one request per connection. The size of a request's head
//! and the lifetime of its connection are limited, so that no client holds much memory or blocks
//! other clients for long. Request bodies are discarded.

use annulus::net::{ConnectionLimit, ListenOptions, TcpListener, TcpStream};
use annulus::time;
use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The media type of the Prometheus text format.
pub(crate) const PROMETHEUS_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// How long a connection of a server of metrics may take, from accept to close.
pub(crate) const METRICS_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit on open connections of a listener from [`bind`]. Further connections wait in the
/// backlog. A connection without a request is closed after [`HEAD_TIMEOUT`].
pub(crate) const MAX_CONNECTIONS: usize = 128;
const MAX_HEAD_BYTES: usize = 8 * 1024;
/// How long a client may take to send the head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of bytes read and discarded after the answer. Closing with unread bytes would
/// reset the connection, and the client would lose the answer.
const MAX_DISCARDED_BYTES: usize = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The requested path without its query.
    pub(crate) path: String,
    /// The value of the Host header.
    pub(crate) host: Option<String>,
    /// Whether the answer has a body: false for HEAD.
    has_body: bool,
}

#[derive(Debug)]
pub(crate) struct Answer {
    media_type: &'static str,
    /// Further header lines, each ending with CRLF.
    headers: &'static str,
    body: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: &'static str,
    text: Cow<'static, str>,
    headers: &'static str,
}

/// Listens at the first available address, for [`serve`].
pub(crate) fn bind(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    ListenOptions::new().limit(&ConnectionLimit::new(MAX_CONNECTIONS)).bind(addresses)
}

/// Serves connections concurrently, each for at most `timeout`. Returns only when accepting fails.
pub(crate) async fn serve<F, A>(
    listener: TcpListener,
    timeout: Duration,
    answer: F,
) -> io::Result<()>
where
    F: Fn(Request) -> A + 'static,
    A: Future<Output = Result<Answer, Refusal>> + 'static,
{
    let answer = Rc::new(answer);
    loop {
        let (stream, _) = listener.accept().await?;
        let answer = Rc::clone(&answer);
        drop(annulus::spawn(async move {
            // Errors and timeouts only close this connection.
            _ = time::timeout(timeout, exchange(stream, &*answer)).await;
        }));
    }
}

async fn exchange<A>(mut stream: TcpStream, answer: &impl Fn(Request) -> A) -> io::Result<()>
where
    A: Future<Output = Result<Answer, Refusal>>,
{
    let head = time::timeout(HEAD_TIMEOUT, read_head(&mut stream)).await??;
    let Some(head) = head else { return Ok(()) };
    let response = match head.as_deref().map_or(Err(Refusal::TOO_LARGE), Request::parse) {
        Ok(request) => {
            let has_body = request.has_body;
            answer(request)
                .await
                .map_or_else(|refusal| refusal.response(), |answer| answer.response(has_body))
        }
        Err(refusal) => refusal.response(),
    };
    stream.send(response).await?;
    stream.shutdown().await?;
    let mut rest = 0;
    while rest < MAX_DISCARDED_BYTES
        && let Some(lease) = stream.recv().await?
    {
        rest += lease.len();
    }
    Ok(())
}

/// Reads the head of a request and returns it without the empty line at its end, or `Err` if it is
/// too large. Returns `None` if the client closes the connection first.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Result<String, ()>>> {
    let mut head = Vec::new();
    while let Some(lease) = stream.recv().await? {
        // The end of the head may be split between two receives.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&lease);
        let end = head[from..].windows(4).position(|bytes| bytes == b"\r\n\r\n");
        // The limit applies to the head only, even if more bytes were received with it.
        if end.map_or(head.len(), |end| from + end + 4) > MAX_HEAD_BYTES {
            return Ok(Some(Err(())));
        }
        if let Some(end) = end {
            head.truncate(from + end);
            return Ok(Some(Ok(String::from_utf8_lossy(&head).into_owned())));
        }
    }
    Ok(None)
}

impl Answer {
    pub(crate) fn new(media_type: &'static str, body: String) -> Answer {
        Answer { media_type, headers: "", body }
    }

    /// Sets additional header lines, each ending with CRLF.
    pub(crate) fn with_headers(self, headers: &'static str) -> Answer {
        Answer { headers, ..self }
    }

    fn response(self, has_body: bool) -> Vec<u8> {
        let Answer { media_type, headers, body } = self;
        response("200 OK", headers, media_type, body.len(), if has_body { &body } else { "" })
    }
}

impl Refusal {
    const MALFORMED: Self = Self {
        status: "400 Bad Request",
        text: Cow::Borrowed("this is not an HTTP/1 request; send GET PATH HTTP/1.1"),
        headers: "",
    };
    const METHOD: Self = Self {
        status: "405 Method Not Allowed",
        text: Cow::Borrowed("only GET and HEAD are supported"),
        headers: "Allow: GET, HEAD\r\n",
    };
    const TOO_LARGE: Self = Self {
        status: "431 Request Header Fields Too Large",
        text: Cow::Borrowed("the request line and headers must not exceed 8192 bytes"),
        headers: "",
    };

    /// Creates the refusal for a path at which nothing exists.
    pub(crate) fn unknown(text: &'static str) -> Refusal {
        Refusal { status: "404 Not Found", text: text.into(), headers: "" }
    }

    /// Creates the refusal for a Host header that is not allowed.
    pub(crate) fn forbidden(text: &'static str) -> Refusal {
        Refusal { status: "403 Forbidden", text: text.into(), headers: "" }
    }

    /// Creates the refusal for an answer that could not be produced.
    pub(crate) fn failed(error: &anyhow::Error) -> Refusal {
        let text = format!("{error:#}").into();
        Refusal { status: "500 Internal Server Error", text, headers: "" }
    }

    fn response(&self) -> Vec<u8> {
        let Self { status, text, headers } = self;
        response(status, headers, "text/plain; charset=utf-8", text.len() + 1, &format!("{text}\n"))
    }
}

fn response(status: &str, headers: &str, media_type: &str, length: usize, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Type: {media_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into()
}

impl Request {
    fn parse(head: &str) -> Result<Self, Refusal> {
        let mut lines = head.split("\r\n");
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, version] = words[..] else { return Err(Refusal::MALFORMED) };
        if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
            return Err(Refusal::MALFORMED);
        }
        if !["GET", "HEAD"].contains(&method) {
            return Err(Refusal::METHOD);
        }
        let mut fields = lines.filter_map(|line| line.split_once(':'));
        let host = fields.find(|(name, _)| name.eq_ignore_ascii_case("host"));
        Ok(Self {
            path: target.split('?').next().unwrap_or_default().to_owned(),
            host: host.map(|(_, value)| value.trim().to_owned()),
            has_body: method == "GET",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_right_form_are_parsed_and_others_are_refused() {
        let request = |host: Option<&str>, has_body| {
            Ok(Request { path: "/metrics".into(), host: host.map(str::to_owned), has_body })
        };
        let cases = [
            ("GET /metrics HTTP/1.1\r\nHost: a", request(Some("a"), true)),
            ("GET /metrics HTTP/1.1\r\nA: b\r\nhOST:[::1]:80 ", request(Some("[::1]:80"), true)),
            ("GET /metrics?x=/ HTTP/1.0", request(None, true)),
            ("HEAD /metrics HTTP/1.1", request(None, false)),
            ("POST /metrics HTTP/1.1", Err(Refusal::METHOD)),
            ("GET /metrics HTTP/2", Err(Refusal::MALFORMED)),
            ("GET /metrics", Err(Refusal::MALFORMED)),
            ("GET  /metrics HTTP/1.1", Err(Refusal::MALFORMED)),
            ("GET http://h/metrics HTTP/1.1", Err(Refusal::MALFORMED)),
            ("\u{fffd}\u{fffd}", Err(Refusal::MALFORMED)),
            ("", Err(Refusal::MALFORMED)),
        ];
        for (head, expected) in cases {
            assert_eq!(Request::parse(head), expected, "{head}");
        }
    }
}
