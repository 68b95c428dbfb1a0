//! The sources and sinks of copies.

use super::{AsyncRecv, AsyncSend};
use crate::fs::{File, FileStream};
use crate::net::StreamHandle;
use std::future::poll_fn;
use std::io;

/// A source of [`copy`](super::copy()): a [`File`], or a type that implements [`AsyncRecv`]. This
/// trait is sealed; implement `AsyncRecv` instead.
///
/// ```
/// use annulus::io::{CopySink, CopySource, copy};
///
/// async fn twice(from: &mut impl CopySource, to: &mut impl CopySink) -> std::io::Result<u64> {
///     Ok(copy(from, to).await? + copy(from, to).await?)
/// }
/// # annulus::run(async {
/// # assert_eq!(twice(&mut &b"all"[..], &mut Vec::new()).await?, 3);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// A half of a stream has only one direction:
///
/// ```compile_fail,E0277
/// async fn backwards(from: &mut annulus::net::SendHalf, to: &mut annulus::net::RecvHalf) {
///     annulus::io::copy(from, to).await.unwrap();
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be copied from",
    label = "neither an `fs::File` nor an `io::AsyncRecv`",
    note = "`io::copy` reads files, streams, their receiving halves, pipes, `&[u8]`, and types that implement `io::AsyncRecv`"
)]
pub trait CopySource: sealed::Sealed<Source<'static>> {
    #[doc(hidden)]
    fn source(&mut self) -> Source<'_>;
}

/// A sink of [`copy`](super::copy()): a [`File`], or a type that implements [`AsyncSend`]. This
/// trait is sealed; implement `AsyncSend` instead.
///
/// ```
/// use annulus::io::{CopySink, copy};
///
/// async fn greet(to: &mut impl CopySink) -> std::io::Result<u64> {
///     copy(&mut &b"hello\n"[..], to).await
/// }
/// # annulus::run(async {
/// # assert_eq!(greet(&mut Vec::new()).await?, 6);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be copied to",
    label = "neither an `fs::File` nor an `io::AsyncSend`",
    note = "`io::copy` writes to files, streams, their sending halves, pipes, `Vec<u8>`, and types that implement `io::AsyncSend`"
)]
pub trait CopySink: sealed::Sealed<Sink<'static>> {
    #[doc(hidden)]
    fn sink(&mut self) -> Sink<'_>;
}

#[expect(missing_debug_implementations, reason = "not nameable")]
pub enum Source<'a> {
    File(&'a File),
    Recv(&'a mut dyn AsyncRecv),
}

#[expect(missing_debug_implementations, reason = "not nameable")]
pub enum Sink<'a> {
    File(&'a File),
    Send(&'a mut dyn AsyncSend),
}

impl Source<'_> {
    /// Returns the file, if the source is a file, or a [`FileStream`] that does not share its
    /// cursor.
    pub(super) fn file(&mut self) -> Option<&File> {
        match self {
            Self::File(file) => Some(file),
            Self::Recv(stream) => stream.own_file().map(|stream| stream.file()),
        }
    }

    /// Like [`file`](Self::file), but first waits for calls at the file's cursor, and moves the
    /// cursor to the first byte that has not been consumed.
    pub(super) async fn settled_file(&mut self) -> io::Result<Option<&File>> {
        match self {
            Self::File(file) => wait_for_cursor_calls(file).await.map(Some),
            Self::Recv(stream) => stream_settled(stream.own_file()).await,
        }
    }
}

impl Sink<'_> {
    /// Returns the file, if the sink is a file, or a [`FileStream`] that does not share its cursor.
    pub(super) fn file(&mut self) -> Option<&File> {
        match self {
            Self::File(file) => Some(file),
            Self::Send(stream) => stream.own_file().map(|stream| stream.file()),
        }
    }

    /// Like [`file`](Self::file), but first waits for calls at the file's cursor, and moves the
    /// cursor to where the next byte will be written.
    pub(super) async fn settled_file(&mut self) -> io::Result<Option<&File>> {
        match self {
            Self::File(file) => wait_for_cursor_calls(file).await.map(Some),
            Self::Send(stream) => stream_settled(stream.own_file()).await,
        }
    }
}

async fn wait_for_cursor_calls(file: &File) -> io::Result<&File> {
    file.wait_for_cursor_calls().await.map(|_| file)
}

async fn stream_settled(stream: Option<&mut FileStream>) -> io::Result<Option<&File>> {
    let Some(stream) = stream else { return Ok(None) };
    poll_fn(|cx| stream.poll_write_next(cx)).await?;
    wait_for_cursor_calls(stream.file()).await.map(Some)
}

/// A stream of this crate, for copies that can do more than `AsyncSend` offers.
#[expect(missing_debug_implementations, reason = "not nameable")]
pub struct OwnStream<'a> {
    pub(crate) handle: &'a StreamHandle,
    /// Whether `sendfile` to the stream never blocks.
    pub(crate) takes_pages: bool,
}

impl OwnStream<'_> {
    /// Returns the number of queued bytes that the kernel has not taken yet.
    pub fn unsent(&self) -> usize {
        self.handle.unsent()
    }
}

mod sealed {
    pub trait Sealed<Role> {}
}

impl sealed::Sealed<Source<'static>> for File {}
impl sealed::Sealed<Sink<'static>> for File {}
impl<S: AsyncRecv> sealed::Sealed<Source<'static>> for S {}
impl<S: AsyncSend> sealed::Sealed<Sink<'static>> for S {}

impl CopySource for File {
    fn source(&mut self) -> Source<'_> {
        Source::File(self)
    }
}

impl<S: AsyncRecv> CopySource for S {
    fn source(&mut self) -> Source<'_> {
        Source::Recv(self)
    }
}

impl CopySink for File {
    fn sink(&mut self) -> Sink<'_> {
        Sink::File(self)
    }
}

impl<S: AsyncSend> CopySink for S {
    fn sink(&mut self) -> Sink<'_> {
        Sink::Send(self)
    }
}
