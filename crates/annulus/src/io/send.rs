//! The trait for sending bytes, for code that is generic over streams.

use super::copy_ends::OwnStream;
use super::recv::AsyncRecv;
use crate::bytes::chunk::{Chunk, IntoChunk};
use crate::fs::FileStream;
use crate::net::{AsStream, SendHalf, TcpStream, UnixStream};
use crate::pipe::Sender;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

/// Sends bytes, owned or borrowed.
///
/// The streams of this crate implement this trait. [`TcpStream`](crate::net::TcpStream),
/// [`UnixStream`](crate::net::UnixStream) and [`SendHalf`](crate::net::SendHalf) send owned bytes
/// without a copy. `Vec<u8>` implements it for tests, and accepts everything. Other types, such as
/// a TLS session, only need the three required methods.
///
/// ```
/// use annulus::io::AsyncSend;
///
/// async fn report(to: &mut impl AsyncSend, count: usize) -> std::io::Result<()> {
///     to.write_all(format!("{count} requests\n").as_bytes()).await?;
///     to.flush().await
/// }
///
/// # annulus::run(async {
/// let mut text = Vec::new();
/// report(&mut text, 3).await?;
/// assert_eq!(text, b"3 requests\n");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[expect(async_fn_in_trait, reason = "futures stay on the thread of their runtime")]
#[diagnostic::on_unimplemented(
    note = "wrap a tokio stream in `io::FromTokio::new` (feature `tokio-io`), and a `futures-io` stream in `tokio_util::compat` first"
)]
pub trait AsyncSend {
    /// Accepts some of the bytes and returns their number: at least one, unless `bytes` is empty.
    /// Pending while none can be accepted.
    ///
    /// # Errors
    /// Errors from sending, including those for bytes that were accepted earlier.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Returns `Ready` once the accepted bytes will be sent without further calls. Sockets and
    /// pipes of this crate need no flush: they are ready at once, and only report the error of an
    /// earlier send. To wait until the kernel has taken the bytes, call
    /// [`drain`](crate::net::TcpStream::drain). Types that buffer or encrypt bytes first pass them
    /// on.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sends the accepted bytes, then closes the sending direction: the peer sees the end of the
    /// stream.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Like [`poll_write`](Self::poll_write), but for several slices in order. The provided method
    /// writes the first slice that is not empty.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        self.poll_write(cx, first.map_or(&[], |slice| slice))
    }

    /// Accepts all bytes of a chunk. While the call is pending, the bytes that have not been
    /// accepted stay in the chunk. The provided method copies them.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        while !chunk.is_empty() {
            match ready!(self.poll_write(cx, chunk.as_ref()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => drop(chunk.split_to(count)),
            }
        }
        Poll::Ready(Ok(()))
    }

    #[doc(hidden)]
    fn own_stream(&self) -> Option<OwnStream<'_>> {
        None
    }

    #[doc(hidden)]
    fn own_file(&mut self) -> Option<&mut FileStream> {
        None
    }

    /// Sends a whole chunk: a [`Lease`](crate::Lease) or any owned bytes. Streams of this crate do
    /// not copy it.
    ///
    /// The future is ready once the chunk has been accepted. If it is dropped first, a stream of
    /// this crate sends all of the chunk or nothing, whereas the provided
    /// [`poll_send`](Self::poll_send) may have sent a part.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    async fn send(&mut self, chunk: impl IntoChunk) -> io::Result<()>
    where
        Self: Sized,
    {
        let mut chunk = chunk.into();
        poll_fn(|cx| self.poll_send(cx, &mut chunk)).await
    }

    /// Accepts some of the bytes and returns their number. Cancel-safe: if the future is dropped
    /// before it is ready, no bytes have been accepted.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_write(cx, bytes)).await
    }

    /// Like [`write`](Self::write), but for several slices in order.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_write_vectored(cx, slices)).await
    }

    /// Writes all of the bytes. If the future is dropped, some of them may have been accepted.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write), and `WriteZero` if no more bytes are
    /// accepted.
    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()>
    where
        Self: Sized,
    {
        while !bytes.is_empty() {
            match self.write(bytes).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// Waits until the accepted bytes will be sent without further calls; see
    /// [`poll_flush`](Self::poll_flush). Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    async fn flush(&mut self) -> io::Result<()>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Sends the accepted bytes, then closes the sending direction; see
    /// [`poll_shutdown`](Self::poll_shutdown). Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`poll_write`](Self::poll_write).
    async fn shutdown(&mut self) -> io::Result<()>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_shutdown(cx)).await
    }
}

/// Both directions of a stream, as a bound for code that is generic over TCP, Unix sockets, TLS and
/// test doubles. It is implemented for every type that implements both traits.
///
/// ```
/// use annulus::io::AsyncStream;
///
/// /// Replies to every message with its length.
/// async fn serve(mut stream: impl AsyncStream) -> std::io::Result<()> {
///     while let Some(message) = stream.recv().await? {
///         stream.send(format!("{}\n", message.len())).await?;
///     }
///     stream.shutdown().await
/// }
///
/// # annulus::run(async {
/// let (mut client, server) = annulus::net::UnixStream::pair()?;
/// annulus::spawn(serve(server));
/// client.write_all(b"hello").await?;
/// assert_eq!(client.recv().await?.as_deref(), Some(&b"5\n"[..]));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    note = "wrap a tokio stream in `io::FromTokio::new` (feature `tokio-io`), and a `futures-io` stream in `tokio_util::compat` first"
)]
pub trait AsyncStream: AsyncRecv + AsyncSend {}

impl<S: AsyncRecv + AsyncSend + ?Sized> AsyncStream for S {}

/// Returns `Ready` once `to` would queue a chunk of any length at once. A sink with the provided
/// [`poll_send`](AsyncSend::poll_send) is always ready.
pub(super) fn poll_room(
    cx: &mut Context<'_>,
    to: &mut (impl AsyncSend + ?Sized),
) -> Poll<io::Result<()>> {
    let mut nothing = Chunk::EMPTY;
    to.poll_send(cx, &mut nothing)
}

macro_rules! forward {
    ($this:ident => $to:expr) => {
        fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let $this = self;
            $to.poll_write(cx, bytes)
        }

        fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let $this = self;
            $to.poll_flush(cx)
        }

        fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let $this = self;
            $to.poll_shutdown(cx)
        }

        fn poll_write_vectored(
            &mut self,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let $this = self;
            $to.poll_write_vectored(cx, slices)
        }

        fn poll_send(&mut self, cx: &mut Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
            let $this = self;
            $to.poll_send(cx, chunk)
        }
    };
}

pub(super) use forward;

impl<S: AsyncSend + ?Sized> AsyncSend for &mut S {
    forward!(this => **this);

    fn own_stream(&self) -> Option<OwnStream<'_>> {
        (**self).own_stream()
    }

    fn own_file(&mut self) -> Option<&mut FileStream> {
        (**self).own_file()
    }
}

impl<S: AsyncSend + ?Sized> AsyncSend for Box<S> {
    forward!(this => **this);

    fn own_stream(&self) -> Option<OwnStream<'_>> {
        (**self).own_stream()
    }

    fn own_file(&mut self) -> Option<&mut FileStream> {
        (**self).own_file()
    }
}

/// For tests: accepts everything.
impl AsyncSend for Vec<u8> {
    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Implements the trait for the streams of this crate. `$takes_pages` says whether `sendfile` to
/// the type never blocks.
macro_rules! of_streams {
    ($($stream:ident: $takes_pages:literal,)*) => {$(
        impl AsyncSend for $stream {
            #[inline]
            fn poll_write(
                &mut self,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.handle().poll_write(cx, &[IoSlice::new(bytes)])
            }

            #[inline]
            fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.handle().poll_flush(cx)
            }

            #[inline]
            fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.handle().poll_shutdown(cx)
            }

            #[inline]
            fn poll_write_vectored(
                &mut self,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.handle().poll_write(cx, slices)
            }

            #[inline]
            fn poll_send(
                &mut self,
                cx: &mut Context<'_>,
                chunk: &mut Chunk,
            ) -> Poll<io::Result<()>> {
                self.handle().poll_send(cx, chunk)
            }

            /// Like the method of the stream.
            #[inline]
            fn send(&mut self, chunk: impl IntoChunk) -> impl Future<Output = io::Result<()>> {
                self.handle().send(chunk.into())
            }

            fn own_stream(&self) -> Option<OwnStream<'_>> {
                Some(OwnStream { handle: self.handle(), takes_pages: $takes_pages })
            }
        }
    )*};
}

// `sendfile` to a full pipe blocks unless the pipe is non-blocking.
of_streams! {
    TcpStream: true,
    UnixStream: true,
    SendHalf: true,
    Sender: false,
}
