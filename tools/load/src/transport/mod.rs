//! Connections: TCP or Unix streams, plain or with TLS.

mod plain;
mod tls;

pub(crate) use plain::PlainTransport;
pub use plain::SOURCE_ADDRESSES;
pub(crate) use tls::TlsTransport;

use crate::exchange::SendBytes;
use crate::fault::{Fault, FaultKind};
use crate::plan::{Plan, Streams};
use crate::tls::TlsConnector;
use annulus::time;
use std::io;
use std::task::{Context, Poll};

/// A byte stream in both directions. Dropping it closes the connection.
pub(crate) enum Transport {
    Plain(PlainTransport),
    Tls(TlsTransport),
}

impl Transport {
    /// Returns the number of sent bytes that the server's kernel has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        match self {
            Transport::Plain(plain) => plain.unacknowledged(),
            Transport::Tls(tls) => tls.unacknowledged(),
        }
    }

    /// Resets the connection: bytes that have not been sent are discarded.
    pub(crate) fn abort(self) {
        match self {
            Transport::Plain(plain) => plain.abort(),
            Transport::Tls(tls) => tls.abort(),
        }
    }

    /// Passes the next received bytes to `take`. Returns `None` when the server has closed its
    /// side.
    pub(crate) fn poll_receive<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<Option<R>>> {
        match self {
            Transport::Plain(plain) => plain.poll_receive(cx, take),
            Transport::Tls(tls) => tls.poll_receive(cx, take),
        }
    }

    /// Accepts bytes to send, and returns how many: at least one. The connection keeps accepted
    /// bytes that it cannot send yet.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        piece: SendBytes<'_>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(plain) => plain.poll_send(cx, piece),
            Transport::Tls(tls) => tls.poll_send(cx, piece),
        }
    }

    /// Closes the client's side after the accepted bytes.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(plain) => plain.poll_shutdown(cx),
            Transport::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}

/// Opens the connections of a run.
#[derive(Clone)]
pub(crate) struct Connector {
    /// Whether connections come from several source addresses. When the client closes a connection,
    /// the system keeps its port for a minute, so one address could run out of ports.
    has_many_sources: bool,
    /// Creates the TLS sessions, if connections are encrypted.
    tls: Option<TlsConnector>,
}

impl Connector {
    pub(crate) fn new(streams: Streams, tls: Option<TlsConnector>) -> Connector {
        Connector { has_many_sources: streams.requests_per_connection.is_some(), tls }
    }

    /// Connects within the plan's time limit; the handshake may take as long again. `number` counts
    /// the connections of the run.
    pub(crate) async fn connect(&self, plan: &Plan, number: usize) -> Result<Transport, Fault> {
        let connected = PlainTransport::connect(plan, number, self.has_many_sources).await;
        let connected = connected.map_err(|error| Fault::connect(&error))?;
        let Some(session) = &self.tls else { return Ok(Transport::Plain(connected)) };
        let limit = plan.connect_timeout;
        let made = time::timeout(limit, TlsTransport::connect(session, connected)).await;
        let made = made.map_err(|_| handshake_timeout(limit))?;
        let transport = made.map_err(|error| Fault::handshake(&error))?;
        // A server without ALPN speaks HTTP/1, so HTTP/2 must be negotiated.
        if plan.protocol.alpn().contains(&"h2") && transport.protocol() != Some(b"h2") {
            let text =
                "the server did not agree to HTTP/2 in the TLS handshake (ALPN): use HTTP/1.1";
            return Err(Fault::new(FaultKind::TLS, text));
        }
        Ok(Transport::Tls(transport))
    }
}

#[cold]
fn handshake_timeout(limit: std::time::Duration) -> Fault {
    let text =
        format!("the TLS handshake took longer than {limit:?}; does the server speak TLS there?");
    Fault::new(FaultKind::CONNECT_TIMEOUT, text)
}
