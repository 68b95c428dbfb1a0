//! The two directions of a stream, for two tasks.

use super::recv_buffer::RecvBuffer;
use super::socket::Socket;
use super::stream_handle::{AsStream, SendFuture, StreamHandle};
use super::stream_methods::shared;
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use annulus_kernel::SocketOption;
use rustix::net::AddressFamily;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The receiving half of a [`TcpStream`](super::TcpStream) or [`UnixStream`](super::UnixStream).
///
/// It ends when the peer closes its sending direction, or with an error. Dropping it does not stop
/// the other half.
///
/// ```
/// use annulus::net::{RecvHalf, UnixStream};
///
/// /// Counts bytes until the peer has closed its sending direction.
/// async fn count(mut input: RecvHalf) -> std::io::Result<usize> {
///     let mut bytes = 0;
///     while let Some(lease) = input.recv().await? {
///         bytes += lease.len();
///     }
///     Ok(bytes)
/// }
///
/// # annulus::run(async {
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (receiving, mut sending) = stream.split();
/// let counting = annulus::spawn(count(receiving));
/// sending.send("meanwhile").await?;
/// assert_eq!(&*peer.recv().await?.unwrap(), b"meanwhile");
/// peer.send("12345").await?;
/// peer.shutdown().await?;
/// assert_eq!(counting.await.unwrap()?, 5);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct RecvHalf {
    handle: Rc<StreamHandle>,
    unread: RecvBuffer,
}

impl RecvHalf {
    pub(super) fn new(handle: Rc<StreamHandle>, unread: RecvBuffer) -> Self {
        Self { handle, unread }
    }

    shared!(recv);

    /// Returns the peer's address.
    ///
    /// # Errors
    /// If it is not a TCP stream, if the connection is closed, or if the runtime has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet())
    }
}

/// The sending half of a [`TcpStream`](super::TcpStream) or [`UnixStream`](super::UnixStream).
/// Dropping it closes the sending direction once everything has been sent.
///
/// ```
/// use annulus::net::UnixStream;
///
/// # annulus::run(async {
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (mut receiving, mut sending) = stream.split();
/// sending.send("last words").await?;
/// drop(sending);
/// assert_eq!(&*peer.recv().await?.unwrap(), b"last words");
/// assert!(peer.recv().await?.is_none()); // This direction has ended,
/// peer.send("still heard").await?; // and the other has not.
/// assert_eq!(&*receiving.recv().await?.unwrap(), b"still heard");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct SendHalf {
    handle: Rc<StreamHandle>,
    /// Whether the halves have been rejoined.
    reunited: bool,
}

impl SendHalf {
    pub(super) fn new(handle: Rc<StreamHandle>) -> Self {
        Self { handle, reunited: false }
    }

    shared!(send);
}

impl AsStream for SendHalf {
    fn handle(&self) -> &StreamHandle {
        &self.handle
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        if !self.reunited
            && let Ok(mut inner) = self.handle.core.borrow()
        {
            let inner = &mut *inner;
            inner.streams.get(self.handle.slot).0.end_when_sent(&mut inner.state);
        }
    }
}

/// Rejoins two halves if they belong to the same stream and it has this address family.
pub(super) fn reunite(
    receiving: RecvHalf,
    mut sending: SendHalf,
    family: Family,
) -> Result<(StreamHandle, RecvBuffer), ReuniteError> {
    if let Err(reason) = check_halves(&receiving, &sending, family) {
        return Err(ReuniteError { receiving, sending, reason });
    }
    sending.reunited = true;
    drop(sending);
    let RecvHalf { handle, unread } = receiving;
    let handle = Rc::into_inner(handle).expect("a stream has more than two halves");
    Ok((handle, unread))
}

/// # Errors
/// The reason the halves do not form a stream of this address family.
fn check_halves(receiving: &RecvHalf, sending: &SendHalf, family: Family) -> Result<(), String> {
    if !Rc::ptr_eq(&receiving.handle, &sending.handle) {
        return Err("the halves belong to different streams".into());
    }
    match Family::of(&receiving.handle) {
        Ok(is) if is == family => Ok(()),
        Ok(is) => Err(format!("the halves belong to a {is:?} stream, not to a {family:?} stream")),
        Err(error) => Err(error.to_string()),
    }
}

/// The address family of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Tcp,
    Unix,
}

impl Family {
    fn of(handle: &StreamHandle) -> io::Result<Self> {
        let domain = handle.query(SocketOption::Domain)?;
        let is_unix = domain == u32::from(AddressFamily::UNIX.as_raw());
        Ok(if is_unix { Self::Unix } else { Self::Tcp })
    }
}

/// The error for two halves that do not form a stream of the type: see
/// [`TcpStream::reunite`](super::TcpStream::reunite).
///
/// ```
/// use annulus::net::{TcpStream, UnixStream};
///
/// # annulus::run(async {
/// let (stream, _peer) = UnixStream::pair()?;
/// let (receiving, sending) = stream.split();
/// let error = TcpStream::reunite(receiving, sending).unwrap_err();
/// let stream = UnixStream::reunite(error.receiving, error.sending).expect("halves of one stream");
/// # drop(stream);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct ReuniteError {
    /// The receiving half.
    pub receiving: RecvHalf,
    /// The sending half.
    pub sending: SendHalf,
    reason: String,
}

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ReuniteError {}

impl fmt::Debug for RecvHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvHalf")
    }
}

impl fmt::Debug for SendHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendHalf")
    }
}
