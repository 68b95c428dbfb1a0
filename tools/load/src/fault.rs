//! Failures of a connection: a kind to count by, and a text.

use rustls::CertificateError;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A kind of failure: its name in reports, which is part of the JSON format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultKind(pub(crate) &'static str);

impl FaultKind {
    pub(crate) const REFUSED: FaultKind = FaultKind("connect refused");
    pub(crate) const CONNECT_TIMEOUT: FaultKind = FaultKind("connect timeout");
    pub(crate) const NO_LOCAL_PORT: FaultKind = FaultKind("no local port");
    pub(crate) const CONNECT_FAILED: FaultKind = FaultKind("connect failed");
    pub(crate) const RESET: FaultKind = FaultKind("reset");
    pub(crate) const CLOSED_EARLY: FaultKind = FaultKind("closed early");
    pub(crate) const WRONG_BYTES: FaultKind = FaultKind("wrong bytes");
    pub(crate) const TOO_MANY_BYTES: FaultKind = FaultKind("too many bytes");
    pub(crate) const REPLY_TIMEOUT: FaultKind = FaultKind("reply timeout");
    pub(crate) const CORRUPT: FaultKind = FaultKind("corrupt");
    pub(crate) const MALFORMED: FaultKind = FaultKind("malformed reply");
    pub(crate) const ENDLESS_HEAD: FaultKind = FaultKind("endless head");
    pub(crate) const WRONG_LENGTH: FaultKind = FaultKind("wrong length");
    pub(crate) const CHUNK: FaultKind = FaultKind("chunk error");
    pub(crate) const TOO_LONG: FaultKind = FaultKind("reply too long");
    pub(crate) const STREAMS_REFUSED: FaultKind = FaultKind("streams refused");
    pub(crate) const CERTIFICATE: FaultKind = FaultKind("bad certificate");
    pub(crate) const TLS: FaultKind = FaultKind("TLS failed");
    pub(crate) const FAILED: FaultKind = FaultKind("input/output error");
}

/// One failure of one client.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, detail: impl Into<String>) -> Fault {
        Fault { kind, detail: detail.into() }
    }

    /// A connect failed.
    pub(crate) fn connect(error: &io::Error) -> Fault {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                (FaultKind::REFUSED, "is the server running there?")
            }
            // A path where no server has listened.
            io::ErrorKind::NotFound => (FaultKind::CONNECT_FAILED, "is the server running there?"),
            io::ErrorKind::TimedOut => {
                (FaultKind::CONNECT_TIMEOUT, "is the address right, and its backlog not full?")
            }
            io::ErrorKind::AddrNotAvailable => (
                FaultKind::NO_LOCAL_PORT,
                "ask for fewer clients, or widen net.ipv4.ip_local_port_range",
            ),
            _ => (FaultKind::CONNECT_FAILED, "check the address"),
        };
        Fault::new(kind, format!("{error}; {advice}"))
    }

    /// The handshake of TLS failed.
    pub(crate) fn handshake(error: &io::Error) -> Fault {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let (kind, advice) = match cause {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                (FaultKind::CERTIFICATE, "name the file of the root to trust, if it is right")
            }
            Some(error) if error.to_string().contains("CaUsedAsEndEntity") => (
                FaultKind::CERTIFICATE,
                "it is that of an authority (CA:TRUE): a server needs one of its own",
            ),
            Some(rustls::Error::InvalidCertificate(_)) => (
                FaultKind::CERTIFICATE,
                "the server has to show one for the name that is asked for",
            ),
            Some(rustls::Error::InvalidMessage(_)) => {
                (FaultKind::TLS, "does the server speak TLS there?")
            }
            Some(_) => (FaultKind::TLS, "the server and this client do not agree"),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                (FaultKind::TLS, "does the server speak TLS there?")
            }
            None => return Fault::connect(error),
        };
        Fault::new(kind, format!("{error}; {advice}"))
    }

    /// A send or a receive failed.
    pub(crate) fn transfer(error: &io::Error) -> Fault {
        let kind = match error.kind() {
            // A datagram socket gets this error if no server listens.
            io::ErrorKind::ConnectionRefused => return Fault::connect(error),
            io::ErrorKind::ConnectionReset => FaultKind::RESET,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => FaultKind::CLOSED_EARLY,
            _ => FaultKind::FAILED,
        };
        Fault::new(kind, error.to_string())
    }

    /// The end of the stream after `received` bytes of a reply.
    pub(crate) fn closed_early(received: usize, length: usize) -> Fault {
        Fault::new(
            FaultKind::CLOSED_EARLY,
            format!("the server closed after {received} of {length} bytes of a reply"),
        )
    }

    /// A byte differs from the one sent.
    pub(crate) fn wrong_byte(at: usize, length: usize) -> Fault {
        Fault::new(
            FaultKind::WRONG_BYTES,
            format!("byte {at} of a reply of {length} is not what was sent"),
        )
    }

    /// More bytes than were sent.
    pub(crate) fn too_many_bytes(bytes: usize) -> Fault {
        Fault::new(
            FaultKind::TOO_MANY_BYTES,
            format!("at least {bytes} bytes came beyond what was sent"),
        )
    }

    /// A reply, and no request in flight.
    pub(crate) fn unrequested_reply() -> Fault {
        Fault::new(FaultKind::TOO_MANY_BYTES, "a reply came to no request")
    }

    /// The end of the stream with so many requests in flight, and no byte of a reply.
    pub(crate) fn unanswered(requests: usize) -> Fault {
        Fault::new(
            FaultKind::CLOSED_EARLY,
            format!("the server closed with {requests} requests in flight"),
        )
    }

    /// No byte of a reply arrived in time.
    pub(crate) fn reply_timeout(limit: Duration) -> Fault {
        Fault::new(FaultKind::REPLY_TIMEOUT, format!("no byte of a reply came for {limit:?}"))
    }
}

/// Most bytes of a refusal that are shown.
const MAX_REFUSAL_BYTES: usize = 200;

/// Failures by kind, and the first one as text; and the first reply that is a refusal.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) by_kind: BTreeMap<String, u64>,
    pub(crate) first: Option<String>,
    pub(crate) refusal: Option<String>,
}

/// The text of the first reply that is a refusal, which the threads of a run share.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstRefusal(Arc<OnceLock<String>>);

impl FirstRefusal {
    /// A reply is a refusal, with this text.
    pub(crate) fn record<T: AsRef<[u8]>>(&self, text: impl FnOnce() -> T) {
        self.0.get_or_init(|| {
            let text = text();
            let (text, rest) = text.as_ref().split_at(text.as_ref().len().min(MAX_REFUSAL_BYTES));
            let more = if rest.is_empty() { "" } else { " …" };
            format!("{}{more}", text.escape_ascii())
        });
    }
}

/// The failures of a run.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    faults: Mutex<Faults>,
    pub(crate) refusal: FirstRefusal,
    /// No other memory is read because of it, so relaxed order is enough.
    is_interrupted: AtomicBool,
}

impl FaultLog {
    /// Records that `client` has failed.
    pub(crate) fn record(&self, client: usize, fault: &Fault) {
        if self.is_interrupted() {
            return;
        }
        let mut faults = self.lock();
        *faults.by_kind.entry(fault.kind.0.to_owned()).or_default() += 1;
        faults.first.get_or_insert_with(|| format!("client {client}: {}", fault.detail));
    }

    /// The run is interrupted: connections that end now have not failed.
    pub(crate) fn interrupt(&self) {
        self.is_interrupted.store(true, Relaxed);
    }

    /// Whether the run is interrupted.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().by_kind.is_empty()
    }

    /// Takes what was recorded.
    pub(crate) fn take(&self) -> Faults {
        let refusal = self.refusal.0.get().cloned();
        Faults { refusal, ..std::mem::take(&mut *self.lock()) }
    }

    /// The data is consistent at any time, even if a thread panicked with the lock.
    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified() {
        let kind = |error: io::ErrorKind| Fault::connect(&error.into()).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionRefused), FaultKind::REFUSED);
        assert_eq!(kind(io::ErrorKind::TimedOut), FaultKind::CONNECT_TIMEOUT);
        assert_eq!(kind(io::ErrorKind::AddrNotAvailable), FaultKind::NO_LOCAL_PORT);
        assert_eq!(kind(io::ErrorKind::PermissionDenied), FaultKind::CONNECT_FAILED);
        let kind = |error: io::ErrorKind| Fault::transfer(&error.into()).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionReset), FaultKind::RESET);
        assert_eq!(kind(io::ErrorKind::BrokenPipe), FaultKind::CLOSED_EARLY);
        assert_eq!(kind(io::ErrorKind::OutOfMemory), FaultKind::FAILED);
    }
}
