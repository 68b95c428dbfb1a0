//! The trait of streams that receive bytes, for code that is generic over them.

use super::framing::{self, Frame, Lines};
use super::peek::Peek;
use crate::bytes::lease::Lease;
use crate::fs::FileStream;
use crate::net::{StreamHandle, ended};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

/// Receives bytes into memory of its own, where they can be looked at before they are taken.
///
/// It is implemented by [`TcpStream`](crate::net::TcpStream), [`UnixStream`](crate::net::UnixStream) and
/// [`RecvHalf`](crate::net::RecvHalf), for which nothing is copied that was received in one piece; by `&[u8]`, for tests; and by whatever
/// shows its bytes, such as a TLS session: [`poll_peek`](Self::poll_peek) and [`consume`](Self::consume) suffice, and all other methods
/// are made of them. Code that asks for `impl AsyncRecv` runs over all of these.
///
/// ```
/// use annulus::io::AsyncRecv;
/// use annulus::net::TcpListener;
///
/// /// The value of the header that a request must have.
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
/// # Cancel-safety
///
/// Methods that return leases or show bytes lose nothing if their future is dropped: bytes that have come are shown or returned by the next
/// call. Methods that fill the caller's memory ([`read_exact`](Self::read_exact), [`read_to_end`](Self::read_to_end)) leave there what they
/// have read.
#[expect(async_fn_in_trait, reason = "futures stay on the thread of their runtime")]
#[diagnostic::on_unimplemented(
    note = "wrap a tokio stream in `io::FromTokio::new` (feature `tokio-io`), and one of `futures-io` in `tokio_util::compat` before"
)]
pub trait AsyncRecv {
    /// Shows the next bytes in one piece: at least `n` of them, and at least one; fewer only at the end of the stream, none if nothing
    /// is left. They stay until they are consumed.
    ///
    /// A call that was ready is ready again, and shows the same bytes, until [`consume`](Self::consume) is called. This includes the end of
    /// the stream, so that code may look at the same bytes several times in one poll. For streams of this crate there is one exception:
    /// a task that looks more than a thousand times and consumes nothing may have to wait for its next
    /// [turn](crate::Builder::task_budget).
    ///
    /// # Errors
    /// The errors of receiving; bytes that came before stay.
    fn poll_peek(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>>;

    /// Drops the first `n` bytes of those that were shown last. If the end was shown, the next look asks again, also after
    /// `consume(0)`: files grow, and terminals go on.
    ///
    /// # Panics
    /// If fewer were shown.
    fn consume(&mut self, n: usize);

    /// Shows the next bytes, at least one; none at the end of the stream.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek).
    fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.poll_peek(cx, 1)
    }

    /// The next bytes; `None` at the end of the stream. The provided method copies the bytes that are shown.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek).
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        let lease = Lease::copy_of(ready!(self.poll_fill_buf(cx))?);
        self.consume(lease.len());
        Poll::Ready(Ok((!lease.is_empty()).then_some(lease)))
    }

    /// The next `n` bytes. The provided method copies them.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek); `UnexpectedEof` if the stream ends before.
    fn poll_recv_exact(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<Lease>> {
        let shown = if n == 0 { &[] } else { ready!(self.poll_peek(cx, n))? };
        let Some(bytes) = shown.get(..n) else {
            return Poll::Ready(Err(ended(shown.len(), n)));
        };
        let lease = Lease::copy_of(bytes);
        self.consume(n);
        Poll::Ready(Ok(lease))
    }

    /// As [`read_frame`](Self::read_frame), by polling.
    ///
    /// # Errors
    /// As [`read_frame`](Self::read_frame).
    fn poll_read_frame(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
        length: &mut dyn FnMut(&[u8]) -> io::Result<Option<usize>>,
    ) -> Poll<io::Result<Option<Lease>>> {
        let mut wanted = 1;
        loop {
            let shown = ready!(self.poll_peek(cx, wanted))?;
            match framing::check_frame(shown, wanted, limit, length)? {
                Frame::End => return Poll::Ready(Ok(None)),
                Frame::Unknown => wanted = shown.len() + 1,
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

    /// Shows the next bytes, at least one; none at the end of the stream.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek).
    fn fill_buf(&mut self) -> Peek<'_, Self>
    where
        Self: Sized,
    {
        self.peek(1)
    }

    /// As [`fill_buf`](Self::fill_buf), but waits for at least `n` bytes; fewer only at the end of the stream.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek).
    fn peek(&mut self, n: usize) -> Peek<'_, Self>
    where
        Self: Sized,
    {
        Peek::new(self, n)
    }

    /// The next bytes, at least one; `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek).
    async fn recv(&mut self) -> io::Result<Option<Lease>>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next `n` bytes as one lease: without a copy if a stream has received them in one piece.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek); `UnexpectedEof`, naming both numbers, if the stream ends before.
    async fn recv_exact(&mut self, n: usize) -> io::Result<Lease>
    where
        Self: Sized,
    {
        poll_fn(|cx| self.poll_recv_exact(cx, n)).await
    }

    /// The bytes up to a delimiter and with it; at the end of the stream those that are left, and then `None`. Without a copy if a stream
    /// has received them in one piece.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek); `InvalidData`, naming both numbers, if there are more than `limit` bytes: they stay.
    async fn recv_until(&mut self, delimiter: u8, limit: usize) -> io::Result<Option<Lease>>
    where
        Self: Sized,
    {
        framing::recv_until(self, delimiter, limit).await
    }

    /// The next frame, for protocols whose messages contain their own length; `None` at the end of the stream. It is parsed where it was
    /// received, and is a lease on that memory if it was received in one piece; otherwise its pieces are gathered.
    ///
    /// `length` looks at the first bytes of a frame. It returns the length of the whole frame as soon as that is known, which may be
    /// before the rest has come, and `None` if that takes more bytes. It is called again with more, and may be called again with the
    /// same bytes.
    ///
    /// ```
    /// use annulus::io::AsyncRecv;
    ///
    /// /// Frames of a length in two bytes, and as many bytes.
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
    /// As [`poll_peek`](Self::poll_peek), and the errors of `length`. `InvalidData`, naming both numbers, for a frame of more than `limit` bytes,
    /// before those come, and if `limit` bytes do not suffice to find the length. `UnexpectedEof` if the stream ends within a frame.
    /// `InvalidInput` for a length of 0. The bytes stay.
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

    /// Copies bytes that have come to `buf`, and returns how many; 0 at the end of the stream, or for an empty `buf`. Cancel-safe.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek).
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize>
    where
        Self: Sized,
    {
        poll_fn(|cx| poll_read(self, cx, buf)).await
    }

    /// Fills `buf`. If the future is dropped, it is filled in part; [`recv_exact`](Self::recv_exact) loses nothing.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek); `UnexpectedEof`, naming both numbers, if the stream ends before: `buf` is filled in part.
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

    /// Appends the bytes up to a delimiter and with it, or up to the end of the stream; how many. If the future is dropped, a part
    /// was appended.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek); `InvalidData`, naming the limit, if there are more than `limit` bytes: those that were
    /// appended stay.
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

    /// Appends a line with its `\n`, or the rest at the end of the stream; how many bytes, 0 at the end. Cancel-safe: until the
    /// line is there, nothing is taken.
    ///
    /// # Errors
    /// As [`recv_until`](Self::recv_until); `InvalidData` if the line is not UTF-8: it is dropped.
    async fn read_line(&mut self, line: &mut String, limit: usize) -> io::Result<usize>
    where
        Self: Sized,
    {
        framing::read_line(self, line, limit).await
    }

    /// Lines without their ends, of at most `limit` bytes with them; see [`Lines`].
    fn lines(self, limit: usize) -> Lines<Self>
    where
        Self: Sized,
    {
        Lines::new(self, limit)
    }

    /// Appends everything up to the end of the stream; how many bytes. If the future is dropped, a part was appended.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek); `InvalidData`, naming the limit, if there are more than `limit` bytes: that many were appended.
    async fn read_to_end(&mut self, buf: &mut Vec<u8>, limit: usize) -> io::Result<usize>
    where
        Self: Sized,
    {
        framing::read_to_end(self, buf, limit).await
    }

    /// Drops the bytes up to a delimiter and with it, or up to the end of the stream; how many. If the future is dropped, a part
    /// was dropped.
    ///
    /// # Errors
    /// As [`poll_peek`](Self::poll_peek).
    async fn skip_until(&mut self, delimiter: u8) -> io::Result<usize>
    where
        Self: Sized,
    {
        framing::skip_until(self, delimiter).await
    }
}

/// Copies bytes that have come to `buf`.
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

/// The methods that a type takes from another.
macro_rules! forward {
    ($this:ident => $to:expr) => {
        fn poll_peek(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
            let $this = self;
            $to.poll_peek(cx, n)
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

/// For tests: everything has come, and the end behind it.
impl AsyncRecv for &[u8] {
    fn poll_peek(&mut self, _: &mut Context<'_>, _: usize) -> Poll<io::Result<&[u8]>> {
        Poll::Ready(Ok(self))
    }

    fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "consume({n}) of {} bytes that are shown", self.len());
        *self = &self[n..];
    }
}

/// Takes the methods from those that the type has by itself.
macro_rules! of_streams {
    ($($stream:ident)*) => {$(
        impl AsyncRecv for crate::net::$stream {
            forward!(this => this);

            fn own_source(&self) -> Option<OwnSource<'_>> {
                Some(OwnSource { handle: self.source_handle() })
            }
        }
    )*};
}

of_streams!(TcpStream UnixStream RecvHalf Receiver);

/// A stream of this crate that is received from, for copies that need no task.
#[expect(missing_debug_implementations, reason = "not nameable")]
pub struct OwnSource<'a> {
    pub(crate) handle: &'a StreamHandle,
}
