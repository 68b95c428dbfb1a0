//! Pipes: byte streams from one process or thread to another. They are used like other streams.
//!
//! [`pipe()`] creates a [`Sender`] and a [`Receiver`], [`OpenOptions`] opens a named pipe, and
//! `try_from` adopts descriptors.
//!
//! Reads and writes are made on the loop and never wait, so a pipe needs no thread.
//!
//! ```
//! use annulus::pipe::pipe;
//!
//! # annulus::run(async {
//! let (mut sender, mut receiver) = pipe()?;
//! sender.send("through the pipe").await?;
//! sender.shutdown().await?;
//! assert_eq!(receiver.recv().await?.as_deref(), Some(&b"through the pipe"[..]));
//! assert!(receiver.recv().await?.is_none());
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```

use crate::bytes::chunk::IntoChunk;
use crate::bytes::lease::Lease;
use crate::bytes::thread_bound::stays;
use crate::fs::path::about;
use crate::net::{AsStream, NewFd, RecvBuffer, SendFuture, StreamHandle, borrow_exposed, given};
use crate::runtime::current;
use annulus_kernel::pipe::{self, SigPipe};
use annulus_kernel::{descriptor, named, with_text};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::task::{Context, Poll};

/// Creates a pipe. Both ends are closed in programs that this process executes.
///
/// # Errors
/// If the process has no free descriptor, or outside a runtime. `Unsupported` under a simulated
/// kernel, which has no pipes.
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    current::get()?;
    let (reading, writing) = annulus_kernel::pipe::pipe().map_err(named("pipe2"))?;
    Ok((Sender::of_pipe(writing)?, Receiver::of_pipe(reading)?))
}

/// The write end of a pipe. When it is dropped, queued bytes are still written within the
/// runtime's [linger](crate::Builder::linger). After that, the reader sees the end.
///
/// [`shutdown`](Self::shutdown) needs a free descriptor for a moment. If no descriptor is free, it
/// fails, and the reader sees the end when the sender is dropped.
///
/// Sends to a pipe without a reader fail with `BrokenPipe`. This does not raise SIGPIPE, unless the
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
/// annulus::task::yield_now().await;
/// sender.send("to no reader").await?;
/// assert_eq!(sender.drain().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Sender {
    handle: StreamHandle,
}

/// The read end of a pipe. When a task waits for bytes, all available bytes up to 64 KiB are
/// read from the pipe.
///
/// ```
/// # annulus::run(async {
/// let (mut sender, mut receiver) = annulus::pipe::pipe()?;
/// annulus::spawn(async move { sender.send("a line\n").await });
/// let line = receiver.recv().await?.expect("the stream ended too early");
/// assert_eq!(&*line, b"a line\n");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Receiver {
    handle: StreamHandle,
    unread: RecvBuffer,
}

stays! {
    Send Sender Sync Sender
    Send Receiver Sync Receiver
}

impl Sender {
    fn of_pipe(pipe: OwnedFd) -> io::Result<Self> {
        handle_of(pipe, SigPipe::of_process()).map(|handle| Self { handle })
    }

    /// Queues a chunk, which is a [`Lease`] or any owned bytes, and sends all of it.
    /// See [`TcpStream::send`](crate::net::TcpStream::send).
    ///
    /// # Errors
    /// The errors of [`TcpStream::send`](crate::net::TcpStream::send).
    #[inline]
    pub fn send(&mut self, chunk: impl IntoChunk) -> SendFuture<'_> {
        self.handle.send(chunk.into())
    }

    /// Sends several chunks in order. If the future is dropped, the chunks that it has queued
    /// are sent, and the rest are not.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub async fn send_vectored<C: IntoChunk>(
        &mut self,
        chunks: impl IntoIterator<Item = C>,
    ) -> io::Result<()> {
        self.handle.send_all(chunks.into_iter().map(Into::into)).await
    }

    /// Waits until [`try_write`](Self::try_write) would accept bytes, which means until the queue
    /// is below the unsent limit, even if the kernel has no space. See
    /// [`TcpStream::writable`](crate::net::TcpStream::writable).
    ///
    /// # Errors
    /// The errors of [`TcpStream::writable`](crate::net::TcpStream::writable).
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.handle.poll_space(cx)).await
    }

    /// Like [`write`](Self::write), but never waits.
    ///
    /// # Errors
    /// `WouldBlock` if the unsent limit has been reached, and the errors of [`send`](Self::send).
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.handle.try_write(&[IoSlice::new(bytes)])
    }

    /// Like [`try_write`](Self::try_write), but for several slices in order.
    ///
    /// # Errors
    /// The errors of [`try_write`](Self::try_write).
    pub fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.handle.try_write(slices)
    }

    /// Sends or queues as many of the borrowed bytes as the kernel takes now and the unsent limit
    /// allows, and returns their number: at least one, unless `bytes` is empty.
    /// [`send`](Self::send) sends owned bytes without a copy. See
    /// [`TcpStream::write`](crate::net::TcpStream::write).
    ///
    /// # Errors
    /// The errors of [`TcpStream::write`](crate::net::TcpStream::write).
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.handle.poll_write(cx, &[IoSlice::new(bytes)])).await
    }

    /// Like [`write`](Self::write), but for several slices in order.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|cx| self.handle.poll_write(cx, slices)).await
    }

    /// Sends all of the borrowed bytes, and waits whenever the unsent limit has been reached. See
    /// [`TcpStream::write_all`](crate::net::TcpStream::write_all).
    ///
    /// # Errors
    /// The errors of [`TcpStream::write_all`](crate::net::TcpStream::write_all).
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.handle.write_all(bytes).await
    }

    /// Waits until the kernel has taken all queued bytes. Cancel-safe.
    ///
    /// # Errors
    /// The error of a send, which every later call also returns.
    pub async fn drain(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_drain(cx)).await
    }

    /// Polls like [`drain`](Self::drain).
    ///
    /// # Errors
    /// The errors of [`drain`](Self::drain).
    pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_drain(cx)
    }

    /// Closes the sending direction once everything has been sent: the peer sees the end of the
    /// stream. See [`TcpStream::shutdown`](crate::net::TcpStream::shutdown).
    ///
    /// # Errors
    /// The errors of [`TcpStream::shutdown`](crate::net::TcpStream::shutdown).
    pub async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.handle.poll_shutdown(cx)).await
    }
}

impl Receiver {
    fn of_pipe(pipe: OwnedFd) -> io::Result<Self> {
        let handle = handle_of(pipe, SigPipe::Ignored)?;
        Ok(Self { handle, unread: RecvBuffer::default() })
    }

    pub(crate) fn source_handle(&self) -> &StreamHandle {
        &self.handle
    }

    /// Returns what receiving takes: the handle, and the bytes that it has shown.
    pub(crate) fn source(&mut self) -> (&StreamHandle, &mut RecvBuffer) {
        (&self.handle, &mut self.unread)
    }

    /// Returns the next bytes, at least one, or `None` at the end of the stream and on every later
    /// call. See [`TcpStream::recv`](crate::net::TcpStream::recv).
    ///
    /// # Errors
    /// The errors of [`TcpStream::recv`](crate::net::TcpStream::recv).
    #[inline]
    pub fn recv(&mut self) -> impl Future<Output = io::Result<Option<Lease>>> {
        poll_fn(|cx| self.unread.poll_recv(&self.handle, cx))
    }

    /// Like [`recv`](Self::recv), but returns only bytes that earlier turns of the loop have
    /// received. See [`TcpStream::try_recv`](crate::net::TcpStream::try_recv).
    ///
    /// # Errors
    /// The errors of [`TcpStream::try_recv`](crate::net::TcpStream::try_recv).
    pub fn try_recv(&mut self) -> io::Result<Option<Lease>> {
        self.unread.try_recv(&self.handle)
    }

    /// Waits until [`try_recv`](Self::try_recv) and [`try_read`](Self::try_read) find bytes, the
    /// end of the stream or its error. See
    /// [`TcpStream::readable`](crate::net::TcpStream::readable).
    ///
    /// # Errors
    /// The errors of [`TcpStream::readable`](crate::net::TcpStream::readable).
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.unread.poll_readable(&self.handle, cx)).await
    }

    /// Like [`try_recv`](Self::try_recv), but copies the bytes of one lease into the caller's
    /// memory. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// The errors of [`try_recv`](Self::try_recv).
    pub fn try_read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        self.unread.try_read(&self.handle, memory)
    }

    /// Like [`try_read`](Self::try_read), but fills several pieces of memory in order, with all bytes
    /// that have been received.
    ///
    /// # Errors
    /// The errors of [`try_read`](Self::try_read), unless some bytes were copied.
    pub fn try_read_vectored(&mut self, memory: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.unread.try_read_vectored(&self.handle, memory)
    }

    /// Shows the next bytes, at least one, where the kernel has put them, or none at the end of the
    /// stream. See [`TcpStream::fill_buf`](crate::net::TcpStream::fill_buf).
    ///
    /// # Errors
    /// The errors of [`TcpStream::fill_buf`](crate::net::TcpStream::fill_buf).
    #[inline]
    pub async fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fill_at_least(1).await
    }

    /// Drops the first `n` of the bytes that [`fill_buf`](Self::fill_buf) or
    /// [`fill_at_least`](Self::fill_at_least) showed last.
    ///
    /// # Panics
    /// If fewer than `n` bytes were shown.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        self.unread.consume(n);
    }

    /// Like [`fill_buf`](Self::fill_buf), but waits for at least `n` bytes. See
    /// [`TcpStream::fill_at_least`](crate::net::TcpStream::fill_at_least).
    ///
    /// # Errors
    /// The errors of [`TcpStream::fill_at_least`](crate::net::TcpStream::fill_at_least).
    pub async fn fill_at_least(&mut self, n: usize) -> io::Result<&[u8]> {
        poll_fn(|cx| self.unread.poll_fill_at_least(&self.handle, cx, n).map_ok(drop)).await?;
        Ok(self.unread.shown())
    }

    /// Returns the next `n` bytes as one lease, without a copy if they were received in one piece,
    /// and otherwise gathered in heap memory. See
    /// [`TcpStream::recv_exact`](crate::net::TcpStream::recv_exact).
    ///
    /// # Errors
    /// The errors of [`TcpStream::recv_exact`](crate::net::TcpStream::recv_exact).
    pub async fn recv_exact(&mut self, n: usize) -> io::Result<Lease> {
        poll_fn(|cx| self.unread.poll_exact(&self.handle, cx, n)).await
    }
}

impl AsStream for Sender {
    fn handle(&self) -> &StreamHandle {
        &self.handle
    }
}

/// Creates the handle for a non-blocking pipe.
fn handle_of(pipe: OwnedFd, signal: SigPipe) -> io::Result<StreamHandle> {
    let core = current::get()?;
    core.require_real("a simulation has no pipes")?;
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

/// Takes over an end of a pipe, which becomes non-blocking, even for other processes that share it
/// (`dup`, `fork`).
///
/// # Errors
/// `InvalidInput` if the descriptor is not a pipe or not open for writing. `Unsupported` under a
/// simulated kernel. Also fails outside a runtime. After each of these errors, the descriptor is
/// closed.
impl TryFrom<OwnedFd> for Sender {
    type Error = io::Error;

    fn try_from(pipe: OwnedFd) -> io::Result<Self> {
        current::get()?;
        prepare(&pipe, OFlags::WRONLY, "writing")?;
        Self::of_pipe(pipe)
    }
}

/// Like the conversion to [`Sender`], but for an end that is open for reading.
impl TryFrom<OwnedFd> for Receiver {
    type Error = io::Error;

    fn try_from(pipe: OwnedFd) -> io::Result<Self> {
        current::get()?;
        prepare(&pipe, OFlags::RDONLY, "reading")?;
        Self::of_pipe(pipe)
    }
}

macro_rules! from_std {
    ($($end:ident: $std:ty;)+) => {$(
        impl TryFrom<$std> for $end {
            type Error = io::Error;

            fn try_from(end: $std) -> io::Result<Self> {
                Self::try_from(OwnedFd::from(end))
            }
        }
    )+};
}

from_std! {
    Sender: io::PipeWriter;
    Sender: ChildStdin;
    Receiver: io::PipeReader;
    Receiver: ChildStdout;
    Receiver: ChildStderr;
}

/// Options for opening a named pipe, such as one created by `mkfifo`. Opening does not wait for the
/// other end.
///
/// ```
/// use annulus::pipe::OpenOptions;
///
/// # annulus::run(async {
/// let path = std::env::temp_dir().join(format!("annulus-doc-{}.pipe", std::process::id()));
/// std::process::Command::new("mkfifo").arg(&path).status()?;
/// let mut receiver = OpenOptions::new().open_receiver(&path)?;
/// let mut sender = OpenOptions::new().open_sender(&path)?;
/// sender.send("by name").await?;
/// assert_eq!(receiver.recv().await?.as_deref(), Some(&b"by name"[..]));
/// # std::fs::remove_file(&path)?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read_write: bool,
}

impl OpenOptions {
    /// Returns the default options: a receiver is opened for reading, a sender for writing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the pipe for reading and writing. A sender can then open it while there is no reader,
    /// and a receiver does not see the end of the stream while there is no writer. Off by default.
    pub fn read_write(mut self, on: bool) -> Self {
        self.read_write = on;
        self
    }

    /// Opens the receiving end. Receives wait until the first writer opens the other end. Once the
    /// last writer has closed it, they return the end of the stream, even if another writer opens
    /// it later. To receive from all writers, use [`read_write`](Self::read_write).
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, …, with the path in the message. `InvalidInput` if the file
    /// is not a pipe. `Unsupported` under a simulated kernel. Also fails outside a runtime.
    pub fn open_receiver(&self, path: impl AsRef<Path>) -> io::Result<Receiver> {
        let open = |pipe: OwnedFd| {
            prepare(&pipe, OFlags::RDONLY, "reading")?;
            Receiver::of_pipe(pipe)
        };
        self.open(path.as_ref(), OFlags::RDONLY, open)
    }

    /// Opens the sending end.
    ///
    /// # Errors
    /// The errors of [`open_receiver`](Self::open_receiver), and a system error (`ENXIO`, by
    /// [`raw_os_error`](crate::io::raw_os_error)) if no reader has opened the other end.
    pub fn open_sender(&self, path: impl AsRef<Path>) -> io::Result<Sender> {
        let open = |pipe: OwnedFd| {
            prepare(&pipe, OFlags::WRONLY, "writing")?;
            Sender::of_pipe(pipe)
        };
        self.open(path.as_ref(), OFlags::WRONLY, open)
    }

    fn open<T>(
        &self,
        path: &Path,
        access: OFlags,
        adopt: impl FnOnce(OwnedFd) -> io::Result<T>,
    ) -> io::Result<T> {
        current::get()?;
        let access = if self.read_write { OFlags::RDWR } else { access };
        let opened = pipe::open(path, access).map_err(with_remedy);
        opened.and_then(adopt).map_err(|error| about("opening the pipe", path, error))
    }
}

/// Adds what to do if a pipe cannot be opened for writing because it has no reader.
fn with_remedy(errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    if errno != Errno::NXIO {
        return error;
    }
    let text = format!(
        "{error}: no process has opened it for reading; open its receiving end first, or use read_write(true)"
    );
    with_text(error, text)
}

/// Checks that the descriptor is a pipe with this access, and makes it non-blocking.
fn prepare(end: &OwnedFd, access: OFlags, what: &str) -> io::Result<()> {
    let refused = |why: &str| {
        let text = format!("descriptor {} is {why}", end.as_raw_fd());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    if descriptor::file_type(end)? != FileType::Fifo {
        return refused("not a pipe");
    }
    let open_for = descriptor::flags(end)? & OFlags::RWMODE;
    if open_for != access && open_for != OFlags::RDWR {
        return refused(&format!("a pipe that is not open for {what}"));
    }
    descriptor::set_nonblocking(end, true)
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        borrow_exposed(&self.handle.core, &self.handle)
    }
}

impl AsRawFd for Receiver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// After `shutdown` the descriptor no longer refers to the pipe. If the descriptor was exposed, the
/// reader sees the end of the pipe only when the last handle of the runtime is gone, not at the
/// runtime's end.
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        borrow_exposed(&self.handle.core, &self.handle)
    }
}

impl AsRawFd for Sender {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
