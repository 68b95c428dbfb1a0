//! A connection that belongs to no runtime.
#![allow(unsafe_code)]

use super::datagram_handle::DatagramHandle;
use super::listener_handle::ListenerHandle;
use super::recv_buffer::RecvBuffer;
use super::socket::{NewFd, Socket};
use super::stream_handle::StreamHandle;
use super::{
    RecvHalf, SendHalf, TcpListener, TcpSocket, TcpStream, UdpSocket, UnixDatagram, UnixListener,
    UnixStream,
};
use crate::bytes::thread_bound::stays;
use crate::runtime::current;
use crate::slots::connection_limit::Permit;
use annulus_kernel::{Fd, descriptor};
use std::future::poll_fn;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A connection that belongs to no runtime: its descriptor, and bytes that were received but not
/// yet taken. It is `Send`.
///
/// [`into_parts`](super::TcpStream::into_parts) makes the descriptor blocking, so that it can be a
/// standard stream of a child process (`Stdio::from(parts.socket)`). For a non-blocking socket, use
/// [`into_std`](super::TcpStream::into_std).
///
/// This example moves a connection, and the bytes that have already arrived, to a separate thread:
///
/// ```
/// use annulus::net::{Parts, TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// # annulus::run(async {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut client = TcpStream::connect(listener.local_addr()?).await?;
/// let (stream, _peer) = listener.accept().await?;
/// client.send("request").await?;
/// client.shutdown().await?;
/// let Parts { socket, received, .. } = stream.into_parts().await?;
/// let served = annulus::task::spawn_blocking(move || {
///     let mut stream = std::net::TcpStream::from(socket);
///     let mut request = received;
///     stream.read_to_end(&mut request)?;
///     assert_eq!(request, b"request");
///     stream.write_all(b"answer")
/// });
/// assert_eq!(&*client.recv().await?.unwrap(), b"answer");
/// served.await.unwrap()?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Parts {
    /// The connection's descriptor.
    pub socket: OwnedFd,
    /// Bytes that were received but not yet taken. After
    /// [`from_parts`](super::TcpStream::from_parts), `recv` returns them first.
    pub received: Vec<u8>,
    /// Counts the connection against the `ConnectionLimit`, if any, of the listener that accepted
    /// it.
    permit: Option<Permit>,
}

/// Takes ownership of a real descriptor.
///
/// # Safety
/// The descriptor must belong to the process, be open and have no other owner. No operation on it
/// may be in flight, and no copy of `fd` may be used afterwards.
pub(super) unsafe fn owned(fd: Fd) -> OwnedFd {
    // SAFETY: the caller guarantees that the descriptor is open and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd.raw()) }
}

/// Takes ownership of a real descriptor that the kernel has just created.
///
/// # Safety
/// The number must be an open descriptor of the process without another owner.
pub(super) unsafe fn new_descriptor(number: RawFd) -> OwnedFd {
    // SAFETY: the caller guarantees that the descriptor is open and has no other owner.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Gives up ownership of a real descriptor, so that a runtime can take it over.
pub(crate) fn given(socket: OwnedFd) -> Fd {
    // SAFETY: `into_raw_fd` gives up the only owner of an open descriptor.
    unsafe { Fd::from_raw(socket.into_raw_fd()) }
}

// The types that programs hold come first: without them, the compiler would report each of their
// parts.
stays! {
    Send TcpStream Sync TcpStream
    Send UnixStream Sync UnixStream
    Send RecvHalf Sync RecvHalf
    Send SendHalf Sync SendHalf
    Send TcpListener Sync TcpListener
    Send UnixListener Sync UnixListener
    Send TcpSocket Sync TcpSocket
    Send UdpSocket Sync UdpSocket
    Send UnixDatagram Sync UnixDatagram
    Send NewFd Sync NewFd
    Send StreamHandle Sync StreamHandle
    Send DatagramHandle Sync DatagramHandle
    Send ListenerHandle Sync ListenerHandle
}

impl Parts {
    /// Creates parts from a socket that no runtime owns, and from bytes that were already received
    /// on it.
    pub fn new(socket: OwnedFd, received: Vec<u8>) -> Self {
        Self { socket, received, permit: None }
    }

    /// # Safety
    /// The same conditions as for [`owned`].
    pub(super) unsafe fn of_fd(fd: Fd, received: Vec<u8>, permit: Option<Permit>) -> Self {
        // SAFETY: the caller upholds the conditions of `owned`.
        Self { socket: unsafe { owned(fd) }, received, permit }
    }

    /// Releases a stream from its runtime, with the bytes that it has received. Fails, and closes
    /// the stream, on a simulated kernel.
    pub(super) async fn release(handle: StreamHandle, unread: RecvBuffer) -> io::Result<Self> {
        handle.core.require_real("a simulated connection cannot leave its simulation")?;
        let (fd, received, permit) = poll_fn(|cx| handle.poll_release(cx)).await?;
        handle.forget();
        // SAFETY: the slot was removed with nothing in flight, and the handle was forgotten, so
        // nothing else owns the descriptor. It is real, because `require_real` returned `Ok`.
        let parts = unsafe { Self::of_fd(fd, unread.in_front_of(received), permit) };
        descriptor::set_nonblocking(&parts.socket, false)?;
        Ok(parts)
    }

    /// Returns the socket in non-blocking mode.
    ///
    /// # Errors
    /// `InvalidData` if `received` is not empty, because its bytes would be lost.
    pub(super) fn into_nonblocking(self) -> io::Result<OwnedFd> {
        let Self { socket, received, .. } = self;
        if received.is_empty() {
            descriptor::set_nonblocking(&socket, true)?;
            return Ok(socket);
        }
        let text = format!(
            "{} bytes were received ahead; use into_parts, which returns them",
            received.len()
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// Hands the connection over to the runtime of this thread.
    pub(super) fn adopt(self) -> io::Result<StreamHandle> {
        let core = current::get()?;
        core.require_real("a real connection cannot enter a simulation")?;
        if self.received.len() > i32::MAX as usize {
            let text = format!(
                "{} bytes received ahead are too many; at most {} are allowed",
                self.received.len(),
                i32::MAX
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        descriptor::set_nonblocking(&self.socket, true)?;
        let handle = StreamHandle::adopt(core, self.take())?;
        handle.never_block_on_close();
        Ok(handle)
    }

    fn take(self) -> (Fd, Vec<u8>, Option<Permit>) {
        (given(self.socket), self.received, self.permit)
    }
}
