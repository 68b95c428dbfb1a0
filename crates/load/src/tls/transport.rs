//! A session over a stream.

use super::Session;
use crate::exchange::{Piece, Transport};
use annulus::net::{RecvHalf, SendHalf};
use rustls::{ClientConnection, Error};
use std::future::poll_fn;
use std::io::{self, BufRead, Write};
use std::task::{Context, Poll, ready};

/// Most bytes that are encrypted at once.
const MAX_PLAIN: usize = 64 << 10;

/// A TLS session over a TCP or Unix stream.
pub(crate) struct TlsTransport {
    receiver: RecvHalf,
    sender: SendHalf,
    session: Box<ClientConnection>,
    /// What is encrypted and not accepted by the stream.
    unsent: Vec<u8>,
}

impl TlsTransport {
    /// Makes a session: returns when the handshake is complete. Dropping the future closes the stream.
    ///
    /// # Errors
    /// Those of the stream; `UnexpectedEof` if it ends; `InvalidData` with a [`rustls::Error`] inside.
    pub(crate) async fn connect(
        session: &Session,
        (receiver, sender): (RecvHalf, SendHalf),
    ) -> io::Result<TlsTransport> {
        let session = Box::new(session.start().map_err(invalid)?);
        let mut transport = TlsTransport { receiver, sender, session, unsent: Vec::new() };
        poll_fn(|cx| transport.poll_handshake(cx)).await?;
        Ok(transport)
    }

    /// The protocol that both sides have agreed on.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.session.alpn_protocol()
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.is_handshaking() {
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
        let shown = ready!(self.receiver.poll_fill_buf(cx))?;
        let mut rest = shown;
        let count = self.session.read_tls(&mut rest)?;
        self.receiver.consume(count);
        let processed = self.session.process_new_packets();
        if processed.is_err() || self.session.wants_write() {
            // An answer to the peer, such as an alert. If the stream fails, the next write gets its error.
            _ = self.poll_flush(cx)?;
        }
        processed.map_err(invalid)?;
        Poll::Ready(Ok(count))
    }

    /// Passes on all that is encrypted.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.session.wants_write() {
                self.session.write_tls(&mut self.unsent)?;
            }
            if self.unsent.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let count = ready!(self.sender.poll_write(cx, &self.unsent))?;
            self.unsent.drain(..count);
            if self.unsent.is_empty() {
                self.unsent = Vec::new();
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
            let mut reader = self.session.reader();
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

    fn poll_send(&mut self, cx: &mut Context<'_>, piece: Piece<'_>) -> Poll<io::Result<usize>> {
        let (Piece::Borrowed(bytes) | Piece::Static(bytes)) = piece;
        ready!(self.poll_flush(cx))?;
        let count = self.session.writer().write(&bytes[..bytes.len().min(MAX_PLAIN)])?;
        // What the stream does not accept now leaves with the next call.
        _ = self.poll_flush(cx)?;
        Poll::Ready(Ok(count))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        ready!(self.poll_flush(cx))?;
        self.sender.poll_shutdown(cx)
    }
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
