//! The trait for receiving bytes, for code that is generic over streams.

use super::framing::{self, Frame, Lines};
use crate::bytes::lease::Lease;
use crate::fs::FileStream;
use crate::net::{RecvHalf, StreamHandle, TcpStream, UnixStream, ended};
use crate::pipe::Receiver;
use crate::tasks::budget;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Receives bytes into the stream's own memory, where they can be inspected before they are
/// consumed.
///
/// The streams of this crate implement this trait. [`TcpStream`](crate::net::TcpStream),
/// [`UnixStream`](crate::net::UnixStream) and [`RecvHalf`](crate::net::RecvHalf) do not copy bytes
/// that were received in one piece. `&[u8]` implements it for tests. Other types that can show
/// their bytes, such as a TLS session, can implement it too: only
/// [`poll_fill_at_least`](Self::poll_fill_at_least) and [`consume`](Self::consume) are required.
///
/// ```
/// use annulus::io::AsyncRecv;
/// use annulus::net::TcpListener;
///
/// /// Returns the value of the `Host` header.
/// async fn host(mut request: impl AsyncRecv) -> std::io::Result<Option<String>> {
///     let mut lines = (&mut request).lines(1024);
///     while let Some(line) = lines.next_line().await? {
///         if let Some(host) = line.strip_prefix("Host: ") {
///             return Ok(Some(host.to_owned()));
///         }
///     }
///     Ok(None)
/// }
///
/// # annulus::run(async {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// annulus::spawn(async move {
///     let mut client = annulus::net::TcpStream::connect(address).await?;
///     client.send("GET /\r\nHost: a.example\r\n\r\n").await
/// });
/// let (stream, _) = listener.accept().await?;
/// assert_eq!(host(stream).await?.as_deref(), Some("a.example"));
/// assert_eq!(host(&b"GET /\r\n"[..]).await?, None);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # Cancel safety
///
/// Methods that return leases or show bytes lose nothing if their future is dropped: the next call
/// shows or returns the bytes that have arrived. Methods that fill the caller's memory step by
/// step, such as [`read_exact`](Self::read_exact) and [`read_to_end`](Self::read_to_end), leave the
/// bytes that they have read there.
#[expect(async_fn_in_trait, reason = "futures stay on the thread of their runtime")]
#[diagnostic::on_unimplemented(
    note = "wrap a tokio stream in `io::FromTokio::new` (feature `tokio-io`), and a `futures-io` stream in `tokio_util::compat` first"
)]
pub trait AsyncRecv {
    /// Shows at least `n` of the next bytes in one piece, and at least one byte even if `n` is 0.
    /// At the end of the stream it shows the bytes that are left, possibly none. The bytes stay
    /// until they are consumed.
    ///
    /// Once a call has been ready, further calls with the same `n` are ready as well and show the
    /// same bytes until [`consume`](Self::consume) is called. This holds at the end of the stream
    /// too. Code may therefore inspect the same bytes several times in one poll. There is one
    /// exception for the streams of this crate: a task that calls this very often without consuming
    /// anything may have to wait until its [budget](crate::Builder::task_budget) is renewed.
    ///
    /// # Errors
    /// Errors from receiving. Bytes that arrived before the error stay.
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>>;

    /// Drops the first `n` of the bytes that were shown last. If the end was shown, the next call
    /// checks for more, also after `consume(0)`: files grow, and terminals continue after an end.
    ///
    /// # Panics
    /// If fewer than `n` bytes were shown.
    fn consume(&mut self, n: usize);

    /// Shows the next bytes: at least one, or none at the end of the stream.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least).
    fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.poll_fill_at_least(cx, 1)
    }

    /// Returns the next bytes, or `None` at the end of the stream. The provided method copies the
    /// bytes that are shown.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least).
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        let lease = Lease::copy_of(ready!(self.poll_fill_buf(cx))?);
        self.consume(lease.len());
        Poll::Ready(Ok((!lease.is_empty()).then_some(lease)))
    }

    /// Returns the next `n` bytes. The provided method copies them. If the stream ends first, the
    /// bytes stay, and the next call checks for more.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least), and `UnexpectedEof` if the
    /// stream ends first.
    fn poll_recv_exact(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<Lease>> {
        let shown = if n == 0 { &[] } else { ready!(self.poll_fill_at_least(cx, n))? };
        let Some(bytes) = shown.get(..n) else {
            let there = shown.len();
            self.consume(0);
            return Poll::Ready(Err(ended(there, n)));
        };
        let lease = Lease::copy_of(bytes);
        self.consume(n);
        Poll::Ready(Ok(lease))
    }

    /// Polls for the next frame, like [`read_frame`](Self::read_frame).
    ///
    /// # Errors
    /// The errors of [`read_frame`](Self::read_frame).
    fn poll_read_frame(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
        length: &mut dyn FnMut(&[u8]) -> io::Result<Option<usize>>,
    ) -> Poll<io::Result<Option<Lease>>> {
        let mut wanted = 1;
        loop {
            let shown = ready!(self.poll_fill_at_least(cx, wanted))?;
            let there = shown.len();
            let frame = framing::check_frame(shown, wanted, limit, length);
            if there < wanted {
                // The end was shown. The next call checks for more.
                self.consume(0);
            }
            match frame? {
                Frame::End => return Poll::Ready(Ok(None)),
                Frame::Unknown => wanted = there + 1,
                Frame::Of(len) => return self.poll_recv_exact(cx, len).map_ok(Some),
            }
        }
    }

    #[doc(hidden)]
    fn own_source(&self) -> Option<OwnSource<'_>> {
        None
    }

    #[doc(hidden)]
    fn own_file(&mut self) -> Option<&mut FileStream> {
        None
    }

    /// Shows the next bytes: at least one, or none at the end of the stream.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least).
    async fn fill_buf(&mut self) -> io::Result<&[u8]>
    where
        Self: Sized,
    {
        FillAtLeast::new(self, 1).await
    }

    /// Like [`fill_buf`](Self::fill_buf), but waits for at least `n` bytes. It shows fewer only at
    /// the end of the stream.
    ///
    /// ```
    /// # annulus::run(async {
    /// use annulus::io::AsyncRecv;
    ///
    /// async fn is_tls(stream: &mut impl AsyncRecv) -> std::io::Result<bool> {
    ///     Ok(stream.fill_at_least(2).await?.starts_with(&[22, 3]))
    /// }
    /// assert!(!is_tls(&mut &b"GET / HTTP/1.1"[..]).await?);
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least).
    async fn fill_at_least(&mut self, n: usize) -> io::Result<&[u8]>
    where
        Self: Sized,
    {
        FillAtLeast::new(self, n).await
    }

    /// Returns the next bytes, at least one, or `None` at the end of the stream.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least).
    async fn recv(&mut self) -> io::Result<Option<Lease>>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Returns the next `n` bytes as one lease, without a copy if a stream has received them in one
    /// piece.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least), and `UnexpectedEof` if the
    /// stream ends first.
    async fn recv_exact(&mut self, n: usize) -> io::Result<Lease>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_recv_exact(cx, n)).await
    }

    /// Returns the bytes up to and including a delimiter. At the end of the stream it returns the
    /// remaining bytes, and then `None`. Bytes that a stream has received in one piece are not
    /// copied.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least), and `InvalidData` if more
    /// than `limit` bytes would be returned. The bytes then stay in the stream.
    async fn recv_until(&mut self, delimiter: u8, limit: usize) -> io::Result<Option<Lease>>
    where
        Self: Sized,
    {
        framing::recv_until(self, delimiter, limit).await
    }

    /// Returns the next frame, or `None` at the end of the stream, for protocols whose messages
    /// contain their own length. A frame that was received in one piece is a lease on the memory
    /// where it was received; otherwise its pieces are gathered.
    ///
    /// `length` inspects the first bytes of a frame. It returns the length of the whole frame as
    /// soon as it is known, possibly before the rest has arrived, and `None` if it needs more
    /// bytes. It is called again with more bytes, and may be called again with the same ones.
    ///
    /// ```
    /// use annulus::io::AsyncRecv;
    ///
    /// /// A frame is a length in two bytes, followed by that many bytes.
    /// fn length(bytes: &[u8]) -> std::io::Result<Option<usize>> {
    ///     Ok(bytes.first_chunk().map(|length| 2 + usize::from(u16::from_be_bytes(*length))))
    /// }
    ///
    /// # annulus::run(async {
    /// let mut stream = &b"\0\x05hello\0\x02me"[..];
    /// assert_eq!(stream.read_frame(1024, length).await?.as_deref(), Some(&b"\0\x05hello"[..]));
    /// let error = stream.read_frame(3, length).await.unwrap_err();
    /// assert_eq!(error.to_string(), "a frame of 4 bytes is above the limit of 3");
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least) and of `length`.
    /// `InvalidData` for a frame of more than `limit` bytes (before the whole frame has arrived),
    /// and if `limit` bytes are not enough to find the length. `UnexpectedEof` if the stream ends
    /// within a frame. `InvalidInput` for a length of 0. The bytes stay in the stream.
    async fn read_frame(
        &mut self,
        limit: usize,
        mut length: impl FnMut(&[u8]) -> io::Result<Option<usize>>,
    ) -> io::Result<Option<Lease>>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_read_frame(cx, limit, &mut length)).await
    }

    /// Copies received bytes to `buf` and returns their number: 0 at the end of the stream, or for
    /// an empty `buf`. Cancel-safe.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least).
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>
    where
        Self: Sized,
    {
        poll_fn(|cx| poll_read(self, cx, buf)).await
    }

    /// Fills `buf`.
    ///
    /// Not cancel-safe: if the future is dropped, `buf` may be partly filled, and those bytes are
    /// not received again. [`recv_exact`](Self::recv_exact) is cancel-safe.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least), and `UnexpectedEof` if the
    /// stream ends first; the message says how many bytes were read and how many were wanted. After
    /// an error, `buf` may be partly filled.
    async fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()>
    where
        Self: Sized,
    {
        let mut done = 0;
        while done < buf.len() {
            match self.read(&mut buf[done..]).await? {
                0 => return Err(ended(done, buf.len())),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Appends the bytes up to and including a delimiter, or up to the end of the stream, and
    /// returns their number. If the future is dropped, some bytes may have been appended.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least), and `InvalidData` if there
    /// are more than `limit` bytes. Bytes that have been appended stay in `buf`.
    async fn read_until(
        &mut self,
        delimiter: u8,
        buf: &mut Vec<u8>,
        limit: usize,
    ) -> io::Result<usize>
    where
        Self: Sized,
    {
        framing::read_until(self, delimiter, buf, limit).await
    }

    /// Appends a line with its `\n` and returns the number of bytes. At the end of the stream it
    /// appends the remaining bytes, and then returns 0. Cancel-safe: nothing is consumed until the
    /// whole line has arrived.
    ///
    /// # Errors
    /// The errors of [`recv_until`](Self::recv_until), and `InvalidData` if the line is not UTF-8.
    /// That line is dropped.
    async fn read_line(&mut self, line: &mut String, limit: usize) -> io::Result<usize>
    where
        Self: Sized,
    {
        framing::read_line(self, line, limit).await
    }

    /// Returns the lines of the stream without their line endings; see [`Lines`]. A line of more
    /// than `limit` bytes, including its ending, is an error.
    fn lines(self, limit: usize) -> Lines<Self>
    where
        Self: Sized,
    {
        Lines::new(self, limit)
    }

    /// Appends everything up to the end of the stream, and returns the number of bytes. If the
    /// future is dropped, some bytes may have been appended.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least), and `InvalidData` if there
    /// are more than `limit` bytes. The first `limit` bytes have then been appended.
    async fn read_to_end(&mut self, buf: &mut Vec<u8>, limit: usize) -> io::Result<usize>
    where
        Self: Sized,
    {
        framing::read_to_end(self, buf, limit).await
    }

    /// Drops the bytes up to and including a delimiter, or up to the end of the stream, and returns
    /// their number. If the future is dropped, some bytes may already have been skipped.
    ///
    /// # Errors
    /// The errors of [`poll_fill_at_least`](Self::poll_fill_at_least).
    async fn skip_until(&mut self, delimiter: u8) -> io::Result<usize>
    where
        Self: Sized,
    {
        framing::skip_until(self, delimiter).await
    }
}

pub(crate) fn poll_read(
    from: &mut (impl AsyncRecv + ?Sized),
    cx: &mut Context<'_>,
    buf: &mut [u8],
) -> Poll<io::Result<usize>> {
    if buf.is_empty() {
        return Poll::Ready(Ok(0));
    }
    let shown = ready!(from.poll_fill_buf(cx))?;
    let count = shown.len().min(buf.len());
    buf[..count].copy_from_slice(&shown[..count]);
    from.consume(count);
    Poll::Ready(Ok(count))
}

macro_rules! forward {
    ($this:ident => $to:expr) => {
        fn poll_fill_at_least(
            &mut self,
            cx: &mut Context<'_>,
            n: usize,
        ) -> Poll<io::Result<&[u8]>> {
            let $this = self;
            $to.poll_fill_at_least(cx, n)
        }

        fn consume(&mut self, n: usize) {
            let $this = self;
            $to.consume(n);
        }

        fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            let $this = self;
            $to.poll_fill_buf(cx)
        }

        fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
            let $this = self;
            $to.poll_recv(cx)
        }

        fn poll_recv_exact(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<Lease>> {
            let $this = self;
            $to.poll_recv_exact(cx, n)
        }
    };
}

impl<R: AsyncRecv + ?Sized> AsyncRecv for &mut R {
    forward!(this => **this);

    fn own_source(&self) -> Option<OwnSource<'_>> {
        (**self).own_source()
    }

    fn own_file(&mut self) -> Option<&mut FileStream> {
        (**self).own_file()
    }
}

impl<R: AsyncRecv + ?Sized> AsyncRecv for Box<R> {
    forward!(this => **this);

    fn own_source(&self) -> Option<OwnSource<'_>> {
        (**self).own_source()
    }

    fn own_file(&mut self) -> Option<&mut FileStream> {
        (**self).own_file()
    }
}

/// For tests: all bytes have already arrived, and the end of the stream follows them.
impl AsyncRecv for &[u8] {
    fn poll_fill_at_least(&mut self, _: &mut Context<'_>, _: usize) -> Poll<io::Result<&[u8]>> {
        Poll::Ready(Ok(self))
    }

    fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "consume({n}), but only {} bytes are shown", self.len());
        *self = &self[n..];
    }
}

/// Implements the trait for the streams of this crate.
macro_rules! of_streams {
    ($($stream:ident)*) => {$(
        impl AsyncRecv for $stream {
            #[inline]
            fn poll_fill_at_least(
                &mut self,
                cx: &mut Context<'_>,
                n: usize,
            ) -> Poll<io::Result<&[u8]>> {
                let (handle, unread) = self.source();
                unread.poll_fill_at_least(handle, cx, n)
            }

            #[inline]
            fn consume(&mut self, n: usize) {
                self.source().1.consume(n);
            }

            #[inline]
            fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
                let (handle, unread) = self.source();
                unread.poll_recv(handle, cx)
            }

            #[inline]
            fn poll_recv_exact(
                &mut self,
                cx: &mut Context<'_>,
                n: usize,
            ) -> Poll<io::Result<Lease>> {
                let (handle, unread) = self.source();
                unread.poll_exact(handle, cx, n)
            }

            fn own_source(&self) -> Option<OwnSource<'_>> {
                Some(OwnSource { handle: self.source_handle() })
            }
        }
    )*};
}

of_streams!(TcpStream UnixStream RecvHalf Receiver);

/// A stream of this crate, which a copy can link to its sink.
#[expect(missing_debug_implementations, reason = "not nameable")]
pub struct OwnSource<'a> {
    pub(crate) handle: &'a StreamHandle,
}

/// The future of [`AsyncRecv::fill_at_least`].
struct FillAtLeast<'a, R> {
    /// `None` once the future has completed.
    from: Option<&'a mut R>,
    n: usize,
    /// Whether the future has been polled. The first poll discards an end that was shown to an
    /// earlier future.
    has_begun: bool,
}

impl<'a, R: AsyncRecv> FillAtLeast<'a, R> {
    fn new(from: &'a mut R, n: usize) -> Self {
        Self { from: Some(from), n, has_begun: false }
    }
}

impl<'a, R: AsyncRecv> Future for FillAtLeast<'a, R> {
    type Output = io::Result<&'a [u8]>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let n = self.n;
        let from = self.from.take().expect("the future was polled after it had completed");
        if !std::mem::replace(&mut self.has_begun, true) {
            from.consume(0);
        }
        // Polls twice: the borrow checker does not accept that one branch returns bytes borrowed
        // from the first poll while another branch still uses `from`.
        if from.poll_fill_at_least(cx, n)?.is_pending() {
            self.from = Some(from);
            return Poll::Pending;
        }
        match budget::poll_free(|| from.poll_fill_at_least(cx, n)) {
            Poll::Pending => Poll::Ready(Err(io::Error::other(
                "poll_fill_at_least was ready and then pending before anything was consumed; it must stay ready",
            ))),
            ready => ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// A source whose `poll_fill_at_least` does not stay ready, which violates the contract of
    /// [`AsyncRecv`].
    struct ReadyEveryOtherCall(bool);

    impl AsyncRecv for ReadyEveryOtherCall {
        fn poll_fill_at_least(&mut self, _: &mut Context<'_>, _: usize) -> Poll<io::Result<&[u8]>> {
            self.0 = !self.0;
            if self.0 { Poll::Ready(Ok(b"some")) } else { Poll::Pending }
        }

        fn consume(&mut self, _: usize) {}
    }

    #[test]
    fn filling_from_a_source_that_does_not_stay_ready_is_an_error() {
        let mut from = ReadyEveryOtherCall(false);
        let mut filling = FillAtLeast::new(&mut from, 1);
        let cx = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(Err(error)) = Pin::new(&mut filling).poll(cx) else {
            panic!("the future is pending, or ready with bytes that are no longer shown");
        };
        assert!(error.to_string().contains("poll_fill_at_least"), "{error}");
    }
}
