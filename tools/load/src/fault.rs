//! Failures of a connection: a kind to count by, and a text.

use rustls::CertificateError;
use std::io;
use std::time::Duration;

/// A kind of failure: its name in reports, which is part of the JSON format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) &'static str);

impl Kind {
    pub(crate) const REFUSED: Kind = Kind("connect refused");
    pub(crate) const CONNECT_TIMEOUT: Kind = Kind("connect timeout");
    pub(crate) const NO_LOCAL_PORT: Kind = Kind("no local port");
    pub(crate) const CONNECT_FAILED: Kind = Kind("connect failed");
    pub(crate) const RESET: Kind = Kind("reset");
    pub(crate) const CLOSED_EARLY: Kind = Kind("closed early");
    pub(crate) const WRONG_BYTES: Kind = Kind("wrong bytes");
    pub(crate) const TOO_MANY_BYTES: Kind = Kind("too many bytes");
    pub(crate) const REPLY_TIMEOUT: Kind = Kind("reply timeout");
    pub(crate) const CORRUPT: Kind = Kind("corrupt");
    pub(crate) const MALFORMED: Kind = Kind("malformed reply");
    pub(crate) const ENDLESS_HEAD: Kind = Kind("endless head");
    pub(crate) const WRONG_LENGTH: Kind = Kind("wrong length");
    pub(crate) const CHUNK: Kind = Kind("chunk error");
    pub(crate) const TOO_LONG: Kind = Kind("reply too long");
    pub(crate) const STREAMS_REFUSED: Kind = Kind("streams refused");
    pub(crate) const CERTIFICATE: Kind = Kind("bad certificate");
    pub(crate) const TLS: Kind = Kind("TLS failed");
    pub(crate) const FAILED: Kind = Kind("input/output error");
}

/// One failure of one client.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Fault {
        Fault { kind, detail: detail.into() }
    }

    /// A connect failed.
    pub(crate) fn connect(error: &io::Error) -> Fault {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::ConnectionRefused => (Kind::REFUSED, "is the server running there?"),
            // A path where no server has listened.
            io::ErrorKind::NotFound => (Kind::CONNECT_FAILED, "is the server running there?"),
            io::ErrorKind::TimedOut => {
                (Kind::CONNECT_TIMEOUT, "is the address right, and its backlog not full?")
            }
            io::ErrorKind::AddrNotAvailable => (
                Kind::NO_LOCAL_PORT,
                "ask for fewer clients, or widen net.ipv4.ip_local_port_range",
            ),
            _ => (Kind::CONNECT_FAILED, "check the address"),
        };
        Fault::new(kind, format!("{error}; {advice}"))
    }

    /// The handshake of TLS failed.
    pub(crate) fn handshake(error: &io::Error) -> Fault {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let (kind, advice) = match cause {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                (Kind::CERTIFICATE, "name the file of the root to trust, if it is right")
            }
            Some(error) if error.to_string().contains("CaUsedAsEndEntity") => (
                Kind::CERTIFICATE,
                "it is that of an authority (CA:TRUE): a server needs one of its own",
            ),
            Some(rustls::Error::InvalidCertificate(_)) => {
                (Kind::CERTIFICATE, "the server has to show one for the name that is asked for")
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                (Kind::TLS, "does the server speak TLS there?")
            }
            Some(_) => (Kind::TLS, "the server and this client do not agree"),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                (Kind::TLS, "does the server speak TLS there?")
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
            io::ErrorKind::ConnectionReset => Kind::RESET,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Kind::CLOSED_EARLY,
            _ => Kind::FAILED,
        };
        Fault::new(kind, error.to_string())
    }

    /// The end of the stream after `received` bytes of a reply.
    pub(crate) fn closed_early(received: usize, length: usize) -> Fault {
        Fault::new(
            Kind::CLOSED_EARLY,
            format!("the server closed after {received} of {length} bytes of a reply"),
        )
    }

    /// A byte differs from the one sent.
    pub(crate) fn wrong_byte(at: usize, length: usize) -> Fault {
        Fault::new(
            Kind::WRONG_BYTES,
            format!("byte {at} of a reply of {length} is not what was sent"),
        )
    }

    /// More bytes than were sent.
    pub(crate) fn too_many_bytes(bytes: usize) -> Fault {
        Fault::new(
            Kind::TOO_MANY_BYTES,
            format!("at least {bytes} bytes came beyond what was sent"),
        )
    }

    /// A reply, and no request in flight.
    pub(crate) fn unasked() -> Fault {
        Fault::new(Kind::TOO_MANY_BYTES, "a reply came to no request")
    }

    /// The end of the stream with so many requests in flight, and no byte of a reply.
    pub(crate) fn unanswered(requests: usize) -> Fault {
        Fault::new(
            Kind::CLOSED_EARLY,
            format!("the server closed with {requests} requests in flight"),
        )
    }

    /// No byte of a reply arrived in time.
    pub(crate) fn reply_timeout(limit: Duration) -> Fault {
        Fault::new(Kind::REPLY_TIMEOUT, format!("no byte of a reply came for {limit:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified() {
        let kind = |error: io::ErrorKind| Fault::connect(&error.into()).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionRefused), Kind::REFUSED);
        assert_eq!(kind(io::ErrorKind::TimedOut), Kind::CONNECT_TIMEOUT);
        assert_eq!(kind(io::ErrorKind::AddrNotAvailable), Kind::NO_LOCAL_PORT);
        assert_eq!(kind(io::ErrorKind::PermissionDenied), Kind::CONNECT_FAILED);
        let kind = |error: io::ErrorKind| Fault::transfer(&error.into()).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionReset), Kind::RESET);
        assert_eq!(kind(io::ErrorKind::BrokenPipe), Kind::CLOSED_EARLY);
        assert_eq!(kind(io::ErrorKind::OutOfMemory), Kind::FAILED);
    }
}
