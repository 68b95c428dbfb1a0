//! A TLS session over a stream.

use super::write_waiters::WriteWaiters;
use annulus::Chunk;
use annulus::io::{AsyncRecv, AsyncSend};
use bytes::{Buf, BytesMut};
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls::{CommonState, Error, ProtocolVersion, pki_types::CertificateDer};

/// A client or server TLS session over an annulus stream, or any other stream `S` that implements
/// tokio's traits.
///
/// It implements the [`annulus::io`] traits, so code that is generic over
/// [`AsyncStream`](annulus::io::AsyncStream) runs over TCP, Unix sockets and TLS. It also
/// implements tokio's traits, and with feature `hyper` it can be wrapped in a `hyper::Io`.
///
/// - **Receiving** shows a record's plaintext in rustls's buffer; data that spans records is copied
///   together.
/// - **Sending** encrypts data and passes it on. While the underlying stream is full, encrypted
///   data (at most 64 KiB plus one record) is queued in the session. The next write, `send`,
///   `flush`, `shutdown` or receive with `AsyncRecv` sends it. [`send`](AsyncSend::send) leaves
///   nothing queued. After `write`, call [`flush`](AsyncSend::flush), as with any stream that is
///   not a bare socket.
/// - **Ending**: [`shutdown`](AsyncSend::shutdown) sends `close_notify`, then shuts down the
///   sending direction of the underlying stream. Receiving continues. A dropped session sends no
///   `close_notify`, so the peer can tell it from a proper end.
/// - **The peer's end**: `recv` returns `None` only after the peer's `close_notify`. If the
///   underlying stream ends without one, the error is `UnexpectedEof`, because the received data
///   may be truncated.
///
/// ```
/// use annulus::io::{AsyncRecv, AsyncSend, AsyncStream};
/// use annulus::net::UnixStream;
/// use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
/// # fn client(certificate: rustls::pki_types::CertificateDer<'static>) -> rustls::ClientConfig {
/// #     let mut roots = rustls::RootCertStore::empty();
/// #     roots.add(certificate).unwrap();
/// #     rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
/// # }
///
/// /// Answers lines, over any stream.
/// async fn serve(mut stream: impl AsyncStream) -> std::io::Result<()> {
///     while let Some(line) = stream.recv_until(b'\n', 1024).await? {
///         stream.send(line.to_ascii_uppercase()).await?;
///     }
///     stream.shutdown().await
/// }
///
/// # annulus::run(async {
/// # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
/// # let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// let acceptor = TlsAcceptor::from_pem(certificate.as_bytes(), key.as_bytes(), &["lines"])?;
/// let (one, two) = UnixStream::pair()?;
/// annulus::spawn(async move { serve(acceptor.accept(two).await?).await });
///
/// let mut config = client(made.cert.der().clone());
/// config.alpn_protocols = vec![b"lines".to_vec()];
/// let mut stream = TlsConnector::new(config).connect("localhost", one).await?;
/// assert_eq!(stream.alpn_protocol(), Some(&b"lines"[..]));
/// stream.send("hello\n").await?;
/// assert_eq!(stream.recv_until(b'\n', 1024).await?.as_deref(), Some(&b"HELLO\n"[..]));
/// stream.shutdown().await?;
/// assert!(stream.recv().await?.is_none());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct TlsStream<S> {
    pub(super) session: tokio_rustls::TlsStream<S>,
    /// Plaintext taken out of the session because a caller requested more than one record holds.
    gathered: BytesMut,
    /// A rustls error about received data. After it, no byte of the session can be trusted.
    failed: Option<Error>,
    waiters: WriteWaiters,
}

impl<S> TlsStream<S> {
    /// Returns the protocol negotiated by ALPN; `None` without ALPN.
    pub fn alpn_protocol(&self) -> Option<&[u8]> {
        self.state().alpn_protocol()
    }

    /// Returns the TLS version.
    pub fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.state().protocol_version()
    }

    /// Returns the peer's certificate chain, its own certificate first; `None` if it sent none.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.state().peer_certificates()
    }

    /// Returns the server name that the client requested (SNI); `None` on a client, or if the
    /// client sent none.
    pub fn server_name(&self) -> Option<&str> {
        match &self.session {
            tokio_rustls::TlsStream::Server(session) => session.get_ref().1.server_name(),
            tokio_rustls::TlsStream::Client(_) => None,
        }
    }

    /// Returns the underlying stream.
    pub fn get_ref(&self) -> &S {
        self.session.get_ref().0
    }

    /// Returns the underlying stream, for example to change its socket options. Reading or writing
    /// it directly breaks the session.
    pub fn get_mut(&mut self) -> &mut S {
        self.session.get_mut().0
    }

    /// Returns the session's rustls state.
    pub fn state(&self) -> &CommonState {
        self.session.get_ref().1
    }
}

/// The results of a handshake. Each request that `tower::Serve::tls` serves has them as an `Arc` in
/// its extensions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TlsInfo {
    /// See [`TlsStream::alpn_protocol`].
    pub alpn_protocol: Option<Vec<u8>>,
    /// See [`TlsStream::protocol_version`].
    pub protocol_version: Option<ProtocolVersion>,
    /// See [`TlsStream::server_name`].
    pub server_name: Option<String>,
    /// See [`TlsStream::peer_certificates`].
    pub peer_certificates: Option<Vec<CertificateDer<'static>>>,
}

impl<S> From<&TlsStream<S>> for TlsInfo {
    fn from(stream: &TlsStream<S>) -> Self {
        Self {
            alpn_protocol: stream.alpn_protocol().map(<[u8]>::to_vec),
            protocol_version: stream.protocol_version(),
            server_name: stream.server_name().map(str::to_owned),
            peer_certificates: stream.peer_certificates().map(<[_]>::to_vec),
        }
    }
}

/// Does not show the plaintext.
impl<S: fmt::Debug> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsStream").field(&self.session).finish()
    }
}

impl<S> From<tokio_rustls::TlsStream<S>> for TlsStream<S> {
    fn from(session: tokio_rustls::TlsStream<S>) -> Self {
        Self { session, gathered: BytesMut::new(), failed: None, waiters: WriteWaiters::default() }
    }
}

impl<S> From<tokio_rustls::server::TlsStream<S>> for TlsStream<S> {
    fn from(session: tokio_rustls::server::TlsStream<S>) -> Self {
        tokio_rustls::TlsStream::from(session).into()
    }
}

impl<S> From<tokio_rustls::client::TlsStream<S>> for TlsStream<S> {
    fn from(session: tokio_rustls::client::TlsStream<S>) -> Self {
        tokio_rustls::TlsStream::from(session).into()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    fn session(&mut self) -> Pin<&mut tokio_rustls::TlsStream<S>> {
        Pin::new(&mut self.session)
    }

    /// Returns the stored error if the session has failed.
    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.clone())),
            None => Ok(()),
        }
    }

    /// Stores the error if it is a rustls error about received data. The session may have tried to
    /// send an alert with the reader's waker, so a waiting writer has to poll again.
    fn note(&mut self, error: &io::Error) {
        self.waiters.wake_writer();
        self.failed = error.get_ref().and_then(|cause| cause.downcast_ref().cloned());
    }

    /// Waits for plaintext in the session, and returns how many bytes are available; 0 at the end.
    fn poll_plaintext(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.check()?;
        let polled = self.session().poll_fill_buf(cx).map_ok(<[u8]>::len);
        polled.map(|shown| shown.inspect_err(|error| self.note(error)))
    }

    /// Sends data queued in the session, including protocol replies such as key updates. The next
    /// write reports any error.
    fn pass_on(&mut self, cx: &mut Context<'_>) {
        if self.state().wants_write() {
            let Self { session, waiters, .. } = self;
            _ = waiters.poll_reader(cx, |cx| Pin::new(session).poll_flush(cx));
        }
    }

    /// Polls the session's write side for the task that writes.
    fn poll_writer<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut tokio_rustls::TlsStream<S>>, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { session, waiters, .. } = self;
        let polled = waiters.poll_writer(cx, |cx| poll(Pin::new(session), cx));
        if !self.state().wants_write() {
            self.waiters.all_sent();
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRecv for TlsStream<S> {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        while self.gathered.len() < n.max(1) {
            let polled = self.poll_plaintext(cx);
            self.pass_on(cx);
            let shown = ready!(polled)?;
            if shown == 0 || (shown >= n && self.gathered.is_empty()) {
                break;
            }
            let Self { session, gathered, .. } = self;
            gathered.extend_from_slice(ready!(Pin::new(&mut *session).poll_fill_buf(cx))?);
            Pin::new(session).consume(shown);
        }
        if self.gathered.is_empty() {
            return Pin::new(&mut self.session).poll_fill_buf(cx);
        }
        Poll::Ready(Ok(&self.gathered))
    }

    fn consume(&mut self, n: usize) {
        let shown = self.gathered.len();
        if shown == 0 {
            return self.session().consume(n);
        }
        assert!(n <= shown, "consume({n}) of {shown} available bytes");
        self.gathered.advance(n);
        if n == shown {
            // Frees the memory.
            self.gathered = BytesMut::new();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncSend for TlsStream<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writer(cx, |session, cx| session.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writer(cx, |session, cx| session.poll_write_vectored(cx, slices))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writer(cx, |session, cx| session.poll_flush(cx))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writer(cx, |session, cx| session.poll_shutdown(cx))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        while !chunk.is_empty() {
            match ready!(self.poll_write(cx, chunk.as_ref()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => drop(chunk.split_to(count)),
            }
        }
        self.poll_flush(cx)
    }
}

// tokio's traits. A read does not flush queued data: with these traits, that is up to the writer.

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.gathered.is_empty() {
            this.check()?;
            let read = ready!(this.session().poll_read(cx, buf));
            return Poll::Ready(read.inspect_err(|error| this.note(error)));
        }
        let count = this.gathered.len().min(buf.remaining());
        buf.put_slice(&this.gathered[..count]);
        AsyncRecv::consume(this, count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncBufRead for TlsStream<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.gathered.is_empty() {
            ready!(this.poll_plaintext(cx))?;
            return Pin::new(&mut this.session).poll_fill_buf(cx);
        }
        Poll::Ready(Ok(&this.gathered))
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        AsyncRecv::consume(self.get_mut(), n);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncSend::poll_write(self.get_mut(), cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncSend::poll_flush(self.get_mut(), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncSend::poll_shutdown(self.get_mut(), cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        AsyncSend::poll_write_vectored(self.get_mut(), cx, slices)
    }
}
