//! The carriers of bytes: a stream as it is, or TLS over it.

mod codec;
mod plain;
mod tls;

pub(crate) use codec::Codec;
pub use plain::SOURCE_ADDRESSES;
pub(crate) use plain::{Plain, Sources, connect};
pub(crate) use tls::TlsTransport;

use crate::exchange::{Piece, Transport};
use crate::fault::{Fault, Kind};
use crate::plan::Plan;
use crate::tls::Session;
use annulus::time;
use std::io;
use std::task::{Context, Poll};

/// A connection.
pub(crate) enum Wire {
    Plain(Plain),
    Tls(TlsTransport),
}

impl Transport for Wire {
    fn poll_receive<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<Option<R>>> {
        match self {
            Wire::Plain(plain) => plain.poll_receive(cx, take),
            Wire::Tls(tls) => tls.poll_receive(cx, take),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, piece: Piece<'_>) -> Poll<io::Result<usize>> {
        match self {
            Wire::Plain(plain) => plain.poll_send(cx, piece),
            Wire::Tls(tls) => tls.poll_send(cx, piece),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Wire::Plain(plain) => plain.poll_shutdown(cx),
            Wire::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}

/// How the connections of a run are made.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) plan: Plan,
    pub(crate) sources: Sources,
    /// The maker of sessions of TLS.
    pub(crate) tls: Option<Session>,
}

impl Connector {
    /// Connects, within the plan's limit; the handshake has as much again. `number` counts the connections of the run.
    pub(crate) async fn connect(&self, number: usize) -> Result<Wire, Fault> {
        let connected = connect(&self.plan, self.sources, number).await;
        let connected = connected.map_err(|error| Fault::connect(&error))?;
        let Some(session) = &self.tls else { return Ok(Wire::Plain(connected)) };
        let limit = self.plan.connect_timeout;
        let made = time::timeout(limit, TlsTransport::connect(session, connected)).await;
        let made = made.map_err(|_| no_handshake(limit))?;
        let transport = made.map_err(|error| Fault::handshake(&error))?;
        self.check_protocol(transport.protocol())?;
        Ok(Wire::Tls(transport))
    }

    /// A server that knows no ALPN speaks HTTP/1, so HTTP/2 has to be agreed on.
    fn check_protocol(&self, agreed: Option<&[u8]>) -> Result<(), Fault> {
        let asked = self.plan.protocol.alpn();
        if !asked.contains(&"h2") || agreed == Some(b"h2") {
            return Ok(());
        }
        let text = "the server did not agree to HTTP/2 in the handshake (ALPN): ask for HTTP/1.1";
        Err(Fault::new(Kind::Tls, text))
    }
}

#[cold]
fn no_handshake(limit: std::time::Duration) -> Fault {
    let text = format!("no handshake of TLS within {limit:?}; does the server speak TLS there?");
    Fault::new(Kind::ConnectTimeout, text)
}
