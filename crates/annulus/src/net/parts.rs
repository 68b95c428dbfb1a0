//! A connection that belongs to no runtime.
#![allow(unsafe_code)]

use super::datagram_handle::DatagramHandle;
use super::listener_handle::ListenerHandle;
use super::new_fd::NewFd;
use super::stream_handle::StreamHandle;
use crate::base::connection_limit::Permit;
use crate::bytes::thread_bound::stays;
use annulus_kernel::{Fd, Kernel};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A connection that belongs to no runtime: its descriptor, and bytes that were received and not yet taken. `Send`.
///
/// The descriptor is blocking on every driver, so that it can be a standard stream of a child process (`Stdio::from(parts.socket)`). Code
/// that needs a non-blocking one sets the mode, or takes [`into_std`](super::TcpStream::into_std).
///
/// A connection goes to a thread of the program's own; bytes that had arrived go with it:
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
    /// Bytes received already; `recv` returns them first.
    pub received: Vec<u8>,
    /// The stream's part of a connection limit, while no runtime has the stream.
    permit: Option<Permit>,
}

/// Owns a real descriptor that a runtime gives up.
///
/// # Safety
/// The descriptor must be one of the process, open and without another owner. No operation on it may be in flight, and no copy of
/// `fd` may be used afterwards.
pub(super) unsafe fn owned(fd: Fd) -> OwnedFd {
    // SAFETY: this function demands that the descriptor is open and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd.raw()) }
}

/// Owns a real descriptor that the kernel has made just now.
///
/// # Safety
/// The number must be an open descriptor of the process, without another owner.
pub(super) unsafe fn new_descriptor(number: RawFd) -> OwnedFd {
    // SAFETY: this function demands that the descriptor is open and has no other owner.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// # Errors
/// `Unsupported` for real descriptors on a simulated kernel: there their numbers name nothing, or something else.
pub(super) fn check_real(kernel: &dyn Kernel, descriptors: &[OwnedFd]) -> io::Result<()> {
    if descriptors.is_empty() || kernel.real_descriptors() {
        return Ok(());
    }
    let text = "a real descriptor cannot enter a simulation";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Gives a real descriptor to a runtime.
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
    /// A connection from elsewhere, with bytes that were received there.
    pub fn new(socket: OwnedFd, received: Vec<u8>) -> Self {
        Self { socket, received, permit: None }
    }

    /// # Safety
    /// As [`owned`].
    pub(super) unsafe fn of_fd(fd: Fd, received: Vec<u8>, permit: Option<Permit>) -> Self {
        // SAFETY: it is the contract of this function.
        Self { socket: unsafe { owned(fd) }, received, permit }
    }

    pub(super) fn take(self) -> (Fd, Vec<u8>, Option<Permit>) {
        (given(self.socket), self.received, self.permit)
    }
}
