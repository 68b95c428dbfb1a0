//! A session: the kernel encrypts what it sends; what it receives is decrypted here.

use super::about::About;
use super::alert::{self, FATAL};
use super::handshake::{Agreed, Handshake};
use super::opener::Opener;
use super::records::poll_record;
use super::sealer::Sealer;
use super::secrets::Secrets;
use super::sending::{Sealed, Sending};
use super::{KernelTls, keys, tcp_mut, tcp_ref};
use crate::rustls::gathered::Gathered;
use annulus::Chunk;
use annulus::io::AsyncSend;
use annulus::net::TcpStream;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls::{AlertDescription, Error};

pub(in crate::rustls) struct KernelSession<S> {
    stream: S,
    /// `S` as what it is: a stream of TCP.
    tcp_mut: fn(&mut S) -> Option<&mut TcpStream>,
    tcp_ref: fn(&S) -> Option<&TcpStream>,
    about: About,
    secrets: Secrets,
    opener: Opener,
    pub(super) sending: Sending,
    /// Data of the program.
    data: Gathered,
    /// `close_notify` has left.
    has_notified: bool,
}

impl<S: 'static> KernelSession<S> {
    /// Makes the handshake, and gives the keys for sending to the kernel. [`KernelTls::prepare`] has found that it takes some.
    ///
    /// # Errors
    /// Those of the handshake. `Unsupported` if the kernel does not have the cipher that was agreed on, and is required to encrypt.
    pub(in crate::rustls) async fn new(
        handshake: Handshake,
        mut stream: S,
        wanted: KernelTls,
    ) -> io::Result<Self> {
        let tcp = tcp_mut(&mut stream).ok_or_else(no_tcp)?;
        let Agreed { about, suite, keys, secrets } = handshake.shake(tcp).await?;
        let ((sent, send_keys), (received, receive_keys)) = (keys.tx, keys.rx);
        let given = keys::for_kernel(suite, &send_keys, sent);
        let sending = match given.and_then(|keys| tcp.encrypt_sends(&keys)) {
            Ok(()) => Sending::Kernel,
            Err(error)
                if error.kind() == io::ErrorKind::Unsupported && wanted != KernelTls::Required =>
            {
                Sending::Here(Sealed::new(Sealer::new(suite, send_keys, sent)?))
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            stream,
            tcp_mut,
            tcp_ref,
            about,
            secrets,
            opener: Opener::new(suite, receive_keys, received)?,
            sending,
            data: Gathered::default(),
            has_notified: false,
        })
    }
}

impl<S> KernelSession<S> {
    pub(in crate::rustls) fn about(&self) -> &About {
        &self.about
    }

    /// Whether the kernel encrypts.
    pub(in crate::rustls) fn is_kernel(&self) -> bool {
        matches!(self.sending, Sending::Kernel)
    }

    pub(in crate::rustls) fn get_ref(&self) -> &S {
        &self.stream
    }

    pub(in crate::rustls) fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream to which plaintext may be sent.
    pub(in crate::rustls) fn takes_plaintext(&self) -> Option<&TcpStream> {
        let may = self.is_kernel() && !self.opener.owes_keys;
        may.then(|| (self.tcp_ref)(&self.stream)).flatten()
    }

    /// The stream, if the kernel is to encrypt what is sent to it now.
    ///
    /// # Errors
    /// If it may not go on with the keys that it has.
    fn plain(&mut self) -> io::Result<Option<&mut TcpStream>> {
        if !self.is_kernel() {
            return Ok(None);
        }
        let tcp = (self.tcp_mut)(&mut self.stream).ok_or_else(no_tcp)?;
        if self.opener.owes_keys {
            _ = tcp.try_send_alert(FATAL, AlertDescription::InternalError.into());
            return Err(no_new_keys());
        }
        tcp.check_keys()?;
        Ok(Some(tcp))
    }

    /// Queues a chunk, which is not copied if the kernel encrypts it.
    pub(in crate::rustls) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        chunk: &mut Chunk,
    ) -> Poll<io::Result<()>> {
        if let Some(tcp) = self.plain()? {
            return tcp.poll_send(cx, chunk);
        }
        while !chunk.is_empty() {
            let count = ready!(self.poll_seal(cx, chunk.as_ref()))?;
            drop(chunk.split_to(count));
        }
        let (sending, tcp) = self.sending()?;
        sending.poll_pass(cx, tcp)
    }

    fn sending(&mut self) -> io::Result<(&mut Sending, &mut TcpStream)> {
        Ok((&mut self.sending, (self.tcp_mut)(&mut self.stream).ok_or_else(no_tcp)?))
    }

    /// Encrypts here.
    fn poll_seal(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let tcp = (self.tcp_mut)(&mut self.stream).ok_or_else(no_tcp)?;
        let Sending::Here(sealed) = &mut self.sending else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        sealed.poll_write(cx, tcp, bytes, &mut self.opener.owes_keys, &mut self.secrets)
    }

    /// Waits for data; none is the end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.data.shown().is_empty() && !self.opener.has_ended {
            let tcp = (self.tcp_mut)(&mut self.stream).ok_or_else(no_tcp)?;
            let Poll::Ready(record) = poll_record(tcp, cx)? else {
                self.opener.rest();
                return Poll::Pending;
            };
            let Some(record) = record else { return Poll::Ready(Err(cut())) };
            let len = record.len();
            let opened = self.opener.open(record, &mut self.data, &mut self.secrets);
            tcp.consume(len);
            opened.map_err(|error| self.failed(error))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Tells the peer what is wrong with what it has sent, if it can be told at once.
    #[cold]
    fn failed(&mut self, error: Error) -> io::Error {
        if let Some(description) = alert::of(&error)
            && let Ok((sending, tcp)) = self.sending()
        {
            sending.try_alert(tcp, FATAL, description);
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

fn no_tcp() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "kernel TLS is for streams of TCP")
}

fn no_new_keys() -> io::Error {
    let text = "kernel TLS: the peer has asked for new keys (KeyUpdate), and the kernel goes on with the ones that it has: choose KernelTls::Off \
                for such peers";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// The stream has ended, and the peer has not said so.
fn cut() -> io::Error {
    let text = "the stream has ended without close_notify of TLS: what came may have been cut";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

impl<S: Unpin> AsyncBufRead for KernelSession<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_data(cx))?;
        Poll::Ready(Ok(this.data.shown()))
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        self.get_mut().data.consume(n);
    }
}

impl<S: Unpin> AsyncRead for KernelSession<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_data(cx))?;
        let shown = this.data.shown();
        let count = shown.len().min(buf.remaining());
        buf.put_slice(&shown[..count]);
        this.data.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: Unpin> AsyncWrite for KernelSession<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.plain()? {
            Some(tcp) => tcp.poll_write(cx, bytes),
            None => this.poll_seal(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.plain()? {
            Some(tcp) => tcp.poll_write_vectored(cx, slices),
            None => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                this.poll_seal(cx, first.map_or(&[], |slice| slice))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.is_kernel()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (sending, tcp) = self.get_mut().sending()?;
        ready!(sending.poll_pass(cx, tcp))?;
        AsyncSend::poll_flush(tcp, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let has_notified = this.has_notified;
        let (sending, tcp) = this.sending()?;
        if !has_notified {
            ready!(sending.poll_close(cx, tcp))?;
            this.has_notified = true;
        }
        let (sending, tcp) = this.sending()?;
        ready!(sending.poll_pass(cx, tcp))?;
        AsyncSend::poll_shutdown(tcp, cx)
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for KernelSession<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelSession")
            .field("stream", &self.stream)
            .field("about", &self.about)
            .field("opener", &self.opener)
            .field("sending", &self.sending)
            .finish_non_exhaustive()
    }
}
