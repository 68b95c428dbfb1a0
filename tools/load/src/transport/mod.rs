//! The carriers of bytes: a stream as it is, or TLS over it.

mod plain;
mod tls;

pub(crate) use plain::PlainTransport;
pub use plain::SOURCE_ADDRESSES;
pub(crate) use tls::TlsTransport;

use crate::exchange::{SendBytes, Transport};
use crate::fault::{Fault, FaultKind};
use crate::plan::{Plan, Streams};
use crate::tls::TlsConnector;
use annulus::time;
use std::io;
use std::task::{Context, Poll};

/// A connection.
pub(crate) enum Connection {
    PlainTransport(PlainTransport),
    Tls(TlsTransport),
}

impl Transport for Connection {
    fn poll_receive<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<Option<R>>> {
        match self {
            Connection::PlainTransport(plain) => plain.poll_receive(cx, take),
            Connection::Tls(tls) => tls.poll_receive(cx, take),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, piece: SendBytes<'_>) -> Poll<io::Result<usize>> {
        match self {
            Connection::PlainTransport(plain) => plain.poll_send(cx, piece),
            Connection::Tls(tls) => tls.poll_send(cx, piece),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Connection::PlainTransport(plain) => plain.poll_shutdown(cx),
            Connection::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}

/// How the connections of a run are made.
#[derive(Clone)]
pub(crate) struct Connector {
    /// Connections that the client closes leave from several addresses: the system keeps the ports of those for a minute.
    has_many_sources: bool,
    /// The maker of sessions of TLS.
    tls: Option<TlsConnector>,
}

impl Connector {
    pub(crate) fn new(streams: Streams, tls: Option<TlsConnector>) -> Connector {
        Connector { has_many_sources: streams.requests_per_connection.is_some(), tls }
    }

    /// Connects, within the plan's limit; the handshake has as much again. `number` counts the connections of the run.
    pub(crate) async fn connect(&self, plan: &Plan, number: usize) -> Result<Connection, Fault> {
        let connected =
            PlainTransport::connect(plan, self.has_many_sources.then_some(number)).await;
        let connected = connected.map_err(|error| Fault::connect(&error))?;
        let Some(session) = &self.tls else { return Ok(Connection::PlainTransport(connected)) };
        let limit = plan.connect_timeout;
        let made = time::timeout(limit, TlsTransport::connect(session, connected)).await;
        let made = made.map_err(|_| handshake_timeout(limit))?;
        let transport = made.map_err(|error| Fault::handshake(&error))?;
        // A server that knows no ALPN speaks HTTP/1, so HTTP/2 has to be agreed on.
        if plan.protocol.alpn().contains(&"h2") && transport.protocol() != Some(b"h2") {
            let text =
                "the server did not agree to HTTP/2 in the handshake (ALPN): ask for HTTP/1.1";
            return Err(Fault::new(FaultKind::TLS, text));
        }
        Ok(Connection::Tls(transport))
    }
}

#[cold]
fn handshake_timeout(limit: std::time::Duration) -> Fault {
    let text = format!("no handshake of TLS within {limit:?}; does the server speak TLS there?");
    Fault::new(FaultKind::CONNECT_TIMEOUT, text)
}
