//! What encrypts what a session sends, and how it leaves.

use super::alert::CLOSE_NOTIFY;
use super::sealer::{MOST, Sealer};
use super::secrets::Secrets;
use annulus::Chunk;
use annulus::io::AsyncSend;
use annulus::net::TcpStream;
use std::io;
use std::task::{Context, Poll, Waker, ready};

#[derive(Debug)]
pub(super) enum Sending {
    /// The kernel does.
    Kernel,
    /// It lacks the cipher, and was not required to have it.
    Here(Sealed),
}

/// Encrypts here.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) sealer: Sealer,
    /// What the stream has not accepted yet: a record or two.
    records: Chunk,
}

impl Sealed {
    pub(super) fn new(sealer: Sealer) -> Self {
        Self { sealer, records: Vec::new().into() }
    }

    /// Passes on what is encrypted.
    pub(super) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
    ) -> Poll<io::Result<()>> {
        if self.records.is_empty() {
            return Poll::Ready(Ok(()));
        }
        stream.poll_send(cx, &mut self.records)
    }

    /// Encrypts the first of these bytes; how many.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
        bytes: &[u8],
        owes_keys: &mut bool,
        secrets: &mut Secrets,
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_pass(cx, stream))?;
        let part = &bytes[..bytes.len().min(MOST)];
        self.records = self.sealer.data(part, owes_keys, secrets)?.into();
        // It is accepted: an error, or want of space, is for the next call.
        _ = self.poll_pass(cx, stream)?;
        Poll::Ready(Ok(part.len()))
    }

    /// Encrypts `close_notify` behind everything.
    pub(super) fn poll_close(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_pass(cx, stream))?;
        let (level, description) = CLOSE_NOTIFY;
        self.records = self.sealer.alert(level, description)?.into();
        Poll::Ready(Ok(()))
    }

    /// Sends an alert if the stream accepts it at once.
    pub(super) fn try_alert(&mut self, stream: &mut TcpStream, level: u8, description: u8) {
        let unsent = stream.own_stream().map_or(0, |own| own.unsent());
        if !self.records.is_empty() || unsent > 0 {
            // It would have to wait, and another task may be waiting already.
            return;
        }
        if let Ok(record) = self.sealer.alert(level, description) {
            self.records = record.into();
            _ = self.poll_pass(&mut Context::from_waker(Waker::noop()), stream);
        }
    }
}

impl Sending {
    /// Sends an alert that ends the session, if there is space for it: nothing waits for that.
    pub(super) fn try_alert(&mut self, stream: &mut TcpStream, level: u8, description: u8) {
        match self {
            Self::Kernel => _ = stream.try_send_alert(level, description),
            Self::Here(sealed) => sealed.try_alert(stream, level, description),
        }
    }

    /// Passes on what is encrypted here.
    pub(super) fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Kernel => Poll::Ready(Ok(())),
            Self::Here(sealed) => sealed.poll_pass(cx, stream),
        }
    }

    /// Sends `close_notify`, or encrypts it to be [passed](Self::poll_pass) on.
    pub(super) fn poll_close(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut TcpStream,
    ) -> Poll<io::Result<()>> {
        let (level, description) = CLOSE_NOTIFY;
        match self {
            Self::Kernel => stream.poll_send_alert(cx, level, description),
            Self::Here(sealed) => sealed.poll_close(cx, stream),
        }
    }
}
