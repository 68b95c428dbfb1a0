//! The protocols of stream clients.

use crate::exchange::http::{Http, HttpRequest};
use crate::exchange::script::Script;
use crate::invalid::InvalidValue;
use crate::mix::DataRows;
use crate::recording::MAX_CLASSES;
use std::sync::Arc;

/// The protocol of [`Workload::Streams`](crate::Workload::Streams): what clients send, and which
/// replies they expect.
///
/// ```no_run
/// use annulus_load::{Http, Plan, Protocol, Streams, run};
///
/// let mut plan = Plan::new("127.0.0.1:8080".parse().unwrap(), Streams::default());
/// plan.protocol = Protocol::Http(Http::new("127.0.0.1:8080", "/index.html"));
/// let recording = run(&plan, &mut ()).unwrap();
/// println!("{}", recording.summary().responses);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Protocol {
    /// Messages of the plan's length, which the server sends back unchanged. Every byte is
    /// verified.
    #[default]
    Echo,
    /// HTTP/1.1, pipelined if more than one request is in flight.
    Http(Http),
    /// HTTP/2, with prior knowledge, or negotiated by ALPN over TLS. Each request has its own
    /// stream.
    Http2(Http),
    /// Requests written by the user.
    Script(Script),
}

impl Protocol {
    /// Returns the name of the protocol in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::Echo => "echo",
            Protocol::Http(_) => "HTTP/1.1",
            Protocol::Http2(_) => "HTTP/2",
            Protocol::Script(_) => "script",
        }
    }

    /// Returns the names of its kinds of requests, in the order of its mix.
    pub fn classes(&self) -> Vec<String> {
        match self {
            Protocol::Echo => Vec::new(),
            Protocol::Http(http) | Protocol::Http2(http) => {
                http.requests.entries().iter().map(HttpRequest::name).collect()
            }
            Protocol::Script(script) => {
                (1..=script.requests.entries().len()).map(|n| format!("request {n}")).collect()
            }
        }
    }

    /// Returns the kinds of requests that are recorded separately: none if there is only one, or if
    /// there are more than [`MAX_CLASSES`].
    pub fn recorded_classes(&self) -> Vec<String> {
        let classes = self.classes();
        if (2..=MAX_CLASSES).contains(&classes.len()) { classes } else { Vec::new() }
    }

    /// Returns true if each request says that it is the last one on its connection.
    pub(crate) fn closes_connections(&self) -> bool {
        matches!(self, Protocol::Http(http) if http.closes_connection())
    }

    pub(crate) fn data(&self) -> Option<&Arc<DataRows>> {
        match self {
            Protocol::Echo => None,
            Protocol::Http(http) | Protocol::Http2(http) => http.data.as_ref(),
            Protocol::Script(script) => script.data.as_ref(),
        }
    }

    pub(crate) fn has_cookies(&self) -> bool {
        matches!(self, Protocol::Http(http) | Protocol::Http2(http) if http.cookies)
    }

    /// Returns the protocol names for the TLS handshake (ALPN).
    pub(crate) fn alpn(&self) -> &'static [&'static str] {
        match self {
            Protocol::Http(_) => &["http/1.1"],
            Protocol::Http2(_) => &["h2"],
            Protocol::Echo | Protocol::Script(_) => &[],
        }
    }

    /// Checks that each request can be sent.
    pub(crate) fn validate(&self) -> Result<(), InvalidValue> {
        match self {
            Protocol::Echo => Ok(()),
            Protocol::Http(http) => http.validate(),
            Protocol::Http2(http) => http.validate_http2(),
            Protocol::Script(script) => script.validate(),
        }
    }
}
