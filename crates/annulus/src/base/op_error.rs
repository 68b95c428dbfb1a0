//! Errors that name the operation that failed, and the address.

use crate::base::unix_address::to_std;
use crate::error_text::WithText;
use annulus_kernel::{Address, CallError, UnixName};
use std::error::Error;
use std::fmt;
use std::io;
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
    /// The phrases with and without an address behind them.
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

/// An error of a socket that names the operation and the address: `receiving from 127.0.0.1:5: Connection reset by peer (os error
/// 104)`. It is inside an [`io::Error`] of the same kind. The standard library's errors have either a text or the system's number; so
/// [`io::Error::raw_os_error`] of such an error is `None`, and [`os_error`](crate::io::os_error) is the number.
///
/// ```
/// use annulus::net::{OpError, Operation, TcpListener, TcpStream};
/// use std::io::ErrorKind;
///
/// # annulus::run(async {
/// let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
/// // The listener closes with the turn.
/// annulus::yield_now().await;
/// let error = TcpStream::connect(address).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
/// assert_eq!(annulus::io::os_error(&error), Some(111));
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
    /// An address that says nothing, that of an unnamed Unix socket, is left out.
    #[cold]
    pub(crate) fn new(operation: Operation, address: Option<Address>, error: io::Error) -> Self {
        let address = address.filter(|address| !matches!(address.to_unix(), Ok(UnixName::Unnamed)));
        let (with, without) = operation.phrases();
        let text = match &address {
            Some(address) => format!("{with} {address:?}: {error}"),
            None => format!("{without}: {error}"),
        };
        Self { operation, address, error, text }
    }

    /// The error with a text of its own, which has that of the cause.
    #[cold]
    pub(crate) fn with_text(self, text: String) -> Self {
        Self { text, ..self }
    }

    /// The operation and the address that an error names, if it names them.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The operation that failed.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The internet address: the peer's, or the local one that was to be bound. `None` if it is not known any more.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.as_ref()?.to_inet().ok()
    }

    /// The Unix address, likewise; `None` if it has no name.
    pub fn unix_address(&self) -> Option<unix::net::SocketAddr> {
        to_std(self.address.as_ref()?).ok()
    }

    /// The error without operation and address.
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// As `Display`: a program whose `main` returns an error prints this.
impl fmt::Debug for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

// The text includes that of the cause, which is therefore not the source.
impl Error for OpError {}

impl From<OpError> for io::Error {
    fn from(error: OpError) -> Self {
        Self::new(error.error.kind(), error)
    }
}

/// The system's number of an error, also of one that names operation and address, the system call, a path or a program:
/// [`io::Error::raw_os_error`] has none for these.
///
/// ```
/// # annulus::run(async {
/// // Nothing may listen on this address.
/// let error = annulus::net::TcpListener::bind("192.0.2.1:0").unwrap_err();
/// assert_eq!(annulus::io::os_error(&error), Some(99));
/// # })
/// ```
pub fn os_error(error: &io::Error) -> Option<i32> {
    let error = OpError::of(error).map_or(error, OpError::error);
    let of_call = || error.get_ref()?.downcast_ref::<CallError>()?.os_error();
    let of_text = || os_error(error.get_ref()?.downcast_ref::<WithText>()?.error());
    error.raw_os_error().or_else(of_call).or_else(of_text)
}
