//! What the servers of small writes have in common: arguments, and the two protocols.
//!
//! `PROGRAM PORT SERVICE`, where SERVICE is one of:
//!
//! - `fan-out`: a connection begins with `S` for a subscriber or `P` for the publisher, and the
//!   server answers with the same byte. The publisher's messages begin with their length (32 bits,
//!   little-endian, itself included); each subscriber gets each of them.
//! - `pieces`: a request is `PP BBBB\n`, and the reply is BBBB bytes in PP writes.
//! - `busy`: requests as for `pieces`, while a thousand tasks are ready all the time, each of which
//!   computes for 5 µs per poll. It shows how long a reply waits for other tasks.
//!
//! `fan-out` and `pieces` are written as a beginner would write them, with a write per message or
//! piece. With `-gathering`, they are written as an expert would write them: everything that is
//! available is collected and written at once. Annulus's send gathers by itself, so an expert would
//! write `fan-out-group` there, and `fan-out-shards` for several cores.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::exit;
use std::time::{Duration, Instant};
use std::{hint, io};

use bytes::{Bytes, BytesMut};

pub use listen::{BACKLOG, SHORTAGE, announce, must, ring as on_ring};

/// Messages that a subscriber may be behind before it is disconnected.
pub const BACKLOG_MESSAGES: usize = 1024;
/// Gathering stops once there are this many bytes, and they are written.
pub const GATHERED_BYTES: usize = 64 * 1024;
/// Bytes per receive.
pub const RECEIVE_BYTES: usize = 16 * 1024;
/// The first byte of a subscriber's connection.
pub const SUBSCRIBES: u8 = b'S';
/// The first byte of the publisher's connection.
pub const PUBLISHES: u8 = b'P';

/// The services of a program with the styles [`Style::Each`] and [`Style::Gathering`].
pub const SERVICES: [&str; 4] = ["fan-out", "fan-out-gathering", "pieces", "pieces-gathering"];

const MAX_MESSAGE_BYTES: usize = 64 * 1024;
const REQUEST_BYTES: usize = 8;
const MAX_REPLY_BYTES: usize = 4096;
static REPLY: [u8; MAX_REPLY_BYTES] = [b'x'; MAX_REPLY_BYTES];

/// What to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    FanOut,
    Pieces,
    Busy,
}

/// The arguments of a program.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub address: SocketAddr,
    pub protocol: Protocol,
    pub style: Style,
}

/// How the service is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A write per message or piece.
    Each,
    /// A write of everything that is available.
    Gathering,
    /// A `SendGroup` of annulus.
    Group,
    /// A `SendGroup` on each of annulus's shards, one per CPU that the process may use.
    Shards,
}

impl Task {
    /// Parses the arguments of a program that has these services.
    pub fn from_arguments(services: &[&str]) -> Task {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let parsed = match &arguments[..] {
            [port, service] if services.contains(&service.as_str()) => Task::parse(port, service),
            _ => None,
        };
        parsed.unwrap_or_else(|| {
            eprintln!(
                "usage: PROGRAM PORT SERVICE, such as 0 {}; services: {}",
                services[0],
                services.join(", ")
            );
            exit(2)
        })
    }

    fn parse(port: &str, service: &str) -> Option<Task> {
        let styles = [
            ("-gathering", Style::Gathering),
            ("-group", Style::Group),
            ("-shards", Style::Shards),
        ];
        let (name, style) = styles
            .iter()
            .find_map(|(suffix, style)| Some((service.strip_suffix(suffix)?, *style)))
            .unwrap_or((service, Style::Each));
        let protocol = match name {
            "fan-out" => Protocol::FanOut,
            "pieces" => Protocol::Pieces,
            "busy" => Protocol::Busy,
            _ => return None,
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?));
        Some(Task { address, protocol, style })
    }
}

/// The number of tasks that are ready all the time.
pub const BUSY_TASKS: usize = 1000;

/// Computes for as long as a poll of a busy task takes.
pub fn work() {
    let end = Instant::now() + Duration::from_micros(5);
    while Instant::now() < end {
        hint::spin_loop();
    }
}

/// Returns the length of the message at the start of the bytes, or `None` if more are needed.
pub fn message_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(length) = bytes.first_chunk() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if !(4..=MAX_MESSAGE_BYTES).contains(&length) {
        return Err(io::Error::other("a message has an invalid length"));
    }
    Ok(Some(length))
}

/// Takes the first message out of the received bytes.
pub fn next_message(received: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let length = message_length(received)?.filter(|length| received.len() >= *length);
    Ok(length.map(|length| received.split_to(length).freeze()))
}

/// Returns the pieces of the reply to the request at the start of the bytes, and the bytes after
/// the request; `None` if more are needed.
#[expect(clippy::type_complexity, reason = "one caller per program takes it apart")]
pub fn next_reply(
    received: &[u8],
) -> io::Result<Option<(impl Iterator<Item = &'static [u8]> + use<>, &[u8])>> {
    let Some((request, rest)) = received.split_first_chunk::<REQUEST_BYTES>() else {
        return Ok(None);
    };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0, |number, digit| match digit {
            b'0'..=b'9' => Some(number * 10 + usize::from(digit - b'0')),
            _ => None,
        })
    };
    match (number(&request[..2]), number(&request[3..7])) {
        (Some(pieces @ 1..), Some(bytes @ 1..=MAX_REPLY_BYTES)) if bytes % pieces == 0 => {
            Ok(Some((REPLY[..bytes].chunks(bytes / pieces), rest)))
        }
        _ => Err(io::Error::other("a request is `PP BBBB\\n`, at most 4096 bytes in equal pieces")),
    }
}
