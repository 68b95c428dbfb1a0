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

/// A Unix stream. It follows the same rules as [`TcpStream`](crate::net::TcpStream).
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
    /// `NotFound`, `ConnectionRefused` (no listener), …, with the path in the message; or outside a
    /// runtime.
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

    /// Creates two streams that are connected to each other.
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

    /// Receives the next bytes and the descriptors that arrived with them. If [`peek`](Self::peek)
    /// or [`recv_exact`](Self::recv_exact) gathered bytes, all their descriptors come with the
    /// first of them. Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv); `Unsupported` if the stream was created without
    /// [`descriptors`](UnixOptions::descriptors); `QuotaExceeded` if descriptors that arrived with
    /// the next bytes are lost because the process cannot open more. The next call then returns
    /// those bytes and the remaining descriptors.
    pub async fn recv_with_descriptors(&mut self) -> io::Result<Option<(Lease, Vec<OwnedFd>)>> {
        self.check_passing()?;
        poll_fn(|cx| self.unread.poll_message(&self.handle, cx)).await
    }

    /// Sends a whole chunk, and descriptors with its first byte. The descriptors stay open in this
    /// process until they have left.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send); `InvalidInput` for an empty chunk or more than 253
    /// descriptors; `Unsupported` if the stream was created without
    /// [`descriptors`](UnixOptions::descriptors).
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

    /// Returns the credentials of the peer process at the time when it connected, listened or
    /// created the pair.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn peer_cred(&self) -> io::Result<Credentials> {
        self.handle.with_fd(|kernel, fd| kernel.peer_credentials(fd))
    }

    /// Returns a descriptor of the peer process (`SO_PEERPIDFD`, 6.5). Unlike the process number,
    /// it never refers to another process after the peer has ended.
    ///
    /// # Errors
    /// `Unsupported` under a simulated kernel; a system error on older kernels or if the process
    /// has been waited for; or if the runtime has ended.
    pub fn peer_pidfd(&self) -> io::Result<OwnedFd> {
        let process = self.handle.with_fd(|kernel, fd| kernel.peer_process(fd))?;
        // SAFETY: the kernel created the descriptor for this call, and nothing else owns it. A
        // simulated kernel does not have this call.
        Ok(unsafe { new_descriptor(process) })
    }

    options!(methods: buffer error);

    /// Returns the peer's address.
    ///
    /// # Errors
    /// If the connection is closed or the runtime has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_std_unix())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// If the runtime has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.with_fd(|kernel, fd| kernel.local_address(fd)?.to_std_unix())
    }

    fn check_passing(&self) -> io::Result<()> {
        if self.handle.core.borrow()?.streams.get(self.handle.slot).0.passes_descriptors() {
            return Ok(());
        }
        let text = "this stream cannot pass descriptors; create it with UnixOptions::descriptors";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

shared!(traits UnixStream);
