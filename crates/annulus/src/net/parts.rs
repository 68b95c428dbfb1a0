//! A connection that belongs to no runtime.
#![allow(unsafe_code)]

use super::datagram_handle::DatagramHandle;
use super::listener_handle::ListenerHandle;
use super::new_fd::NewFd;
use super::stream_handle::StreamHandle;
use crate::bytes::thread_bound::stays;
use crate::slots::connection_limit::Permit;
use annulus_kernel::{Fd, Kernel};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A connection that belongs to no runtime: its descriptor, and bytes that were received but not
/// yet taken. It is `Send`.
///
/// The descriptor is blocking with every driver, so that it can be a standard stream of a child
/// process (`Stdio::from(parts.socket)`). Code that needs a non-blocking one sets the mode or uses
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
/// let served = annulus::spawn_blocking(move || {
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
    /// The connection.
    pub socket: OwnedFd,
    /// Bytes that have already been received. `recv` returns them first.
    pub received: Vec<u8>,
    /// The stream's permit from a connection limit, while no runtime has the stream.
    permit: Option<Permit>,
}

/// Takes ownership of a real descriptor that a runtime gives up.
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

/// # Errors
/// `Unsupported` for real descriptors on a simulated kernel, where their numbers refer to nothing
/// or to something else.
pub(super) fn check_real(kernel: &dyn Kernel, descriptors: &[OwnedFd]) -> io::Result<()> {
    if descriptors.is_empty() || kernel.real_descriptors() {
        return Ok(());
    }
    let text = "a real descriptor cannot enter a simulation";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Hands a real descriptor over to a runtime.
pub(super) fn given(socket: OwnedFd) -> Fd {
    // SAFETY: `into_raw_fd` gives up the only owner of an open descriptor.
    unsafe { Fd::from_raw(socket.into_raw_fd()) }
}

stays! {
    Send NewFd Sync NewFd
    Send StreamHandle Sync StreamHandle
    Send DatagramHandle Sync DatagramHandle
    Send ListenerHandle Sync ListenerHandle
}

impl Parts {
    /// Creates the parts of a connection from elsewhere, with bytes that were received there.
    pub fn new(socket: OwnedFd, received: Vec<u8>) -> Self {
        Self { socket, received, permit: None }
    }

    /// # Safety
    /// The same conditions as for [`owned`].
    pub(super) unsafe fn of_fd(fd: Fd, received: Vec<u8>, permit: Option<Permit>) -> Self {
        // SAFETY: the caller upholds the conditions of `owned`.
        Self { socket: unsafe { owned(fd) }, received, permit }
    }

    pub(super) fn take(self) -> (Fd, Vec<u8>, Option<Permit>) {
        (given(self.socket), self.received, self.permit)
    }
}
