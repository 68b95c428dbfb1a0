//! The life of one connection.

use super::in_flight::InFlight;
use super::limits::Limits;
use super::service::Counted;
use super::write_limit::WriteLimit;
use crate::OnThread;
use crate::hyper::{Io, Spawner};
use annulus::io::{AsyncRecv, AsyncSend};
use annulus::sync::CancellationToken;
use annulus::time::{Instant, Sleep, sleep_until, timeout};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::server::conn::auto;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// What all connections of a server share.
pub(super) struct Settings {
    pub(super) http: auto::Builder<Spawner>,
    pub(super) limits: Limits,
    pub(super) on_error: Option<Box<dyn Fn(BoxError)>>,
    /// Cancelled when connections are to end after their current requests.
    pub(super) stop: CancellationToken,
}

/// Serves a connection until it ends, and tells of its error.
pub(super) async fn run<T, S, B>(
    stream: impl Future<Output = io::Result<T>>,
    service: S,
    settings: Rc<Settings>,
) where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let served = async {
        match settings.stop.run_until_cancelled(made(stream, settings.limits.header)).await {
            Some(stream) => serve(stream?, service, &settings).await,
            None => Ok(()),
        }
    };
    if let (Err(error), Some(tell)) = (served.await, &settings.on_error) {
        tell(error);
    }
}

/// The stream, once its handshake is over.
async fn made<T>(
    stream: impl Future<Output = io::Result<T>>,
    limit: Option<Duration>,
) -> io::Result<T> {
    let Some(limit) = limit else { return stream.await };
    timeout(limit, stream).await.unwrap_or_else(|_| {
        let text = format!("the handshake was not over within {limit:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    })
}

async fn serve<T, S, B>(stream: T, service: S, settings: &Settings) -> Result<(), BoxError>
where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + 'static,
    S::Future: 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let in_flight = InFlight::new();
    let service = Counted::new(service, in_flight.clone(), settings.limits.request);
    let stream = Io::new(OnThread::new(WriteLimit::new(stream, settings.limits.write)));
    let mut connection = pin!(settings.http.serve_connection_with_upgrades(stream, service));
    let mut stopped = pin!(settings.stop.cancelled());
    let mut is_stopping = false;
    let mut idle = Idle::new(in_flight, settings.limits.idle);
    poll_fn(|cx| {
        loop {
            if !is_stopping && stopped.as_mut().poll(cx).is_ready() {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(ended) = idle.watch(cx, connection.as_mut()) {
                return Poll::Ready(ended);
            }
            match idle.poll_over(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Over::Close) => connection.as_mut().graceful_shutdown(),
                Poll::Ready(Over::Drop) => return Poll::Ready(Ok(())),
            }
        }
    })
    .await
}

/// What to do about a connection that was idle for too long.
enum Over {
    /// End it as its protocol does.
    Close,
    /// It was told to end, and its peer has not let it.
    Drop,
}

/// How long a connection may have no request in flight.
struct Idle {
    in_flight: Rc<InFlight>,
    limit: Option<Duration>,
    /// Set when it was told to end.
    closing_since: Option<Instant>,
    /// Not later than the limit's end.
    timer: Pin<Box<Sleep>>,
}

impl Idle {
    fn new(in_flight: Rc<InFlight>, limit: Option<Duration>) -> Self {
        let timer = Box::pin(sleep_until(Instant::now() + limit.unwrap_or(Duration::MAX)));
        Self { in_flight, limit, closing_since: None, timer }
    }

    /// Polls the connection. Requests that end meanwhile are seen right after.
    fn watch<F: Future>(&self, cx: &mut Context<'_>, connection: Pin<&mut F>) -> Poll<F::Output> {
        self.in_flight.set_polled(true);
        let polled = connection.poll(cx);
        self.in_flight.set_polled(false);
        polled
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        let Some(limit) = self.limit else { return Poll::Pending };
        loop {
            let Some(since) = self.in_flight.idle_since() else {
                self.in_flight.wake_at_end(cx.waker());
                return Poll::Pending;
            };
            let deadline = self.closing_since.unwrap_or(since).max(since) + limit;
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() < deadline {
                self.timer.as_mut().reset(deadline);
                continue;
            }
            let over = if self.closing_since.is_some() { Over::Drop } else { Over::Close };
            self.closing_since = Some(Instant::now());
            self.timer.as_mut().reset(Instant::now() + limit);
            return Poll::Ready(over);
        }
    }
}
