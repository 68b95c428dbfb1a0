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

mod early_answer;
mod write_limit;

pub(crate) use write_limit::WriteLimit;

use crate::clock::Origin;
use crate::late_end::LateEnd;
use annulus::io::{AsyncRecv, AsyncSend};
use early_answer::{EarlyAnswer, Failed};
use hyper::body::{Body, Incoming};
use hyper::rt::{self, Read, ReadBufCursor, Sleep, Write};
use hyper::service::Service;
use hyper::{Request, Response};
use std::error::Error;
use std::future::Future;
use std::io;
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
    /// Holds failed writes back. `None` if they fail at once.
    early_answer: Option<Box<EarlyAnswer>>,
}

impl<S> Io<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        Self { stream, end: LateEnd::default(), limit: WriteLimit::default(), early_answer: None }
    }

    /// Makes a client receive a response that the server sends before it has read the whole
    /// request, such as 413 for a body that is too large. If the server then closes and a write
    /// fails, the write waits for reads, which return the response or an error. It fails when a
    /// read returns the end of the stream or an error, or when no read returns for 5 s. Without
    /// this, hyper reports the failed write. [`Connector`](crate::hyper_util::Connector) turns it
    /// on.
    ///
    /// It is for HTTP/1 requests. It turns itself off for HTTP/2, for `CONNECT` and after an
    /// upgrade: then each failed write is reported at once.
    pub fn await_early_answer(mut self) -> Self {
        self.early_answer = Some(Box::default());
        self
    }

    /// Reports failed writes at once from now on.
    fn end_early_answer(&mut self) {
        if let Some(early) = self.early_answer.take() {
            early.end();
        }
    }

    /// Turns early responses off if they cannot follow the bytes that are about to be written.
    fn before_write(&mut self, bytes: &[u8]) {
        if self.early_answer.is_some() && !EarlyAnswer::may_follow(bytes) {
            self.end_early_answer();
        }
    }

    /// Calls the stream to write or flush. Returns `Pending` if that failed but an early response
    /// may still be read.
    fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        call: impl FnOnce(&mut S, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(early) = &mut self.early_answer else {
            let called = call(&mut self.stream, cx);
            return self.limit.within(cx, called);
        };
        let failed = match early.take_failed() {
            Some(failed) => failed,
            None => match call(&mut self.stream, cx) {
                Poll::Ready(Err(error)) if EarlyAnswer::may_explain(&error) => {
                    Failed::new(cx, error)
                }
                called => return self.limit.within(cx, called),
            },
        };
        let error = ready!(early.poll_error(cx, failed));
        self.early_answer = None;
        Poll::Ready(Err(error))
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
        let Some(early) = &mut this.early_answer else {
            let read = poll_read(&mut this.stream, cx, &mut buf);
            return this.end.show(cx, read).map_ok(drop);
        };
        let mut is_upgrade = false;
        let note = |bytes: &[u8]| is_upgrade = early.is_upgrade(bytes);
        let read = poll_read_noting(&mut this.stream, cx, &mut buf, note);
        let read = this.end.show(cx, read);
        early.note_read(&read);
        if is_upgrade {
            this.end_early_answer();
        }
        read.map_ok(drop)
    }
}

/// Copies as many of the stream's received bytes as fit into `buf`, and returns their number.
pub(crate) fn poll_read(
    stream: &mut impl AsyncRecv,
    cx: &mut Context<'_>,
    buf: &mut ReadBufCursor<'_>,
) -> Poll<io::Result<usize>> {
    poll_read_noting(stream, cx, buf, |_| ())
}

/// Like [`poll_read`], but passes the bytes to a function.
fn poll_read_noting(
    stream: &mut impl AsyncRecv,
    cx: &mut Context<'_>,
    buf: &mut ReadBufCursor<'_>,
    note: impl FnOnce(&[u8]),
) -> Poll<io::Result<usize>> {
    let bytes = ready!(stream.poll_fill_buf(cx))?;
    let count = bytes.len().min(buf.remaining());
    buf.put_slice(&bytes[..count]);
    note(&bytes[..count]);
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
        this.before_write(bytes);
        this.poll_with(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_with(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // After this, a failed write does not mean that the server has closed the connection.
        this.end_early_answer();
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
        this.before_write(slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice));
        this.poll_with(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
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
