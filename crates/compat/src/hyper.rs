//! Implementations of the runtime traits that hyper 1 requires.
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

/// The requirements of a hyper server for its service. Every type that meets them implements this
/// trait.
pub trait HttpService:
    Service<Request<Incoming>, Response = Response<Self::Body>, Error: Into<BoxError>>
{
    /// The response body.
    type Body: Body<Error: Into<BoxError>> + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>>,
    B: Body<Error: Into<BoxError>> + 'static,
{
    type Body = B;
}

/// Adapts an annulus stream, or any type that implements [`AsyncRecv`] and [`AsyncSend`], to
/// hyper's traits. Reads copy bytes once, from the stream's receive buffer into hyper's. Writes are
/// vectored.
#[derive(Debug)]
pub struct Io<S> {
    stream: S,
    end: LateEnd,
    limit: WriteLimit,
    early_answer: EarlyAnswer,
}

/// What a write does if the server closes the connection before it has read the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EarlyAnswer {
    /// The write fails.
    #[default]
    Ignored,
    /// The write waits for reads, which return the response sent before the close, or an error.
    Awaited,
    /// A write has failed. Writes and flushes stay pending while hyper reads the response.
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

    /// Makes a client receive a response that the server sends before it has read the whole
    /// request, such as 413 for a body that is too large. If the server then closes and a write
    /// fails, the write waits for reads, which return the response or an error. Without this, hyper
    /// reports the failed write. [`Connector`](crate::hyper_util::Connector) turns it on.
    pub fn await_early_answer(mut self) -> Self {
        self.early_answer = EarlyAnswer::Awaited;
        self
    }

    /// Returns the result of a write, or `Pending` if the write failed but an early response may
    /// have arrived.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        called: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &called
            && self.early_answer == EarlyAnswer::Awaited
            && matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        {
            // The read that hyper has started always completes, and wakes the task.
            self.early_answer = EarlyAnswer::Due;
            return Poll::Pending;
        }
        self.limit.within(cx, called)
    }

    /// Sets how long a write may wait for a peer that reads nothing. After that, the write fails
    /// with `TimedOut` and hyper ends the connection. There is no limit by default.
    pub fn write_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.limit = WriteLimit::new(limit.into());
        self
    }

    /// Unwraps the stream, for example after an upgrade.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Returns a reference to the stream.
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

/// Copies as many of the stream's received bytes as fit into `buf`, and returns their number.
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

/// Spawns hyper's HTTP/2 tasks on this thread's annulus runtime. Futures need not be `Send`.
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

/// hyper's timers on annulus, for header timeouts and keep-alives. Under a simulated kernel they
/// follow virtual time.
///
/// hyper and hyper-util add their limits to a `std::time::Instant`, which panics on overflow. For
/// no limit, pass `None` to *their* builders, not `Duration::MAX`: `header_read_timeout`,
/// `keep_alive_interval`, `pool_idle_timeout`.
#[derive(Clone, Debug)]
pub struct Timer {
    origin: Origin,
}

impl Timer {
    /// Creates timers on this thread's runtime.
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

impl Sleep for crate::clock::Timer {}
