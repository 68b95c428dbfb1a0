//! A Unix stream.
#![allow(unsafe_code)]

use super::super::option_methods::*;
use super::super::parts::{Parts, new_descriptor};
use super::super::recv_buffer::RecvBuffer;
use super::super::socket::Socket;
use super::super::split::{Family, RecvHalf, ReuniteError, SendHalf, reunite};
use super::super::stream_handle::{AsStream, SendFuture, StreamHandle};
use super::super::stream_methods::shared;
use super::UnixOptions;
use crate::base::unix_address::to_std;
use crate::bytes::chunk::{Chunk, IntoChunk};
use crate::bytes::lease::Lease;
use crate::runtime::current;
use annulus_kernel::{Credentials, SocketOption};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A Unix stream. The rules are those of [`TcpStream`](crate::net::TcpStream).
///
/// Without [`UnixOptions::descriptors`], the kernel closes descriptors that a peer sends.
///
/// ```
/// use annulus::net::UnixStream;
///
/// # annulus::run(async {
/// let (mut one, mut two) = UnixStream::pair()?;
/// one.send("over here").await?;
/// assert_eq!(&*two.recv().await?.unwrap(), b"over here");
/// drop(one);
/// assert!(two.recv().await?.is_none());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct UnixStream {
    handle: StreamHandle,
    unread: RecvBuffer,
}

impl UnixStream {
    /// Connects to a path with default [`UnixOptions`]. Waits while the listener's backlog is full.
    ///
    /// # Errors
    /// `NotFound`, `ConnectionRefused` (no listener), …, naming the path; or outside a runtime.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        UnixOptions::new().connect(path).await
    }

    /// Connects to an address, which may be an abstract name.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        UnixOptions::new().connect_addr(address).await
    }

    /// Two streams that are connected to each other.
    ///
    /// # Errors
    /// Out of descriptors, or outside a runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        UnixOptions::new().pair()
    }

    pub(in super::super) fn new(handle: StreamHandle) -> Self {
        Self { handle, unread: RecvBuffer::default() }
    }

    const FAMILY: Family = Family::Unix;

    shared!(stream);
    shared!(parts std::os::unix::net::UnixStream);

    /// The next bytes, and the descriptors that came with them; those of all bytes that
    /// [`peek`](Self::peek) or [`recv_exact`](Self::recv_exact) gathered come with the first.
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); `Unsupported` if the stream was made without
    /// [`descriptors`](UnixOptions::descriptors); `QuotaExceeded` if descriptors that came with the
    /// next bytes are lost, since the process may open no more: the next call has those bytes, and
    /// the descriptors that are left.
    pub async fn recv_with_descriptors(&mut self) -> io::Result<Option<(Lease, Vec<OwnedFd>)>> {
        self.check_passing()?;
        poll_fn(|cx| self.unread.poll_message(&self.handle, cx)).await
    }

    /// Sends all of a chunk, and descriptors with its first byte. They stay open here until they
    /// have left.
    ///
    /// # Errors
    /// As [`send`](Self::send); `InvalidInput` for an empty chunk or more than 253 descriptors;
    /// `Unsupported` if the stream was made without [`descriptors`](UnixOptions::descriptors).
    pub async fn send_with_descriptors(
        &mut self,
        chunk: impl IntoChunk,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        self.check_passing()?;
        let chunk = chunk.into();
        if chunk.is_empty() {
            let text = "descriptors are sent with at least one byte; add one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.handle.send(chunk.with_descriptors(descriptors)?).await
    }

    /// The credentials of the process that connected, listened, or made the pair, as of then.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn peer_cred(&self) -> io::Result<Credentials> {
        self.handle.with_fd(|kernel, fd| kernel.peer_credentials(fd))
    }

    /// A descriptor of that process (`SO_PEERPIDFD`, 6.5): unlike its number, it names no other
    /// process once that has ended.
    ///
    /// # Errors
    /// `Unsupported` under a simulated kernel; an error of the system on older kernels, or if the
    /// process was waited for; after the runtime's end.
    pub fn peer_pidfd(&self) -> io::Result<OwnedFd> {
        let process = self.handle.with_fd(|kernel, fd| kernel.peer_process(fd))?;
        // SAFETY: the kernel has made it for this call. A simulated kernel has no such call.
        Ok(unsafe { new_descriptor(process) })
    }

    options!(methods: buffer error);

    /// The peer's address.
    ///
    /// # Errors
    /// If the connection is closed, or after the runtime's end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| to_std(&kernel.peer_address(fd)?))
    }

    /// The local address.
    ///
    /// # Errors
    /// After the runtime's end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| to_std(&kernel.local_address(fd)?))
    }

    fn check_passing(&self) -> io::Result<()> {
        if self.handle.core.enter()?.streams.get(self.handle.slot).0.passes_descriptors() {
            return Ok(());
        }
        let text = "this stream passes no descriptors; make it with UnixOptions::descriptors";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

shared!(traits UnixStream);
