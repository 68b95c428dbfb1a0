//! Errors with more detail than the standard ones: which operation failed and for which address,
//! or a longer message.

pub(crate) use annulus_kernel::with_text;
use annulus_kernel::{Address, UnixName, with_watch_limit, without_text};
use annulus_ring::SetupError;
use std::error::Error;
use std::fmt;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::os::unix;

/// The operation that failed.
///
/// ```
/// use annulus::net::{OpError, Operation, UnixListener};
///
/// # annulus::run(async {
/// let error = UnixListener::bind("/nonexistent/socket").map(drop).unwrap_err();
/// let operation = OpError::of(&error).map(OpError::operation);
/// assert_eq!(operation, Some(Operation::Listen));
/// # })
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Binding a local address.
    Bind,
    /// Listening on a local address.
    Listen,
    /// Connecting to a peer.
    Connect,
    /// Receiving from a peer.
    Recv,
    /// Sending to a peer.
    Send,
}

impl Operation {
    /// Returns the phrases for texts with and without an address.
    fn phrases(self) -> (&'static str, &'static str) {
        match self {
            Self::Bind => ("binding", "binding"),
            Self::Listen => ("listening on", "listening"),
            Self::Connect => ("connecting to", "connecting"),
            Self::Recv => ("receiving from", "receiving"),
            Self::Send => ("sending to", "sending"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.phrases().1)
    }
}

/// A socket error that includes the operation and the address, such as `receiving from 127.0.0.1:5:
/// Connection reset by peer (os error 104)`. It is wrapped in an [`io::Error`] of the same kind.
///
/// The text includes the text of the cause, so the cause is not also the
/// [`source`](Error::source), which programs print after the text. [`error`](Self::error) returns
/// the cause, and [`raw_os_error`](crate::io::raw_os_error) its number.
///
/// ```
/// use annulus::net::{OpError, Operation, TcpListener, TcpStream};
/// use std::io::ErrorKind;
///
/// # annulus::run(async {
/// let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// // The listener is closed at the end of the turn.
/// annulus::task::yield_now().await;
/// let error = TcpStream::connect(address).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
/// assert_eq!(annulus::io::raw_os_error(&error), Some(111));
/// assert_eq!(error.to_string(), format!("connecting to {address}: Connection refused (os error 111)"));
/// let what = OpError::of(&error).expect("it names operation and address");
/// assert_eq!((what.operation(), what.address()), (Operation::Connect, Some(address)));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct OpError {
    operation: Operation,
    address: Option<Address>,
    error: io::Error,
    text: String,
}

impl OpError {
    /// Creates an error. The text does not show the address of an unnamed Unix socket.
    #[cold]
    pub(crate) fn new(operation: Operation, address: Option<Address>, error: io::Error) -> Self {
        let address = address.filter(|address| !matches!(address.to_unix(), Ok(UnixName::Unnamed)));
        let error = with_watch_limit(error);
        let (with, without) = operation.phrases();
        let text = match &address {
            Some(address) => format!("{with} {address:?}: {error}"),
            None => format!("{without}: {error}"),
        };
        Self { operation, address, error, text }
    }

    /// Replaces the text. The new text must include the cause.
    #[cold]
    pub(crate) fn with_text(self, text: String) -> Self {
        Self { text, ..self }
    }

    /// Returns the operation and the address of an error, if it has them.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the internet address of the peer, or the local address to bind. Returns `None` for
    /// other addresses, or if the address is no longer known.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.as_ref()?.to_inet().ok()
    }

    /// Returns the Unix address of the peer, or the local address to bind. Returns `None` for other
    /// addresses, for unnamed sockets, or if the address is no longer known.
    pub fn unix_address(&self) -> Option<unix::net::SocketAddr> {
        self.address.as_ref()?.to_std_unix().ok()
    }

    /// Returns the error without operation and address.
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// Same text as `Display`, since a program whose `main` returns an error prints this.
impl fmt::Debug for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

// The cause is not the source, since the text already includes it.
impl Error for OpError {}

impl From<OpError> for io::Error {
    fn from(error: OpError) -> Self {
        Self::new(error.error.kind(), error)
    }
}

/// A direction of [`copy_bidirectional`](crate::io::copy_bidirectional), as reported by a
/// [`CopyError`].
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

/// The reason why [`copy_bidirectional`](crate::io::copy_bidirectional) failed: the value inside
/// its [`io::Error`].
///
/// ```
/// use annulus::io::{CopyError, Direction};
///
/// fn failed_in_upload(error: &std::io::Error) -> bool {
///     let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<CopyError>());
///     inner.is_some_and(|error| error.direction() == Some(Direction::AToB))
/// }
/// # assert!(!failed_in_upload(&std::io::ErrorKind::NotFound.into()));
/// ```
#[derive(Debug)]
pub struct CopyError {
    pub(crate) direction: Option<Direction>,
    pub(crate) copied: (u64, u64),
    pub(crate) error: io::Error,
}

impl CopyError {
    /// Returns the direction in which receiving or sending failed, or `None` for a timeout.
    pub fn direction(&self) -> Option<Direction> {
        self.direction
    }

    /// Returns the number of bytes accepted: from the first stream to the second, then from the
    /// second to the first.
    pub fn copied(&self) -> (u64, u64) {
        self.copied
    }

    /// Returns the error of the stream.
    pub fn io_error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, copied: (a_to_b, b_to_a), error } = self;
        let (copying, (there, back)) = match direction {
            Some(Direction::AToB) => ("from the first to the second stream", (a_to_b, b_to_a)),
            Some(Direction::BToA) => ("from the second to the first stream", (b_to_a, a_to_b)),
            None => ("between two streams", (a_to_b, b_to_a)),
        };
        write!(f, "copying {copying}, after {there} bytes ({back} the other way): {error}")
    }
}

// The message includes the text of the cause, so the cause is not the `source`.
impl Error for CopyError {}

/// Returns an error's number from the operating system (`errno`). The number may be inside an error
/// of this crate that adds an operation and an address, a system call, a path or a program.
/// Otherwise looks for the number in the error's [sources](Error::source).
///
/// [`io::Error::raw_os_error`] returns `None` for errors with such details, and the standard
/// library allows nothing else: an [`io::Error`] holds either a number or a value with a text. Its
/// [`kind`](io::Error::kind) is the same in both cases.
///
/// ```
/// # annulus::run(async {
/// // This machine does not have this address.
/// let error = annulus::net::TcpListener::bind("192.0.2.1:0").unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable);
/// assert_eq!(error.raw_os_error(), None);
/// assert_eq!(annulus::io::raw_os_error(&error), Some(99));
/// # })
/// ```
pub fn raw_os_error(error: &io::Error) -> Option<i32> {
    if let Some(number) = error.raw_os_error().or_else(|| raw_os_error(cause(error)?)) {
        return Some(number);
    }
    let inside = error.get_ref()?;
    if let Some(refused) = inside.downcast_ref::<SetupError>() {
        return refused.raw_os_error();
    }
    iter::successors(inside.source(), |error| (*error).source())
        .find_map(|error| error.downcast_ref().and_then(raw_os_error))
}

/// Returns an error with the kind, the number and the text of another.
pub(crate) fn copy_of(error: &io::Error) -> io::Error {
    match raw_os_error(error) {
        Some(number) => with_text(io::Error::from_raw_os_error(number), error.to_string()),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns the error that another error wraps and whose text it includes.
fn cause(error: &io::Error) -> Option<&io::Error> {
    let inside = error.get_ref()?;
    let of_operation = inside.downcast_ref().map(OpError::error);
    let of_copy = || inside.downcast_ref().map(CopyError::io_error);
    of_operation.or_else(of_copy).or_else(|| without_text(error)).or_else(|| inside.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_keep_kind_number_and_text() {
        let plain = || io::Error::from_raw_os_error(28);
        let custom = io::Error::new(io::ErrorKind::InvalidInput, "odd");
        for error in [plain(), with_text(plain(), "writing to a".to_owned()), custom] {
            let copy = copy_of(&error);
            assert_eq!(
                (copy.kind(), raw_os_error(&copy), copy.to_string()),
                (error.kind(), raw_os_error(&error), error.to_string())
            );
        }
    }
}
