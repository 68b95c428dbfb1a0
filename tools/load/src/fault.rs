//! Failures of a connection: a kind to count by, and a text.

use rustls::CertificateError;
use std::io;
use std::time::Duration;

/// Kinds of failure, as counted in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Refused,
    ConnectTimeout,
    NoLocalPort,
    ConnectFailed,
    Reset,
    ClosedEarly,
    WrongBytes,
    TooManyBytes,
    ReplyTimeout,
    Corrupt,
    Malformed,
    EndlessHead,
    WrongLength,
    Chunk,
    TooLong,
    StreamsRefused,
    Certificate,
    Tls,
    Failed,
}

impl Kind {
    /// The name in reports, which is part of the JSON format.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Refused => "connect refused",
            Kind::ConnectTimeout => "connect timeout",
            Kind::NoLocalPort => "no local port",
            Kind::ConnectFailed => "connect failed",
            Kind::Reset => "reset",
            Kind::ClosedEarly => "closed early",
            Kind::WrongBytes => "wrong bytes",
            Kind::TooManyBytes => "too many bytes",
            Kind::ReplyTimeout => "reply timeout",
            Kind::Corrupt => "corrupt",
            Kind::Malformed => "malformed reply",
            Kind::EndlessHead => "endless head",
            Kind::WrongLength => "wrong length",
            Kind::Chunk => "chunk error",
            Kind::TooLong => "reply too long",
            Kind::StreamsRefused => "streams refused",
            Kind::Certificate => "bad certificate",
            Kind::Tls => "TLS failed",
            Kind::Failed => "input/output error",
        }
    }
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
            io::ErrorKind::ConnectionRefused => (Kind::Refused, "is the server running there?"),
            // A path where no server has listened.
            io::ErrorKind::NotFound => (Kind::ConnectFailed, "is the server running there?"),
            io::ErrorKind::TimedOut => {
                (Kind::ConnectTimeout, "is the address right, and its backlog not full?")
            }
            io::ErrorKind::AddrNotAvailable => {
                (Kind::NoLocalPort, "ask for fewer clients, or widen net.ipv4.ip_local_port_range")
            }
            _ => (Kind::ConnectFailed, "check the address"),
        };
        Fault::new(kind, format!("{error}; {advice}"))
    }

    /// The handshake of TLS failed.
    pub(crate) fn handshake(error: &io::Error) -> Fault {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let (kind, advice) = match cause {
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                (Kind::Certificate, "name the file of the root to trust, if it is right")
            }
            Some(error) if error.to_string().contains("CaUsedAsEndEntity") => (
                Kind::Certificate,
                "it is that of an authority (CA:TRUE): a server needs one of its own",
            ),
            Some(rustls::Error::InvalidCertificate(_)) => {
                (Kind::Certificate, "the server has to show one for the name that is asked for")
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                (Kind::Tls, "does the server speak TLS there?")
            }
            Some(_) => (Kind::Tls, "the server and this client do not agree"),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                (Kind::Tls, "does the server speak TLS there?")
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
            io::ErrorKind::ConnectionReset => Kind::Reset,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Kind::ClosedEarly,
            _ => Kind::Failed,
        };
        Fault::new(kind, error.to_string())
    }

    /// The end of the stream after `received` bytes of a reply.
    pub(crate) fn closed_early(received: usize, length: usize) -> Fault {
        Fault::new(
            Kind::ClosedEarly,
            format!("the server closed after {received} of {length} bytes of a reply"),
        )
    }

    /// A byte differs from the one sent.
    pub(crate) fn wrong_byte(at: usize, length: usize) -> Fault {
        Fault::new(
            Kind::WrongBytes,
            format!("byte {at} of a reply of {length} is not what was sent"),
        )
    }

    /// More bytes than were sent.
    pub(crate) fn too_many_bytes(bytes: usize) -> Fault {
        Fault::new(Kind::TooManyBytes, format!("at least {bytes} bytes came beyond what was sent"))
    }

    /// A reply, and no request in flight.
    pub(crate) fn unasked() -> Fault {
        Fault::new(Kind::TooManyBytes, "a reply came to no request")
    }

    /// The end of the stream with so many requests in flight, and no byte of a reply.
    pub(crate) fn unanswered(requests: usize) -> Fault {
        Fault::new(
            Kind::ClosedEarly,
            format!("the server closed with {requests} requests in flight"),
        )
    }

    /// An echo that matches no datagram.
    pub(crate) fn corrupt(what: &str) -> Fault {
        Fault::new(Kind::Corrupt, what)
    }

    /// No byte of a reply arrived in time.
    pub(crate) fn reply_timeout(limit: Duration) -> Fault {
        Fault::new(Kind::ReplyTimeout, format!("no byte of a reply came for {limit:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified() {
        let kind = |error: io::ErrorKind| Fault::connect(&error.into()).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionRefused), Kind::Refused);
        assert_eq!(kind(io::ErrorKind::TimedOut), Kind::ConnectTimeout);
        assert_eq!(kind(io::ErrorKind::AddrNotAvailable), Kind::NoLocalPort);
        assert_eq!(kind(io::ErrorKind::PermissionDenied), Kind::ConnectFailed);
        let kind = |error: io::ErrorKind| Fault::transfer(&error.into()).kind;
        assert_eq!(kind(io::ErrorKind::ConnectionReset), Kind::Reset);
        assert_eq!(kind(io::ErrorKind::BrokenPipe), Kind::ClosedEarly);
        assert_eq!(kind(io::ErrorKind::OutOfMemory), Kind::Failed);
    }
}
