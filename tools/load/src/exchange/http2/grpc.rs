//! Replies, and the statuses that gRPC sends in their trailers.

use http::{HeaderMap, StatusCode};
use std::fmt;

/// The start of the content type of gRPC.
const CONTENT_TYPE: &[u8] = b"application/grpc";
/// The status that is recorded for a reply without a status that gRPC defines.
const UNKNOWN: u8 = 2;
/// The highest status that gRPC defines.
const LAST: u8 = 16;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct StreamReply {
    pub(super) status: u16,
    /// `None` for a successful call, for replies that are not gRPC, and for a status other than
    /// 200.
    pub(super) failure: Option<Box<GrpcFailure>>,
}

/// A gRPC status other than 0 (OK).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GrpcFailure {
    /// From 1 to 16. Any other status is recorded as 2 (UNKNOWN).
    pub(super) code: u8,
    /// The text of `grpc-status`, if the server sent it.
    status: Option<String>,
    message: String,
}

impl fmt::Display for GrpcFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.status {
            Some(status) => write!(f, "gRPC status {status}")?,
            None => write!(f, "gRPC reply without grpc-status")?,
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl StreamReply {
    /// Creates a reply from its status, headers and trailers. A gRPC server that fails before it
    /// has anything to send puts its status in the headers.
    pub(super) fn new(
        status: StatusCode,
        headers: &HeaderMap,
        trailers: Option<&HeaderMap>,
    ) -> StreamReply {
        let is_grpc = headers
            .get("content-type")
            .is_some_and(|value| value.as_bytes().starts_with(CONTENT_TYPE));
        let failure = (is_grpc && status == StatusCode::OK)
            .then(|| failure(trailers.unwrap_or(headers)))
            .flatten();
        StreamReply { status: status.as_u16(), failure: failure.map(Box::new) }
    }
}

fn failure(headers: &HeaderMap) -> Option<GrpcFailure> {
    let text = |name: &str| {
        headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let status = text("grpc-status");
    let code = status.as_deref().and_then(|status| status.parse().ok());
    if code == Some(0) {
        return None;
    }
    let code = code.filter(|code| *code <= LAST).unwrap_or(UNKNOWN);
    Some(GrpcFailure { code, status, message: text("grpc-message").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn grpc_status_is_read_from_trailers_or_headers() {
        let grpc = ("content-type", "application/grpc+proto");
        let code = |status: u16, head: &[_], trailers: Option<&[_]>| {
            let trailers = trailers.map(headers);
            let status = StatusCode::from_u16(status).unwrap();
            let reply = StreamReply::new(status, &headers(head), trailers.as_ref());
            reply.failure.map(|failure| (failure.code, failure.to_string()))
        };
        assert_eq!(code(200, &[grpc], Some(&[("grpc-status", "0")])), None);
        assert_eq!(code(200, &[], Some(&[("grpc-status", "5")])), None);
        assert_eq!(code(503, &[grpc], None), None);
        let broken = [("grpc-status", "13"), ("grpc-message", "broken")];
        let expected = Some((13, "gRPC status 13: broken".to_owned()));
        assert_eq!(code(200, &[grpc], Some(&broken)), expected);
        assert_eq!(code(200, &[grpc, broken[0], broken[1]], None), expected);
        assert_eq!(code(200, &[grpc], None).unwrap().1, "gRPC reply without grpc-status");
        for status in ["17", "x", "-1", "256"] {
            assert_eq!(code(200, &[grpc], Some(&[("grpc-status", status)])).unwrap().0, UNKNOWN);
        }
    }
}
