//! Copies in both directions of two streams, as proxies make them.

use super::AsyncStream;
use super::transfer::Transfer;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

/// Copies everything that `a` receives to `b`, and everything that `b` receives to `a`, until both have ended: the bytes of each
/// direction, that from `a` to `b` first.
///
/// The end of one stream shuts down the sending side of the other; the other direction continues. Streams of this crate pass their
/// leases on without a copy, and a stream whose peer does not read is not received from for the other.
///
/// ```
/// use annulus::io::copy_bidirectional;
/// use annulus::net::UnixStream;
///
/// # annulus::run(async {
/// let (mut client, mut near) = UnixStream::pair()?;
/// let (mut far, mut server) = UnixStream::pair()?;
/// let proxy = annulus::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
/// client.send("a request").await?;
/// client.shutdown().await?;
/// assert_eq!(server.recv().await?.as_deref(), Some(&b"a request"[..]));
/// server.send("an answer, after the end of the request").await?;
/// server.shutdown().await?;
/// assert_eq!(proxy.await??, (9, 39));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # What dropping the future does
///
/// Both streams stay as they are. Bytes that were received from a stream of this crate were accepted by the other, if that is one, too,
/// and are sent. A stream of a program's own may lose the piece that it had not wholly accepted.
///
/// # Errors
/// The first error of a direction, of the same kind; it wraps a [`CopyError`], with the direction that failed and how many bytes
/// had gone. What was accepted in the other direction is sent.
pub async fn copy_bidirectional(
    a: &mut impl AsyncStream,
    b: &mut impl AsyncStream,
) -> io::Result<(u64, u64)> {
    let (mut forth, mut back) = (OneDirection::new(), OneDirection::new());
    let ended = poll_fn(|cx| {
        let forth_ended = forth.poll(cx, a, b).map_err(|error| (Direction::AToB, error))?;
        let back_ended = back.poll(cx, b, a).map_err(|error| (Direction::BToA, error))?;
        if forth_ended.is_ready() && back_ended.is_ready() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    });
    let ended = ended.await;
    let copied = (forth.transfer.copied(), back.transfer.copied());
    match ended {
        Ok(()) => Ok(copied),
        Err((direction, error)) => {
            let kind = error.kind();
            Err(io::Error::new(kind, CopyError { direction, copied, error }))
        }
    }
}

/// A direction of [`copy_bidirectional`], named by a [`CopyError`].
///
/// ```
/// use annulus::io::Direction;
///
/// fn name(direction: Direction) -> &'static str {
///     match direction {
///         Direction::AToB => "upload",
///         Direction::BToA => "download",
///     }
/// }
/// # assert_eq!(name(Direction::BToA), "download");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first stream to the second.
    AToB,
    /// From the second stream to the first.
    BToA,
}

/// Why [`copy_bidirectional`] has failed: the value inside of its [`io::Error`].
///
/// ```
/// use annulus::io::{CopyError, Direction};
///
/// fn failed_in_upload(error: &std::io::Error) -> bool {
///     let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<CopyError>());
///     inner.is_some_and(|error| error.direction() == Direction::AToB)
/// }
/// # assert!(!failed_in_upload(&std::io::ErrorKind::NotFound.into()));
/// ```
#[derive(Debug)]
pub struct CopyError {
    direction: Direction,
    copied: (u64, u64),
    error: io::Error,
}

impl CopyError {
    /// The direction in which receiving or sending failed.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The bytes that were accepted in each direction, that from the first to the second stream first.
    pub fn copied(&self) -> (u64, u64) {
        self.copied
    }

    /// The error of the stream.
    pub fn io_error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from_to, (there, back)) = match self.direction {
            Direction::AToB => ("the first to the second", self.copied),
            Direction::BToA => ("the second to the first", (self.copied.1, self.copied.0)),
        };
        let error = &self.error;
        write!(
            f,
            "copying from {from_to} stream, after {there} bytes ({back} the other way): {error}"
        )
    }
}

// The text includes that of the cause, which is therefore not the source.
impl Error for CopyError {}

/// One direction: copies, then passes the end on.
struct OneDirection {
    transfer: Transfer,
    state: State,
}

enum State {
    Copying,
    Ending,
    Ended,
}

impl OneDirection {
    fn new() -> Self {
        Self { transfer: Transfer::new(u64::MAX), state: State::Copying }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut impl AsyncStream,
        to: &mut impl AsyncStream,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.state {
                State::Copying => {
                    ready!(self.transfer.poll(cx, from, to))?;
                    self.state = State::Ending;
                }
                State::Ending => {
                    ready!(to.poll_shutdown(cx))?;
                    self.state = State::Ended;
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}
