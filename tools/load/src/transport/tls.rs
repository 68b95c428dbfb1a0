//! A session over a stream.

use super::PlainTransport;
use crate::exchange::{SendBytes, Transport};
use crate::tls::TlsConnector;
use rustls::{ClientConnection, Error};
use std::future::poll_fn;
use std::io::{self, BufRead, Write};
use std::task::{Context, Poll, ready};

/// Most bytes that are encrypted at once.
const MAX_PLAINTEXT_BYTES: usize = 64 << 10;

/// A TLS session over a TCP or Unix stream.
pub(crate) struct TlsTransport {
    stream: PlainTransport,
    state: Box<TlsState>,
}

/// In memory of its own: most connections of a load have none.
struct TlsState {
    session: ClientConnection,
    /// Bytes that are encrypted and not accepted by the stream.
    unsent: Vec<u8>,
}

impl TlsTransport {
    /// Makes a session: returns when the handshake is complete. Dropping the future closes the stream.
    ///
    /// # Errors
    /// The errors of the stream; `UnexpectedEof` if it ends; `InvalidData` with a [`rustls::Error`] inside.
    pub(crate) async fn connect(
        session: &TlsConnector,
        stream: PlainTransport,
    ) -> io::Result<TlsTransport> {
        let state = TlsState { session: session.start().map_err(invalid)?, unsent: Vec::new() };
        let mut transport = TlsTransport { stream, state: Box::new(state) };
        poll_fn(|cx| transport.poll_handshake(cx)).await?;
        Ok(transport)
    }

    /// The protocol that both sides have agreed on.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.state.session.alpn_protocol()
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.state.session.is_handshaking() {
            ready!(self.poll_flush(cx))?;
            if ready!(self.poll_records(cx))? == 0 {
                let text = "the server closed in the handshake";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
        }
        self.poll_flush(cx)
    }

    /// Takes received bytes into the session; returns their number, 0 at the end of the stream.
    fn poll_records(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let shown = ready!(self.stream.poll_fill_buf(cx))?;
        let mut rest = shown;
        let session = &mut self.state.session;
        let count = session.read_tls(&mut rest)?;
        self.stream.consume(count);
        let processed = session.process_new_packets();
        if processed.is_err() || session.wants_write() {
            // An answer to the peer, such as an alert. If the stream fails, the next write gets its error.
            _ = self.poll_flush(cx)?;
        }
        processed.map_err(invalid)?;
        Poll::Ready(Ok(count))
    }

    /// Passes on all that is encrypted.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let TlsState { session, unsent } = &mut *self.state;
        loop {
            while session.wants_write() {
                session.write_tls(unsent)?;
            }
            if unsent.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let count = ready!(self.stream.poll_write(cx, unsent))?;
            unsent.drain(..count);
            if unsent.is_empty() {
                *unsent = Vec::new();
            }
        }
    }
}

impl Transport for TlsTransport {
    fn poll_receive<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<Option<R>>> {
        // The same task sends and receives, so this replaces no other's waker.
        _ = self.poll_flush(cx)?;
        loop {
            let mut reader = self.state.session.reader();
            match reader.fill_buf() {
                Ok([]) => return Poll::Ready(Ok(None)),
                Ok(plain) => {
                    let (taken, length) = (take(plain), plain.len());
                    reader.consume(length);
                    return Poll::Ready(Ok(Some(taken)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.poll_records(cx))?;
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, piece: SendBytes<'_>) -> Poll<io::Result<usize>> {
        let bytes = piece.bytes();
        ready!(self.poll_flush(cx))?;
        let count =
            self.state.session.writer().write(&bytes[..bytes.len().min(MAX_PLAINTEXT_BYTES)])?;
        // Bytes that the stream does not accept now leave with the next call.
        _ = self.poll_flush(cx)?;
        Poll::Ready(Ok(count))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.session.send_close_notify();
        ready!(self.poll_flush(cx))?;
        self.stream.poll_shutdown(cx)
    }
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
