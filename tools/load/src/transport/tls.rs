//! TLS over a plain stream.

use super::PlainTransport;
use crate::exchange::SendBytes;
use crate::tls::TlsConnector;
use rustls::{ClientConnection, Error};
use std::future::poll_fn;
use std::io::{self, BufRead, Write};
use std::task::{Context, Poll, ready};

/// The maximum number of bytes to encrypt at once.
const MAX_PLAINTEXT_BYTES: usize = 64 << 10;

pub(crate) struct TlsTransport {
    stream: PlainTransport,
    state: Box<TlsState>,
}

/// The session's state. It is boxed because most connections of a load are not encrypted.
struct TlsState {
    session: ClientConnection,
    /// Encrypted bytes that the stream has not accepted yet.
    unsent: Vec<u8>,
}

impl TlsTransport {
    /// Starts a session, and returns when the handshake is complete. Dropping the future closes the
    /// stream.
    ///
    /// # Errors
    /// Returns an error of the stream, `UnexpectedEof` if the stream ends, or `InvalidData` with a
    /// [`rustls::Error`] inside.
    pub(crate) async fn connect(
        session: &TlsConnector,
        stream: PlainTransport,
    ) -> io::Result<TlsTransport> {
        let state = TlsState { session: session.start().map_err(invalid)?, unsent: Vec::new() };
        let mut transport = TlsTransport { stream, state: Box::new(state) };
        poll_fn(|cx| transport.poll_handshake(cx)).await?;
        Ok(transport)
    }

    /// Returns the protocol that was negotiated by ALPN.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.state.session.alpn_protocol()
    }

    /// Returns the number of encrypted bytes that the server's kernel has not acknowledged.
    pub(super) fn unacknowledged(&self) -> usize {
        self.state.unsent.len() + self.stream.unacknowledged()
    }

    pub(super) fn abort(self) {
        self.stream.abort();
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.state.session.is_handshaking() {
            ready!(self.poll_flush(cx))?;
            if ready!(self.poll_records(cx))? == 0 {
                let text = "the server closed during the handshake";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
        }
        self.poll_flush(cx)
    }

    /// Passes received bytes to the session. Returns how many, or 0 at the end of the stream.
    fn poll_records(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let shown = ready!(self.stream.poll_fill_buf(cx))?;
        let mut rest = shown;
        let session = &mut self.state.session;
        let count = session.read_tls(&mut rest)?;
        self.stream.consume(count);
        let processed = session.process_new_packets();
        if processed.is_err() || session.wants_write() {
            // The session has an answer for the peer, such as an alert. Bytes that the stream does
            // not accept now are sent by a later call.
            _ = self.poll_flush(cx)?;
        }
        processed.map_err(invalid)?;
        Poll::Ready(Ok(count))
    }

    /// Passes all encrypted bytes to the stream.
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

    pub(crate) fn poll_receive<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<Option<R>>> {
        // The same task sends and receives, so this does not replace another task's waker.
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

    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        piece: SendBytes<'_>,
    ) -> Poll<io::Result<usize>> {
        let bytes = piece.bytes();
        ready!(self.poll_flush(cx))?;
        let count =
            self.state.session.writer().write(&bytes[..bytes.len().min(MAX_PLAINTEXT_BYTES)])?;
        // Bytes that the stream does not accept now are sent by a later call.
        _ = self.poll_flush(cx)?;
        Poll::Ready(Ok(count))
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.session.send_close_notify();
        ready!(self.poll_flush(cx))?;
        self.stream.poll_shutdown(cx)
    }
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
