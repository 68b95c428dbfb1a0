//! Implementations of the traits that hyper 1 asks of a runtime.
//!
//! ```
//! use annulus::net::{TcpListener, TcpStream};
//! use annulus_compat::hyper::{Io, Timer};
//! use bytes::Bytes;
//! use http_body_util::{BodyExt, Empty, Full};
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use std::convert::Infallible;
//!
//! annulus::run(async {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     annulus::spawn(async move {
//!         let (stream, _) = listener.accept().await.unwrap();
//!         let hello = async |_| Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))));
//!         let serve = hyper::server::conn::http1::Builder::new()
//!             .timer(Timer::new())
//!             .serve_connection(Io::new(stream), service_fn(hello));
//!         _ = serve.await;
//!     });
//!     let stream = Io::new(TcpStream::connect(address).await?);
//!     let (mut client, connection) = hyper::client::conn::http1::handshake(stream).await?;
//!     annulus::spawn(connection);
//!     let request = Request::get("/").header("host", "localhost").body(Empty::<Bytes>::new())?;
//!     let body = client.send_request(request).await?.into_body().collect().await?.to_bytes();
//!     assert_eq!(body, "hello");
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })
//! # .unwrap();
//! ```

mod write_limit;

pub(crate) use write_limit::WriteLimit;

use crate::clock::Origin;
use crate::late_end::LateEnd;
use annulus::io::{AsyncRecv, AsyncSend};
use hyper::body::{Body, Incoming};
use hyper::rt::{self, Read, ReadBufCursor, Sleep, Write};
use hyper::service::Service;
use hyper::{Request, Response};
use std::error::Error;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The services of hyper that its servers take: a name for the bounds, which every such service has.
pub trait HttpService:
    Service<Request<Incoming>, Response = Response<Self::Body>, Error: Into<BoxError>>
{
    /// The body of its responses.
    type Body: Body<Error: Into<BoxError>> + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>>,
    B: Body<Error: Into<BoxError>> + 'static,
{
    type Body = B;
}

/// A stream of annulus, or anything with its [`AsyncRecv`] and [`AsyncSend`], as hyper reads and writes it: bytes are copied once from the
/// buffer that the kernel has filled, and writes are vectored.
#[derive(Debug)]
pub struct Io<S> {
    stream: S,
    end: LateEnd,
    limit: WriteLimit,
    early_answer: EarlyAnswer,
}

/// What a client does when the server has closed before it has read the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EarlyAnswer {
    /// The write fails.
    #[default]
    Ignored,
    /// The write waits for the reads, which return the answer that was sent before, or the reason why there is none.
    Awaited,
    /// A write has failed, and waits.
    Due,
}

impl<S> Io<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            end: LateEnd::default(),
            limit: WriteLimit::default(),
            early_answer: EarlyAnswer::default(),
        }
    }

    /// For a client: a server may answer and close before it has read the request, as with 413 for a body that is too large. A write that
    /// fails because of that then waits for the reads, which return the answer, or the reason why there is none. Otherwise hyper reports the
    /// failed write. [`Connector`](crate::hyper_util::Connector) turns it on.
    pub fn await_early_answer(mut self) -> Self {
        self.early_answer = EarlyAnswer::Awaited;
        self
    }

    /// The result of a write, which waits if an early answer may have come.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        called: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &called
            && self.early_answer == EarlyAnswer::Awaited
            && matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        {
            // The read that hyper has begun ends in any case, and wakes the task.
            self.early_answer = EarlyAnswer::Due;
            return Poll::Pending;
        }
        self.limit.within(cx, called)
    }

    /// How long a write may wait for a peer that takes nothing: then it is the error `TimedOut`, with which hyper ends the connection. By default
    /// there is no limit.
    pub fn write_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limit = WriteLimit::new(limit.into());
        self
    }

    /// The stream, as after an upgrade.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// The stream.
    pub fn inner(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRecv + Unpin> Read for Io<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = poll_read(&mut this.stream, cx, &mut buf);
        this.end.show(cx, read)
    }
}

/// Copies what a stream has, as much as there is space for; how many bytes that is.
pub(crate) fn poll_read(
    stream: &mut impl AsyncRecv,
    cx: &mut Context<'_>,
    buf: &mut ReadBufCursor<'_>,
) -> Poll<io::Result<usize>> {
    let bytes = ready!(stream.poll_fill_buf(cx))?;
    let count = bytes.len().min(buf.remaining());
    buf.put_slice(&bytes[..count]);
    stream.consume(count);
    Poll::Ready(Ok(count))
}

impl<S: AsyncSend + Unpin> Write for Io<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.early_answer == EarlyAnswer::Due {
            return Poll::Pending;
        }
        let called = this.stream.poll_write(cx, bytes);
        this.written(cx, called)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.early_answer == EarlyAnswer::Due {
            return Poll::Pending;
        }
        let called = this.stream.poll_flush(cx);
        this.written(cx, called)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let called = this.stream.poll_shutdown(cx);
        this.limit.within(cx, called)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.early_answer == EarlyAnswer::Due {
            return Poll::Pending;
        }
        let called = this.stream.poll_write_vectored(cx, slices);
        this.written(cx, called)
    }
}

/// Spawns hyper's tasks on the annulus runtime of the thread: for HTTP/2. Futures need not be `Send`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F> rt::Executor<F> for Executor
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        annulus::spawn(future);
    }
}

/// hyper's timers on annulus: header time-outs, keep-alives. On a simulated kernel they follow virtual time.
///
/// hyper and hyper-util add their limits to a moment of the standard library, which panics if the sum is too far away. So for no limit
/// choose `None`, not `Duration::MAX`, in *their* builders: `header_read_timeout`, `keep_alive_interval`, `pool_idle_timeout`.
#[derive(Clone, Debug)]
pub struct Timer {
    origin: Origin,
}

impl Timer {
    /// Timers of this thread's runtime.
    pub fn new() -> Self {
        Self { origin: Origin::new() }
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(crate::clock::Timer::new(annulus::time::Instant::now() + duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(crate::clock::Timer::new(self.origin.to_runtime(deadline)))
    }

    fn now(&self) -> Instant {
        self.origin.now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<crate::clock::Timer>() {
            Some(timer) => timer.get_mut().reset(self.origin.to_runtime(deadline)),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// hyper sets it anew for each request.
impl Sleep for crate::clock::Timer {}
