//! Failures of connections: a kind for counting, and a text.

use crate::tls::is_authority_error;
use rustls::{AlertDescription, CertificateError};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A kind of failure. Its name is part of the JSON format.
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

/// The text for a TLS stream that ends without a `close_notify` alert.
const NO_CLOSE_NOTIFY: &str = "TLS ended without close_notify";

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

    /// Classifies a failed connect.
    pub(crate) fn connect(error: &io::Error) -> Fault {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                (FaultKind::REFUSED, "is the server running there?")
            }
            // The path of the Unix socket does not exist, so no server listens there.
            io::ErrorKind::NotFound => (FaultKind::CONNECT_FAILED, "is the server running there?"),
            io::ErrorKind::TimedOut => (
                FaultKind::CONNECT_TIMEOUT,
                "is the address right, and does the server accept \
                    connections quickly enough?",
            ),
            io::ErrorKind::AddrNotAvailable => (
                FaultKind::NO_LOCAL_PORT,
                "use fewer connections, or widen net.ipv4.ip_local_port_range",
            ),
            _ => (FaultKind::CONNECT_FAILED, "check the address"),
        };
        Fault::new(kind, format!("{error}; {advice}"))
    }

    /// Classifies a failed TLS handshake.
    pub(crate) fn handshake(error: &io::Error) -> Fault {
        match tls_cause(error) {
            Some(cause) => Fault::tls(cause),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                Fault::new(FaultKind::TLS, format!("{error}; does the server speak TLS there?"))
            }
            None => Fault::connect(error),
        }
    }

    /// Classifies an error of a TLS session. A server that speaks TLS 1.3 rejects the certificate
    /// of a client only after the handshake.
    fn tls(error: &rustls::Error) -> Fault {
        use CertificateError as Certificate;
        use rustls::Error as Tls;
        let (kind, advice) = match error {
            Tls::InvalidCertificate(_) if is_authority_error(error) => (
                FaultKind::CERTIFICATE,
                "this is the certificate of an authority (CA:TRUE), but a server needs its own; to \
                 trust it anyway, name a file that contains it",
            ),
            Tls::InvalidCertificate(cause) => (
                FaultKind::CERTIFICATE,
                match cause {
                    Certificate::UnknownIssuer => {
                        "if the server is right, name the file with its root certificate"
                    }
                    Certificate::Expired | Certificate::ExpiredContext { .. } => {
                        "the certificate has expired: renew it, or check this machine's clock"
                    }
                    Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                        "the certificate is not valid yet: check the clocks of both machines"
                    }
                    Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                        "the certificate is for another name: request one of its names"
                    }
                    Certificate::Revoked => "the certificate has been revoked: renew it",
                    _ => "the server must present a valid certificate",
                },
            ),
            Tls::AlertReceived(alert) => (FaultKind::TLS, alert_advice(*alert)),
            Tls::InvalidMessage(_) => (FaultKind::TLS, "does the server speak TLS there?"),
            _ => (FaultKind::TLS, "check the TLS versions and settings of the server"),
        };
        Fault::new(kind, format!("{error}; {advice}"))
    }

    /// Classifies a failed send or receive.
    pub(crate) fn transfer(error: &io::Error) -> Fault {
        if let Some(cause) = tls_cause(error) {
            return Fault::tls(cause);
        }
        let kind = match error.kind() {
            // A datagram socket gets this error if no server is listening.
            io::ErrorKind::ConnectionRefused => return Fault::connect(error),
            io::ErrorKind::ConnectionReset => FaultKind::RESET,
            io::ErrorKind::BrokenPipe => FaultKind::CLOSED_EARLY,
            io::ErrorKind::UnexpectedEof => {
                return Fault::new(FaultKind::CLOSED_EARLY, NO_CLOSE_NOTIFY);
            }
            _ => FaultKind::FAILED,
        };
        Fault::new(kind, error.to_string())
    }

    /// Creates the fault for a stream that ended after `received` bytes of a reply.
    pub(crate) fn closed_early(received: usize, length: usize) -> Fault {
        Fault::new(
            FaultKind::CLOSED_EARLY,
            format!("the server closed after {received} of {length} bytes of a reply"),
        )
    }

    pub(crate) fn wrong_byte(at: usize, length: usize) -> Fault {
        Fault::new(
            FaultKind::WRONG_BYTES,
            format!("byte {at} of a reply of {length} differs from the one sent"),
        )
    }

    pub(crate) fn too_many_bytes(bytes: usize) -> Fault {
        Fault::new(
            FaultKind::TOO_MANY_BYTES,
            format!("at least {bytes} bytes more arrived than were sent"),
        )
    }

    pub(crate) fn unrequested_reply() -> Fault {
        Fault::new(FaultKind::TOO_MANY_BYTES, "a reply arrived without a request")
    }

    /// Creates the fault for a stream that ended with this many requests in flight, before any byte
    /// of a reply.
    pub(crate) fn unanswered(requests: usize) -> Fault {
        Fault::new(
            FaultKind::CLOSED_EARLY,
            match requests {
                1 => "the server closed with a request in flight".to_owned(),
                _ => format!("the server closed with {requests} requests in flight"),
            },
        )
    }

    /// Creates the fault for a connection that failed within a body that ends with the connection.
    pub(crate) fn cut_off(error: &io::Error) -> Fault {
        let Fault { kind, detail } = Fault::transfer(error);
        let text = "the reply has neither content-length nor chunks, so its body ends with the \
                    connection, but the connection did not end properly: the body may be incomplete";
        Fault { kind, detail: format!("{text} ({detail})") }
    }

    /// Adds to the text that TLS ended without `close_notify`, so that the end of the stream may be
    /// forged.
    pub(crate) fn without_notify(self) -> Fault {
        Fault { detail: format!("{} ({NO_CLOSE_NOTIFY})", self.detail), ..self }
    }

    /// Creates the fault for a server that does not close the connection although the end of the
    /// body is the end of the connection.
    pub(crate) fn not_closed(limit: Duration) -> Fault {
        let text = format!(
            "the reply has neither content-length nor chunks, so its body ends with the \
             connection, but the server sent nothing for {limit:?} and did not close it"
        );
        Fault::new(FaultKind::REPLY_TIMEOUT, text)
    }

    /// Creates the fault for a server that has received no byte of a long request in time.
    pub(crate) fn upload_timeout(limit: Duration) -> Fault {
        let text = format!("the server received no byte of a request for {limit:?}");
        Fault::new(FaultKind::REPLY_TIMEOUT, text)
    }

    /// Creates the fault for a reply that did not begin or continue in time.
    pub(crate) fn reply_timeout(limit: Duration) -> Fault {
        Fault::new(FaultKind::REPLY_TIMEOUT, format!("no byte of a reply arrived for {limit:?}"))
    }
}

/// Returns the TLS error inside an I/O error, if there is one.
fn tls_cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|cause| cause.downcast_ref())
}

/// Explains an alert with which the server has ended a TLS session.
fn alert_advice(alert: AlertDescription) -> &'static str {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => {
            "the server requires a certificate of the client: give one, with its key"
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => {
            "the server does not accept the client's certificate: give one that it trusts, with its \
             key"
        }
        Alert::ProtocolVersion => {
            "the server supports neither TLS 1.3 nor TLS 1.2: update it, or enable one of them"
        }
        Alert::HandshakeFailure | Alert::InsufficientSecurity => {
            "the server accepts none of the offered cipher suites, or requires a certificate of the \
             client"
        }
        Alert::UnrecognisedName => "the server does not know the requested name: request another",
        Alert::NoApplicationProtocol => {
            "the server does not speak the offered protocol (ALPN): use another version of HTTP"
        }
        _ => "the server ended the session: its log may say why",
    }
}

/// Longer refusals are cut off.
const MAX_REFUSAL_BYTES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) by_kind: BTreeMap<String, u64>,
    pub(crate) first: Option<String>,
    pub(crate) refusal: Option<String>,
}

/// The text of the first reply that was a refusal, shared by the threads of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstRefusal(Arc<OnceLock<String>>);

impl FirstRefusal {
    /// Keeps the text of a refusal if it is the first one, shortened if it is long.
    pub(crate) fn record<T: AsRef<[u8]>>(&self, text: impl FnOnce() -> T) {
        self.0.get_or_init(|| {
            let text = text();
            let (text, rest) = text.as_ref().split_at(text.as_ref().len().min(MAX_REFUSAL_BYTES));
            let more = if rest.is_empty() { "" } else { " …" };
            format!("{}{more}", text.escape_ascii())
        });
    }
}

/// The failures of a run, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    faults: Mutex<Faults>,
    pub(crate) refusal: FirstRefusal,
    /// Guards no other memory, so relaxed ordering is enough.
    is_interrupted: AtomicBool,
}

impl FaultLog {
    /// Records a failure of `client`, unless the run has been interrupted.
    pub(crate) fn record(&self, client: usize, fault: &Fault) {
        if self.is_interrupted() {
            return;
        }
        let mut faults = self.lock();
        *faults.by_kind.entry(fault.kind.0.to_owned()).or_default() += 1;
        faults.first.get_or_insert_with(|| format!("connection {client}: {}", fault.detail));
    }

    /// Marks the run as interrupted: connections that end from now on have not failed.
    pub(crate) fn interrupt(&self) {
        self.is_interrupted.store(true, Relaxed);
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().by_kind.is_empty()
    }

    /// Removes and returns the recorded failures.
    pub(crate) fn take(&self) -> Faults {
        let refusal = self.refusal.0.get().cloned();
        Faults { refusal, ..std::mem::take(&mut *self.lock()) }
    }

    /// Locks the faults and ignores poisoning, because they are consistent even if a thread has
    /// panicked while it held the lock.
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
