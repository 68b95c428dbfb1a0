//! The head of a request.

use crate::body::Framing;
use crate::refusal::Refusal;
use httparse::{Header, Status};
use std::mem::MaybeUninit;

/// Maximum number of bytes of a head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Maximum number of header lines.
const MAX_HEADERS: usize = 64;

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The sum of the query's values, to which the number in the body is added.
    Sum(i64),
    /// The text `ok`.
    Ok,
    /// The number of bytes of the body, of which this many have arrived.
    Upload { bytes: usize },
    /// The first items of the dataset, with totals multiplied by the factor.
    Json { count: usize, factor: i64 },
    /// Nothing that exists. The connection continues after the body.
    Refused(Refusal),
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) target: Target,
    pub(crate) framing: Framing,
    pub(crate) has_body: bool,
    pub(crate) keep_alive: bool,
    /// Whether the client waits for a `100 Continue` before it sends the body.
    pub(crate) is_patient: bool,
}

impl Request {
    /// Parses a head. Returns the request and the length of the head, or `None` if it is
    /// incomplete. An error ends the connection, since the rest cannot be parsed either.
    pub(crate) fn parse(received: &[u8]) -> Result<Option<(Self, usize)>, Refusal> {
        let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut head = httparse::Request::new(&mut []);
        // What may be a head does not depend on how it arrives: in pieces, or with further bytes.
        let shown = &received[..received.len().min(MAX_HEAD_BYTES)];
        let length = match head.parse_with_uninit_headers(shown, &mut lines) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if shown.len() < MAX_HEAD_BYTES => return Ok(None),
            Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(Refusal::HEAD_TOO_LARGE);
            }
            Err(_) => return Err(Refusal::BAD_REQUEST),
        };
        let (Some(method), Some(path), Some(version)) = (head.method, head.path, head.version)
        else {
            return Err(Refusal::BAD_REQUEST);
        };
        let mut request = Self {
            target: target(method, path),
            framing: Framing::Length(0),
            has_body: false,
            keep_alive: version == 1,
            is_patient: false,
        };
        let hosts = request.read_headers(head.headers)?;
        // A client of HTTP/1.0 would take `100 Continue` for the answer (RFC 9110, 10.1.1).
        request.is_patient &= version == 1;
        let is_one_host = hosts == 1 || hosts == 0 && version == 0;
        let is_chunked = request.framing == Framing::Chunk;
        if !is_one_host || is_chunked && version == 0 {
            return Err(Refusal::BAD_REQUEST);
        }
        Ok(Some((request, length)))
    }

    /// Returns the number of `Host` headers.
    fn read_headers(&mut self, headers: &[Header<'_>]) -> Result<usize, Refusal> {
        let mut hosts = 0;
        for header in headers {
            let is = |known: &str| header.name.eq_ignore_ascii_case(known);
            if is("host") {
                hosts += 1;
            } else if is("content-length") {
                let digits = str::from_utf8(header.value).unwrap_or_default();
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                let length = digits.parse().ok().filter(|_| is_number);
                self.set_framing(Framing::Length(length.ok_or(Refusal::BAD_REQUEST)?))?;
            } else if is("transfer-encoding") {
                if !header.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::NOT_IMPLEMENTED);
                }
                self.set_framing(Framing::Chunk)?;
            } else if is("connection") {
                let mut options = header.value.split(|byte| *byte == b',');
                self.keep_alive &=
                    !options.any(|it| it.trim_ascii().eq_ignore_ascii_case(b"close"));
            } else if is("expect") {
                self.is_patient = header.value.eq_ignore_ascii_case(b"100-continue");
            }
        }
        Ok(hosts)
    }

    /// Refuses a second framing: a proxy might choose the other one, and take a part of the body
    /// for a request.
    fn set_framing(&mut self, framing: Framing) -> Result<(), Refusal> {
        if self.has_body {
            return Err(Refusal::BAD_REQUEST);
        }
        (self.framing, self.has_body) = (framing, true);
        Ok(())
    }
}

fn target(method: &str, target: &str) -> Target {
    let target = without_host(target);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match (path, method) {
        ("/baseline11", "GET" | "POST") => Target::Sum(sum(query)),
        ("/pipeline", "GET") => Target::Ok,
        ("/upload", "POST") => Target::Upload { bytes: 0 },
        ("/baseline11" | "/pipeline" | "/upload", _) => {
            Target::Refused(Refusal::METHOD_NOT_ALLOWED)
        }
        _ => match path.strip_prefix("/json/").and_then(|count| count.parse().ok()) {
            Some(count) if method == "GET" => Target::Json { count, factor: sum(query) },
            Some(_) => Target::Refused(Refusal::METHOD_NOT_ALLOWED),
            None => Target::Refused(Refusal::NOT_FOUND),
        },
    }
}

/// Returns a target without the scheme and the host that it may have (RFC 9112, 3.2.2).
fn without_host(target: &str) -> &str {
    match target.split_once("://") {
        Some((scheme, rest)) if !target.starts_with('/') && !scheme.contains('?') => {
            rest.find(['/', '?']).map_or("/", |begin| &rest[begin..])
        }
        _ => target,
    }
}

/// Adds the integers in a query such as `a=13&b=42`.
fn sum(query: &str) -> i64 {
    let values = query.split('&').filter_map(|pair| pair.split_once('=')?.1.parse().ok());
    values.fold(0, i64::wrapping_add)
}
