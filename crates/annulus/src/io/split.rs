//! The two directions of any stream, for two tasks.

use super::recv::AsyncRecv;
use super::send::{AsyncSend, forward};
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Maximum number of bytes that a half copies in order to show them, unless more are requested.
const MAX_COPY_AHEAD_BYTES: usize = 8 * 1024;

/// Splits any stream into its two directions, for two tasks.
///
/// [`TcpStream::into_split`](crate::net::TcpStream::into_split) and the same method of `UnixStream`
/// cost less: their halves show received bytes in place, and [`io::copy`](super::copy) moves them
/// through the kernel. This function is for other streams, such as TLS sessions, and for code that
/// is generic over streams.
///
/// [`recv`](AsyncRecv::recv) and [`recv_exact`](AsyncRecv::recv_exact) of the reading half copy
/// nothing. Methods that show bytes ([`fill_buf`](AsyncRecv::fill_buf),
/// [`fill_at_least`](AsyncRecv::fill_at_least), [`read_line`](AsyncRecv::read_line), …) copy the
/// bytes that they show once, because the other half may change the stream meanwhile.
///
/// The stream is dropped with the second half. Dropping the writing half does not close its
/// direction: call [`shutdown`](AsyncSend::shutdown) first.
///
/// ```
/// use annulus::io::{AsyncRecv, AsyncSend, AsyncStream, split};
/// use annulus::net::UnixStream;
///
/// /// Greets the client while it counts the lines that arrive, and then sends the count.
/// async fn serve(stream: impl AsyncStream + 'static) -> std::io::Result<()> {
///     let (reader, mut writer) = split(stream);
///     let reading = annulus::spawn(async move {
///         let mut lines = reader.lines(1000);
///         let mut count = 0;
///         while lines.next_line().await?.is_some() {
///             count += 1;
///         }
///         std::io::Result::Ok(count)
///     });
///     writer.write_all(b"welcome\n").await?;
///     let count = reading.await.unwrap()?;
///     writer.write_all(format!("{count} lines\n").as_bytes()).await?;
///     writer.shutdown().await
/// }
///
/// # annulus::run(async {
/// let (mut client, server) = UnixStream::pair()?;
/// annulus::spawn(serve(server));
/// client.write_all(b"one\ntwo\n").await?;
/// client.shutdown().await?;
/// let mut answer = String::new();
/// client.read_line(&mut answer, 100).await?;
/// client.read_line(&mut answer, 100).await?;
/// assert_eq!(answer, "welcome\n2 lines\n");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub fn split<S: AsyncRecv + AsyncSend>(stream: S) -> (ReadHalf<S>, WriteHalf<S>) {
    let stream = Rc::new(RefCell::new(stream));
    let reading = ReadHalf { stream: stream.clone(), shown: Vec::new(), start: 0 };
    (reading, WriteHalf { stream })
}

/// The receiving direction of a stream: see [`split`].
pub struct ReadHalf<S> {
    stream: Rc<RefCell<S>>,
    /// A copy of the stream's next bytes, which stay in the stream until they are consumed.
    shown: Vec<u8>,
    /// Number of bytes at the beginning of `shown` that have been consumed.
    start: usize,
}

/// The sending direction of a stream: see [`split`].
pub struct WriteHalf<S> {
    stream: Rc<RefCell<S>>,
}

impl<S> ReadHalf<S> {
    /// Returns true if both halves belong to the same stream.
    pub fn is_pair_of(&self, other: &WriteHalf<S>) -> bool {
        Rc::ptr_eq(&self.stream, &other.stream)
    }

    /// Returns the stream, with all bytes that have not been consumed.
    ///
    /// ```
    /// use annulus::io::{AsyncRecv, split};
    ///
    /// # annulus::run(async {
    /// let (mut peer, stream) = annulus::net::UnixStream::pair()?;
    /// let (mut reader, writer) = split(stream);
    /// peer.send("first second").await?;
    /// assert_eq!(&*reader.recv_exact(6).await?, b"first ");
    /// assert!(reader.is_pair_of(&writer));
    /// let mut stream = reader.unsplit(writer);
    /// assert_eq!(&*stream.recv_exact(6).await?, b"second");
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// If the halves belong to different streams: see [`is_pair_of`](Self::is_pair_of).
    #[track_caller]
    pub fn unsplit(self, other: WriteHalf<S>) -> S {
        assert!(self.is_pair_of(&other), "the halves belong to different streams");
        drop(other);
        let stream = Rc::into_inner(self.stream).expect("a stream has two halves");
        stream.into_inner()
    }

    /// Returns the bytes of the copy that have not been consumed.
    fn copied(&self) -> &[u8] {
        &self.shown[self.start..]
    }

    /// Drops the copy, because the stream itself returns the next bytes.
    fn forget_copy(&mut self) {
        (self.shown, self.start) = (Vec::new(), 0);
    }
}

impl<S> WriteHalf<S> {
    /// Returns true if both halves belong to the same stream.
    pub fn is_pair_of(&self, other: &ReadHalf<S>) -> bool {
        other.is_pair_of(self)
    }
}

impl<S: AsyncRecv> AsyncRecv for ReadHalf<S> {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        let n = n.max(1);
        if self.copied().len() < n {
            let mut stream = self.stream.borrow_mut();
            let bytes = ready!(stream.poll_fill_at_least(cx, n))?;
            let count = bytes.len().min(n.max(MAX_COPY_AHEAD_BYTES));
            self.shown.drain(..self.start);
            self.start = 0;
            // The copy is the beginning of what the stream shows.
            self.shown.extend_from_slice(&bytes[self.shown.len().min(count)..count]);
        }
        Poll::Ready(Ok(self.copied()))
    }

    fn consume(&mut self, n: usize) {
        let shown = self.copied().len();
        assert!(n <= shown, "consume({n}), but only {shown} bytes are shown");
        self.stream.borrow_mut().consume(n);
        self.start += n;
        if self.start == self.shown.len() {
            // An idle half holds no memory.
            self.forget_copy();
        }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.forget_copy();
        self.stream.borrow_mut().poll_recv(cx)
    }

    fn poll_recv_exact(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<Lease>> {
        self.forget_copy();
        self.stream.borrow_mut().poll_recv_exact(cx, n)
    }
}

impl<S: AsyncSend> AsyncSend for WriteHalf<S> {
    forward!(this => this.stream.borrow_mut());
}

impl<S> fmt::Debug for ReadHalf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadHalf({})", std::any::type_name::<S>())
    }
}

impl<S> fmt::Debug for WriteHalf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteHalf({})", std::any::type_name::<S>())
    }
}
