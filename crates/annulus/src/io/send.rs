//! The trait of streams that send bytes, for code that is generic over them.

use super::copy_ends::OwnStream;
use super::recv::AsyncRecv;
use crate::bytes::chunk::{Chunk, IntoChunk};
use crate::fs::FileStream;
use crate::net::AsStream;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

/// Sends bytes, owned or borrowed.
///
/// It is implemented by [`TcpStream`](crate::net::TcpStream), [`UnixStream`](crate::net::UnixStream) and
/// [`SendHalf`](crate::net::SendHalf), which send owned bytes without a copy; by `Vec<u8>`, for tests, which takes everything; and by what
/// a program makes, such as a TLS session, with the three methods that are required.
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
    note = "wrap a tokio stream in `io::FromTokio::new` (feature `tokio-io`), and one of `futures-io` in `tokio_util::compat` before"
)]
pub trait AsyncSend {
    /// Takes a part of the bytes, and returns how many; at least one, unless there are none. Pending while none is taken.
    ///
    /// # Errors
    /// The errors of sending, also of bytes that were taken before.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ready once those taken leave without further calls: at once for streams of this crate, after the bytes were passed on for
    /// streams that gather or encrypt them.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sends the bytes that were taken, then ends the sending direction: the peer sees the end of the stream.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// As [`poll_write`](Self::poll_write), of several slices, one behind the other. The provided method writes the first that has
    /// bytes.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        self.poll_write(cx, first.map_or(&[], |slice| slice))
    }

    /// Takes all bytes of a chunk; while it is pending, those that are not taken stay in it. The provided method copies them.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
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

    /// Sends all of a chunk, which is a [`Lease`](crate::Lease) or any owned bytes. Streams do not copy it.
    ///
    /// Ready once it was taken. If the future is dropped before, nothing of it is sent by a stream of this crate; the provided
    /// [`poll_send`](Self::poll_send) may have sent a part.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
    async fn send(&mut self, chunk: impl IntoChunk) -> io::Result<()>
    where
        Self: Sized,
    {
        let mut chunk = chunk.into();
        poll_fn(|cx| self.poll_send(cx, &mut chunk)).await
    }

    /// Takes a part of the bytes, and returns how many. Cancel-safe: if the future is dropped before it is ready, nothing was taken.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_write(cx, bytes)).await
    }

    /// As [`write`](Self::write), of several slices, one behind the other.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
    async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_write_vectored(cx, slices)).await
    }

    /// Takes all of the bytes. If the future is dropped, a part may have been taken.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write); `WriteZero` if none of the rest is taken any more.
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

    /// As [`poll_flush`](Self::poll_flush). Cancel-safe.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
    async fn flush(&mut self) -> io::Result<()>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// As [`poll_shutdown`](Self::poll_shutdown). Cancel-safe.
    ///
    /// # Errors
    /// As [`poll_write`](Self::poll_write).
    async fn shutdown(&mut self) -> io::Result<()>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_shutdown(cx)).await
    }
}

/// Both directions of a stream: the bound of code that is generic over TCP, Unix sockets, TLS and test doubles. It is implemented by
/// everything that implements both traits.
///
/// ```
/// use annulus::io::AsyncStream;
///
/// /// Answers every message with its length.
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
    note = "wrap a tokio stream in `io::FromTokio::new` (feature `tokio-io`), and one of `futures-io` in `tokio_util::compat` before"
)]
pub trait AsyncStream: AsyncRecv + AsyncSend {}

impl<S: AsyncRecv + AsyncSend + ?Sized> AsyncStream for S {}

/// Ready once a stream of this crate queues a chunk at once, whatever its length.
pub(super) fn poll_room(
    cx: &mut Context<'_>,
    to: &mut (impl AsyncSend + ?Sized),
) -> Poll<io::Result<()>> {
    let mut nothing = Chunk::EMPTY;
    to.poll_send(cx, &mut nothing)
}

/// The methods that a type takes from another.
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

/// For tests: takes everything.
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

/// Takes the methods from those that the type has by itself; and whether `sendfile` to it does not wait.
macro_rules! of_streams {
    ($($stream:ident: $takes_pages:literal,)*) => {$(
        impl AsyncSend for crate::net::$stream {
            forward!(this => this);

            fn own_stream(&self) -> Option<OwnStream<'_>> {
                Some(OwnStream { handle: self.handle(), takes_pages: $takes_pages })
            }
        }
    )*};
}

// To a full pipe, `sendfile` waits as long as the file says.
of_streams! {
    TcpStream: true,
    UnixStream: true,
    SendHalf: true,
    Sender: false,
}
