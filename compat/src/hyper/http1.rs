//! Connections of HTTP/1 that hold no buffers of hyper while they are idle.

use super::watched::{Answering, State, Watched};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::time::{Instant, Sleep, sleep, timeout};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1::{Builder, Connection, Parts};
use hyper::service::Service;
use hyper::{Request, Response};
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

type BoxError = Box<dyn Error + Send + Sync>;

/// How long a connection keeps its buffers after a response, by default.
const RELEASE_AFTER: Duration = Duration::from_millis(100);

/// How long a connection may be idle, by default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves connections of HTTP/1, and frees what hyper holds for a connection, two buffers of 8 KiB above all, once it has been idle for a
/// while. The next byte makes it anew. For servers of many connections that are mostly idle.
///
/// Only a connection whose last request had no body is freed: hyper does not show whether a body was read to its end. There are no upgrades
/// and no graceful shutdown; for these, drive hyper's own connection, or take `tower::serve`.
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
///             annulus::spawn(async move { server.serve(stream, service_fn(hello)).await });
///         }
///     });
///     let mut client = TcpStream::connect(address).await?;
///     for _ in 0..2 {
///         client.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
///         assert!(client.recv().await?.expect("an answer").ends_with(b"hello"));
///         annulus::time::sleep(Duration::from_millis(150)).await; // Its buffers are freed.
///     }
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Http1 {
    http: Builder,
    release_after: Duration,
    idle_timeout: Option<Duration>,
}

impl Http1 {
    /// With hyper's settings.
    pub fn new(http: Builder) -> Self {
        Self { http, release_after: RELEASE_AFTER, idle_timeout: Some(IDLE_TIMEOUT) }
    }

    /// How long a connection is idle before its buffers are freed: 100 ms by default. It costs some microseconds to make them anew.
    pub fn release_after(mut self, idle: Duration) -> Self {
        self.release_after = idle;
        self
    }

    /// How long a connection may send nothing before its first request, and after its buffers were freed, when hyper's limit on headers does
    /// not count; then it is closed. 60 seconds by default; `None` for no limit.
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = limit.into();
        self
    }

    /// Serves a connection to its end. Dropping it closes the connection.
    ///
    /// # Errors
    /// Those of the stream, of hyper and of the service. Most are the peer's.
    pub async fn serve<T, S, B>(&self, stream: T, service: S) -> Result<(), BoxError>
    where
        T: AsyncRecv + AsyncSend + Unpin + 'static,
        S: Service<Request<Incoming>, Response = Response<B>>,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        let state = Rc::new(State::default());
        let mut timer = pin!(sleep(self.release_after));
        let mut stream = Watched::new(stream, state.clone());
        let mut service = Answering::new(service, state.clone());
        while self.is_used_again(&mut stream).await? {
            // Boxed, so that the task does not have its size while it is idle.
            let mut connection = Box::new(self.http.serve_connection(stream, service));
            if self.drive(&mut connection, &state, timer.as_mut()).await? == Ended::Closed {
                break;
            }
            let Parts { io, read_buf, service: answers, .. } = connection.into_parts();
            (stream, service) = (io, answers);
            stream.put_back(read_buf);
        }
        Ok(())
    }

    /// Waits for the next byte, without buffers. False at the end of the stream, and after the limit.
    async fn is_used_again<T>(&self, stream: &mut Watched<T>) -> io::Result<bool>
    where
        T: AsyncRecv + Unpin,
    {
        let received = poll_fn(|cx| stream.poll_has_bytes(cx));
        match self.idle_timeout {
            Some(limit) => timeout(limit, received).await.unwrap_or(Ok(false)),
            None => received.await,
        }
    }

    /// Polls a connection until it ends, or has been idle for a while.
    async fn drive<T, S, B>(
        &self,
        connection: &mut Connection<Watched<T>, Answering<S>>,
        state: &State,
        mut timer: Pin<&mut Sleep>,
    ) -> Result<Ended, BoxError>
    where
        T: AsyncRecv + AsyncSend + Unpin + 'static,
        S: Service<Request<Incoming>, Response = Response<B>>,
        S::Error: Into<BoxError>,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        let mut since = None;
        poll_fn(|cx| {
            if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
                return Poll::Ready(ended.map(|()| Ended::Closed).map_err(Into::into));
            }
            if !state.is_idle() {
                since = None;
                return Poll::Pending;
            }
            if since.is_none_or(|(_, answered)| answered != state.answered()) {
                since = Some((Instant::now(), state.answered()));
            }
            let deadline = since.map(|(since, _)| since + self.release_after);
            loop {
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                match deadline.filter(|deadline| *deadline > Instant::now()) {
                    Some(deadline) => timer.as_mut().reset(deadline),
                    None => return Poll::Ready(Ok(Ended::Idle)),
                }
            }
        })
        .await
    }
}

/// Why a connection of hyper is no longer polled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Closed,
    Idle,
}
