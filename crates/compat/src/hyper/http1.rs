//! Connections of HTTP/1 that hold no buffers of hyper while they are idle.

use super::releasable::Releasable;
use super::{BoxError, HttpService};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::time::{Instant, Sleep, sleep};
use hyper::server::conn::http1::Builder;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How long a connection keeps its buffers after a response, by default.
const RELEASE_AFTER: Duration = Duration::from_millis(100);

/// How long a connection may be idle, by default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves connections of HTTP/1, and frees what hyper holds for a connection, two buffers of 8 KiB above all, once it has been idle for a
/// while. The next byte makes it anew. For servers of many connections that are mostly idle, with a loop of their own; `tower::serve` does it
/// too.
///
/// Only a connection whose last request had no body is freed: hyper does not show whether a body was read to its end.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
/// use annulus_compat::hyper::{Http1, Timer};
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use hyper::server::conn::http1;
/// use hyper::{Response, service::service_fn};
/// use std::{convert::Infallible, rc::Rc, time::Duration};
///
/// annulus::run(async {
///     let mut http = http1::Builder::new();
///     http.timer(Timer::new()).header_read_timeout(Duration::from_secs(10));
///     let server = Rc::new(Http1::new(http).idle_timeout(Duration::from_secs(60)));
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     annulus::spawn(async move {
///         while let Ok((stream, _)) = listener.accept().await {
///             let server = server.clone();
///             let hello = async |_| Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))));
///             annulus::spawn(async move { server.serve_connection(stream, service_fn(hello)).await });
///         }
///     });
///     let mut client = TcpStream::connect(address).await?;
///     for _ in 0..2 {
///         client.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
///         assert!(client.recv().await?.expect("an answer").ends_with(b"hello"));
///         annulus::time::sleep(Duration::from_millis(250)).await; // Its buffers are freed.
///     }
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Http1 {
    http: Builder,
    release_after: Option<Duration>,
    idle_timeout: Option<Duration>,
}

impl Http1 {
    /// With hyper's settings, and its `half_close`: a client that ends its direction of the stream behind a request gets its reply, and one that
    /// breaks off ends its handler.
    pub fn new(mut http: Builder) -> Self {
        http.half_close(true);
        Self { http, release_after: Some(RELEASE_AFTER), idle_timeout: Some(IDLE_TIMEOUT) }
    }

    /// How long a connection is idle before its buffers are freed: at least this, and at most twice as long. 100 ms by default; `None` to keep
    /// them. It costs some microseconds to make them anew.
    pub fn release_after(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.release_after = idle.into();
        self
    }

    /// How long a connection may send nothing before its first request, and after its buffers were freed, when hyper's limit on headers does
    /// not count; then it is closed. 60 seconds by default; `None` for no limit.
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = limit.into();
        self
    }

    /// Serves a connection, with upgrades (`hyper::upgrade`). Awaiting the result runs it to its end.
    pub fn serve_connection<T, S>(&self, stream: T, service: S) -> Http1Connection<'_, T, S>
    where
        T: AsyncRecv + AsyncSend + Unpin + 'static,
        S: HttpService,
    {
        Http1Connection {
            connection: Releasable::new(&self.http, stream, service),
            settings: self,
            timer: sleep(self.idle_timeout.unwrap_or(Duration::MAX)),
            seen: Seen { is_released: true, answered: 0 },
            is_closing: false,
        }
    }
}

/// A connection of HTTP/1: see [`Http1::serve_connection`]. It is ready when the connection has ended, or was upgraded; its errors are those of
/// the stream, of hyper and of the service, most of them the peer's. That an idle connection breaks off is none.
///
/// Dropping it closes the connection; with what was accepted for sending, the runtime deals as always.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
/// use tokio_util::sync::CancellationToken;
/// use annulus_compat::hyper::Http1;
/// use hyper::server::conn::http1;
/// use hyper::service::service_fn;
/// use hyper::{Request, Response, body::Incoming};
/// use std::convert::Infallible;
/// use std::pin::pin;
///
/// async fn hello(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
///     Ok(Response::new("hello".to_owned()))
/// }
///
/// /// Serves a connection until it ends, or until the request that it has begun when `stop` is cancelled.
/// async fn serve(server: &Http1, stream: TcpStream, stop: CancellationToken) {
///     let mut connection = pin!(server.serve_connection(stream, service_fn(hello)));
///     if stop.run_until_cancelled(connection.as_mut()).await.is_none() {
///         connection.as_mut().graceful_shutdown();
///         _ = connection.await;
///     }
/// }
///
/// annulus::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?).await?;
///     let (stream, _) = listener.accept().await?;
///     let stop = CancellationToken::new();
///     let stopped = stop.clone();
///     let server = Http1::new(http1::Builder::new());
///     let served = annulus::spawn(async move { serve(&server, stream, stopped).await });
///     client.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
///     assert!(client.recv().await?.expect("an answer").ends_with(b"hello"));
///     stop.cancel(); // The connection is idle: it is closed at once.
///     assert!(client.recv().await?.is_none());
///     served.await?;
///     std::io::Result::Ok(())
/// })
/// # .unwrap();
/// ```
#[must_use = "a connection is not served unless awaited"]
pub struct Http1Connection<'a, T, S: HttpService> {
    connection: Releasable<'a, T, S>,
    settings: &'a Http1,
    timer: Sleep,
    seen: Seen,
    is_closing: bool,
}

/// The state of the connection that the timer was set for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    is_released: bool,
    answered: u64,
}

impl<T, S> Http1Connection<'_, T, S>
where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: HttpService,
{
    /// Lets the connection end: at once if it is idle, and otherwise after the response to the request that it has begun. It has to be polled
    /// until it is ready. After its end this does nothing.
    pub fn graceful_shutdown(self: Pin<&mut Self>) {
        self.get_mut().connection.graceful_shutdown();
    }

    fn seen(&self) -> Seen {
        let connection = &self.connection;
        Seen { is_released: connection.is_released(), answered: connection.answered() }
    }

    /// Sets the timer for what the connection waits for now.
    fn set_timer(&mut self) {
        self.seen = self.seen();
        let Http1 { release_after, idle_timeout, .. } = self.settings;
        let limit = if self.seen.is_released { idle_timeout } else { release_after };
        self.timer.reset(Instant::now() + limit.unwrap_or(Duration::MAX));
    }

    /// The timer has fired, and nothing has happened since it was set. True if the connection is to be dropped.
    fn is_late(&mut self) -> bool {
        if !self.seen.is_released {
            self.connection.release();
            return false;
        }
        self.connection.graceful_shutdown();
        // Bytes that were sent before may not leave, since the peer takes nothing.
        std::mem::replace(&mut self.is_closing, true)
    }
}

// Nothing in it is pinned: hyper boxes futures and bodies.
impl<T, S: HttpService> Unpin for Http1Connection<'_, T, S> {}

impl<T, S> Future for Http1Connection<'_, T, S>
where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: HttpService,
{
    type Output = Result<(), BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            if let Poll::Ready(ended) = this.connection.poll(cx) {
                return Poll::Ready(ended);
            }
            if this.connection.is_released() != this.seen.is_released {
                this.set_timer();
            }
            // A timer that fires in the meantime only wakes the task.
            if !this.connection.is_idle() {
                return Poll::Pending;
            }
            ready!(Pin::new(&mut this.timer).poll(cx));
            let is_late = this.seen() == this.seen && this.is_late();
            if is_late {
                return Poll::Ready(Ok(()));
            }
            this.set_timer();
        }
    }
}

impl<T, S: HttpService> fmt::Debug for Http1Connection<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Connection").finish_non_exhaustive()
    }
}
