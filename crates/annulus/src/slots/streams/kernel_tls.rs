//! Sockets whose records the kernel encrypts. Only sending is theirs: what is received are records, as without it.
//!
//! Such a socket refuses `MSG_WAITALL` and sends without a copy, so it is sent to by calls (`by_call`); and nothing is sent to it with
//! `MSG_MORE`, since what waits for more is an open record, which no option of TCP makes leave. Pages of a file can leave one open before
//! Linux 6.5, which a control message ends.

use super::send_keys::{RecordStep, SendKeys};
use super::stream::{Special, Stream};
use crate::base::io::Io;
use annulus_kernel::{Control, ControlWriter, Direction, RECORD_DATA, TlsKeys, space};
use std::io;
use std::task::{Context, Poll, ready};

/// Bytes of data in a record that is full.
const RECORD: u64 = 16 * 1024;

impl Stream {
    /// The kernel encrypts what is sent from here on.
    ///
    /// # Errors
    /// `ResourceBusy` if something is queued or in flight, which would be encrypted, too. The kernel's.
    pub(crate) fn encrypt_sends(&mut self, io: &Io, keys: &TlsKeys) -> io::Result<()> {
        if !self.tx.is_drained() {
            let unsent = self.unsent();
            let text = format!(
                "{unsent} bytes are still to be sent, and would be encrypted again: call `drain` before"
            );
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        if self.special.is_some() {
            let text = "the stream passes descriptors, is a pipe, or encrypts already";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        io.driver.kernel().tls_send_keys(self.fd, keys)?;
        let (records, limit) = (keys.records(), keys.cipher().record_limit());
        let keys = SendKeys { step: RecordStep::default(), records, limit };
        self.special = Some(Box::new(Special::KernelTls(keys)));
        Ok(())
    }

    /// Counts the records of a call that has sent so many bytes. Its last one is not full, as a rule.
    pub(crate) fn count_records(&mut self, bytes: u64) {
        if let Some(keys) = self.send_keys() {
            keys.records = keys.records.saturating_add(bytes / RECORD + 1);
        }
    }

    /// Whether more may be encrypted with the keys.
    ///
    /// # Errors
    /// `QuotaExceeded` if not.
    pub(crate) fn check_keys(&self) -> io::Result<()> {
        match self.special.as_deref() {
            Some(Special::KernelTls(keys)) if keys.records >= keys.limit => Err(spent(keys.limit)),
            _ => Ok(()),
        }
    }

    /// The kernel encrypts what is sent.
    #[inline]
    pub(crate) fn encrypts(&self) -> bool {
        matches!(self.special.as_deref(), Some(Special::KernelTls(_)))
    }

    /// Sends a record of another type than data behind everything that was accepted. Ready once it has gone.
    ///
    /// # Errors
    /// `InvalidInput` if the kernel does not encrypt what is sent. What a send ran into.
    pub(crate) fn poll_send_record(
        &mut self,
        io: &mut Io,
        cx: &Context<'_>,
        kind: u8,
        bytes: &[u8],
    ) -> Poll<io::Result<()>> {
        if !self.encrypts() {
            return Poll::Ready(Err(no_keys()));
        }
        ready!(self.poll_drain(io, cx))?;
        loop {
            let step = self.record_step();
            let mut has_asked = step != RecordStep::None;
            if !has_asked {
                self.set_record_step(RecordStep::Before);
            }
            ready!(self.poll_writable(io, &mut has_asked, cx))?;
            if step == RecordStep::After {
                self.set_record_step(RecordStep::None);
                return Poll::Ready(Ok(()));
            }
            match self.send_record(io, kind, bytes) {
                Ok(()) => self.set_record_step(RecordStep::After),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            // The wait has begun for the step that is set.
            ready!(self.poll_writable(io, &mut false, cx))?;
        }
    }

    /// A record that waits for more pages of a file leaves: a control message ends it, and adds nothing.
    pub(super) fn close_record(&self, io: &Io) {
        _ = self.send_record(io, RECORD_DATA, &[]);
    }

    /// Sends a record of another type than data, if the socket has space for it; what is queued may come behind it.
    ///
    /// # Errors
    /// `InvalidInput` if the kernel does not encrypt what is sent. `WouldBlock` without space. What the send runs into.
    pub(crate) fn try_send_record(&self, io: &Io, kind: u8, bytes: &[u8]) -> io::Result<()> {
        if self.encrypts() { self.send_record(io, kind, bytes) } else { Err(no_keys()) }
    }

    fn send_record(&self, io: &Io, kind: u8, bytes: &[u8]) -> io::Result<()> {
        let mut memory = [0; space(1)];
        let mut control = ControlWriter::new(&mut memory, Direction::Sent);
        assert!(control.push(Control::RecordType(kind)), "there is space for one byte");
        let len = control.len();
        io.driver.kernel().send_datagram_now(self.fd, &[], &memory[..len], bytes)
    }

    fn send_keys(&mut self) -> Option<&mut SendKeys> {
        match self.special.as_deref_mut() {
            Some(Special::KernelTls(keys)) => Some(keys),
            _ => None,
        }
    }

    fn record_step(&mut self) -> RecordStep {
        self.send_keys().map_or(RecordStep::None, |keys| keys.step)
    }

    fn set_record_step(&mut self, to: RecordStep) {
        if let Some(keys) = self.send_keys() {
            keys.step = to;
        }
    }
}

fn no_keys() -> io::Error {
    let text = "the kernel has no keys for what the stream sends";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cold]
fn spent(limit: u64) -> io::Error {
    let text = format!(
        "kernel TLS: the keys of this session have encrypted {limit} records, as many as their cipher allows: shut it down, and go on with \
         a new session"
    );
    io::Error::new(io::ErrorKind::QuotaExceeded, text)
}
