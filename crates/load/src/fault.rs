//! What can go wrong at one connection: a kind to count by, and a sentence to show.

use crate::pattern::Departure;
use std::io;

/// Kinds of failure, as they are counted in a report.
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
    Failed,
}

impl Kind {
    /// The name in reports: part of the JSON's meaning.
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

    /// A connect that failed.
    pub(crate) fn connect(error: &io::Error) -> Fault {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::ConnectionRefused => (Kind::Refused, "is the server running there?"),
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

    /// A send or a receive that failed.
    pub(crate) fn transfer(error: &io::Error) -> Fault {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionReset => Kind::Reset,
            io::ErrorKind::BrokenPipe => Kind::ClosedEarly,
            _ => Kind::Failed,
        };
        Fault::new(kind, error.to_string())
    }

    /// The end of stream in the middle of a message.
    pub(crate) fn closed(missing: usize, length: usize) -> Fault {
        let came = length - missing;
        Fault::new(
            Kind::ClosedEarly,
            format!("the server closed after {came} of {length} bytes of a reply"),
        )
    }

    /// Bytes that are not those that were sent.
    pub(crate) fn departed(departure: Departure, length: usize) -> Fault {
        match departure {
            Departure::Differs { left } => Fault::new(
                Kind::WrongBytes,
                format!("byte {} of a reply of {length} is not what was sent", length - left),
            ),
            Departure::Surplus { bytes } => Fault::surplus(bytes, length),
        }
    }

    /// More bytes than were sent.
    pub(crate) fn surplus(bytes: usize, length: usize) -> Fault {
        Fault::new(
            Kind::TooManyBytes,
            format!("at least {bytes} more bytes came than the {length} of a reply"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_find_their_kind() {
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

    #[test]
    fn a_wrong_byte_is_counted_from_the_start_of_the_message() {
        let fault = Fault::departed(Departure::Differs { left: 412 }, 512);
        assert_eq!(fault.detail, "byte 100 of a reply of 512 is not what was sent");
    }
}
