//! The two ends of a pipe.

mod adopt;

pub use adopt::OpenOptions;

use super::new_fd::NewFd;
use super::parts::given;
use super::recv_buffer::RecvBuffer;
use super::stream_handle::{AsStream, SendFuture, StreamHandle};
use super::stream_methods::shared;
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use crate::runtime::current;
use annulus_kernel::named;
use annulus_kernel::pipe::SigPipe;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

/// Creates a pipe. Both ends are closed in programs that this process executes.
///
/// # Errors
/// Out of descriptors; outside a runtime; `Unsupported` under a simulated kernel, which has no
/// pipes.
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    current::get()?;
    let (reading, writing) = annulus_kernel::pipe::pipe().map_err(named("pipe2"))?;
    Ok((Sender::of_pipe(writing)?, Receiver::of_pipe(reading)?))
}

/// The writing end of a pipe. When it is dropped, queued bytes are still written within the
/// runtime's [linger](crate::Builder::linger). After that, the reader sees the end.
///
/// [`shutdown`](Self::shutdown) needs a free descriptor for a moment. If no descriptor is free, it
/// fails, and the reader sees the end when the sender is dropped.
///
/// A pipe whose reader is gone fails with `BrokenPipe`. This does not raise SIGPIPE, unless the
/// program has begun to handle that signal after this end was created.
///
/// ```
/// use annulus::pipe::pipe;
/// use std::io::ErrorKind;
///
/// # annulus::run(async {
/// let (mut sender, receiver) = pipe()?;
/// drop(receiver);
/// // The receiver closes at the end of the turn.
/// annulus::yield_now().await;
/// sender.send("to no reader").await?;
/// assert_eq!(sender.drain().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Sender {
    handle: StreamHandle,
}

/// The reading end of a pipe. When a task waits for bytes, all available bytes up to 64 KiB are
/// read from the pipe.
///
/// ```
/// # annulus::run(async {
/// let (mut sender, mut receiver) = annulus::pipe::pipe()?;
/// annulus::spawn(async move { sender.send("a line\n").await });
/// let line = receiver.recv().await?.expect("not the end yet");
/// assert_eq!(&*line, b"a line\n");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Receiver {
    handle: StreamHandle,
    unread: RecvBuffer,
}

impl Sender {
    pub(in crate::net) fn handle(&self) -> &StreamHandle {
        &self.handle
    }

    fn of_pipe(pipe: OwnedFd) -> io::Result<Self> {
        handle_of(pipe, SigPipe::of_process()).map(|handle| Self { handle })
    }

    shared!(send);
}

impl Receiver {
    pub(in crate::net) fn handle(&self) -> &StreamHandle {
        &self.handle
    }

    fn of_pipe(pipe: OwnedFd) -> io::Result<Self> {
        let handle = handle_of(pipe, SigPipe::Ignored)?;
        Ok(Self { handle, unread: RecvBuffer::default() })
    }

    shared!(recv);
}

impl AsStream for Sender {
    fn handle(&self) -> &StreamHandle {
        &self.handle
    }
}

/// Creates the handle for a non-blocking pipe.
fn handle_of(pipe: OwnedFd, signal: SigPipe) -> io::Result<StreamHandle> {
    let core = current::get()?;
    if !core.kernel.real_descriptors() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a simulation has no pipes"));
    }
    let socket = NewFd::own(&core.kernel, given(pipe));
    let handle = StreamHandle::new(core, socket, None)?;
    handle.be_pipe(signal)?;
    Ok(handle)
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}
