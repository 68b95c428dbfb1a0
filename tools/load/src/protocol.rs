//! The protocols of clients of streams.

use crate::exchange::http::{Http, HttpRequest};
use crate::exchange::script::Script;
use crate::invalid::InvalidValue;
use crate::recording::MAX_CLASSES;

/// The protocol of [`Workload::Streams`](crate::Workload::Streams): what clients send, and which replies they expect.
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
    /// Messages of the plan's length, which come back as they were sent: every byte is verified.
    #[default]
    Echo,
    /// HTTP/1.1. Pipelined, if more than one request is in flight.
    Http(Http),
    /// HTTP/2, without a question (prior knowledge), or by ALPN over TLS. A stream for each request.
    Http2(Http),
    /// Requests that the user wrote.
    Script(Script),
}

impl Protocol {
    /// The name of the protocol, as it stands in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Protocol::Echo => "echo",
            Protocol::Http(_) => "HTTP/1.1",
            Protocol::Http2(_) => "HTTP/2",
            Protocol::Script(_) => "script",
        }
    }

    /// The kinds of its requests, in the order of its mix.
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

    /// The kinds of its requests that are recorded apart: none if there is one only, or if there are more than
    /// [`MAX_CLASSES`](crate::recording::MAX_CLASSES).
    pub fn recorded_classes(&self) -> Vec<String> {
        let classes = self.classes();
        if (2..=MAX_CLASSES).contains(&classes.len()) { classes } else { Vec::new() }
    }

    /// The names by which it is asked for in a handshake of TLS (ALPN).
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
