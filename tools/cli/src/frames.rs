//! Messages between annulus processes on different machines: a length followed by JSON, with limits
//! on size and time.

use annulus_load::clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// The size of the length before a message.
const LENGTH_BYTES: usize = 4;

/// Why a message could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The peer has closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The connection failed, or the time limit has passed.
    #[error("{0}")]
    Io(io::Error),
    /// The message is longer than the limit.
    #[error(
        "it announced a message of {length} bytes, but the limit is {limit}: check that it is annulus and not another program"
    )]
    TooLong { length: usize, limit: usize },
    /// The message is not valid JSON, or does not have the expected fields.
    #[error(
        "it sent a message that is not understood ({0}): check that it is annulus, in the same version"
    )]
    Invalid(serde_json::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> FrameError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => FrameError::Closed,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                FrameError::Io(io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"))
            }
            _ => FrameError::Io(error),
        }
    }
}

/// Connects to the first of these addresses that accepts, within `limit` each.
pub(crate) fn connect(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match TcpStream::connect_timeout(address, limit) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Starts a thread that passes on the messages of a connection, and at last why it has ended, until
/// `pass_on` returns false.
pub(crate) fn read_all<T: DeserializeOwned>(
    mut stream: TcpStream,
    limit: usize,
    mut pass_on: impl FnMut(Result<T, String>) -> bool + Send + 'static,
) -> io::Result<()> {
    let read_all = move || {
        loop {
            let message = read(&mut stream, limit).map_err(|error| error.to_string());
            let is_end = message.is_err();
            if !pass_on(message) || is_end {
                return;
            }
        }
    };
    thread::Builder::new().spawn(read_all).map(drop)
}

pub(crate) fn write(mut writer: impl Write, message: &impl Serialize) -> Result<(), FrameError> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message).map_err(FrameError::Invalid)?;
    let length = bytes.len() - LENGTH_BYTES;
    let announced = u32::try_from(length)
        .map_err(|_| FrameError::TooLong { length, limit: u32::MAX as usize })?;
    bytes[..LENGTH_BYTES].copy_from_slice(&announced.to_be_bytes());
    writer.write_all(&bytes)?;
    Ok(writer.flush()?)
}

/// Reads a message of at most `limit` bytes. A longer one is refused before any of it is read.
pub(crate) fn read<T: DeserializeOwned>(
    mut reader: impl Read,
    limit: usize,
) -> Result<T, FrameError> {
    let mut length = [0; LENGTH_BYTES];
    reader.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    // Memory grows with the bytes that arrive, not with the announced length.
    let mut bytes = Vec::new();
    if (&mut reader).take(length as u64).read_to_end(&mut bytes)? < length {
        return Err(FrameError::Closed);
    }
    serde_json::from_slice(&bytes).map_err(FrameError::Invalid)
}

/// A connection with one deadline for all reads and writes. A slow peer cannot extend it.
#[derive(Debug)]
pub(crate) struct Deadline {
    stream: TcpStream,
    until: Duration,
}

impl Deadline {
    /// Sets the deadline to `limit` from now.
    pub(crate) fn new(stream: TcpStream, limit: Duration) -> Deadline {
        Deadline { stream, until: clock::now().saturating_add(limit) }
    }

    /// Moves the deadline to `limit` from now.
    pub(crate) fn restart(&mut self, limit: Duration) {
        self.until = clock::now().saturating_add(limit);
    }

    /// Removes the deadline, and returns the connection.
    pub(crate) fn into_unlimited(self) -> io::Result<TcpStream> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)?;
        Ok(self.stream)
    }

    /// Returns the time that is left, which is above zero, or an error after the deadline.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_sub(clock::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Deadline {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left()?;
        self.stream.set_read_timeout(left)?;
        self.stream.read(buffer)
    }
}

impl Write for Deadline {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left()?;
        self.stream.set_write_timeout(left)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn messages_are_read_as_written() {
        let mut bytes = Vec::new();
        write(&mut bytes, &"one").unwrap();
        write(&mut bytes, &[1, 2, 3]).unwrap();
        let mut rest = &bytes[..];
        assert_eq!(read::<String>(&mut rest, 10).unwrap(), "one");
        assert_eq!(read::<Vec<u8>>(&mut rest, 10).unwrap(), [1, 2, 3]);
        assert!(matches!(read::<String>(&mut rest, 10), Err(FrameError::Closed)));
    }

    #[test]
    fn message_beyond_the_limit_is_refused_before_it_is_read() {
        let error = read::<String>(&b"GET / HTTP/1.1\r\n\r\n"[..], 65_536).unwrap_err().to_string();
        assert!(error.contains("1195725856 bytes, but the limit is 65536"), "{error}");
    }

    #[test]
    fn garbage_and_truncated_messages_are_errors() {
        for (bytes, part) in [
            (&b"\0\0\0\x03{x}"[..], "not understood"),
            (b"\0\0\0\x05\"one\"", "not understood"),
            (b"\0\0\0\x05\"on", "closed the connection"),
            (b"\0\0", "closed the connection"),
            (b"", "closed the connection"),
        ] {
            let error = read::<Vec<u8>>(bytes, 100).unwrap_err().to_string();
            assert!(error.contains(part), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn only_the_first_address_that_accepts_gets_a_connection() {
        let [refusing, first, second] =
            ["127.0.0.1:0"; 3].map(|address| TcpListener::bind(address).unwrap());
        let addresses = [&refusing, &first, &second].map(|one| one.local_addr().unwrap());
        drop(refusing);
        let stream = connect(&addresses, Duration::from_secs(5)).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
        second.set_nonblocking(true).unwrap();
        assert_eq!(second.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        let error = connect(&addresses[..2], Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn slow_peer_cannot_extend_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut limited = Deadline::new(stream, Duration::from_millis(50));
        peer.write_all(b"\0\0").unwrap();
        let error = read::<String>(&mut limited, 100).unwrap_err().to_string();
        assert!(error.contains("did not answer in time"), "{error}");
        peer.write_all(b"\0\x05\"one\"").unwrap();
        let error = read::<String>(&mut limited, 100).unwrap_err().to_string();
        assert!(error.contains("did not answer in time"), "{error}");
    }
}
