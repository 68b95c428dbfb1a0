//! The task of a connection. It waits for the handshake, serves requests, and applies time limits.

use super::activity::Activity;
use super::error::Report;
use super::open::Open;
use super::panics;
use super::protocol::{Protocol, Versions};
use super::service::Counted;
use super::sessions::Sessions;
use super::stream::CountedStream;
use super::timer::{Late, Limits, Timer};
use crate::hyper::{BoxError, Executor, HttpService, WriteLimit};
use crate::limit::within;
use annulus::io::{AsyncRecv, AsyncSend};
use hyper::http::Extensions;
use hyper::server::conn::{http1, http2};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// The settings that all connections of a server share.
pub(super) struct Settings {
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<Executor>,
    pub(super) versions: Versions,
    pub(super) limits: Limits,
    /// Told when connections must end after their current requests.
    pub(super) sessions: Sessions,
}

/// Serves a connection until it ends, and reports its error.
pub(super) async fn run<T, S>(
    stream: impl Future<Output = io::Result<(T, Extensions)>>,
    service: S,
    open: Rc<Open>,
    settings: Rc<Settings>,
    report: Report,
) where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: HttpService<Future: 'static> + 'static,
{
    let mut served = pin!(async {
        let stream = within(settings.limits.header, stream, |limit| {
            format!("the handshake did not finish within {limit:?}")
        });
        match settings.sessions.stop().run_until_cancelled(stream).await {
            Some(stream) => serve(stream?, service, open, &settings, &report).await,
            None => Ok(()),
        }
    });
    let ended = poll_fn(|cx| match panics::catch(|| served.as_mut().poll(cx)) {
        Ok(polled) => polled,
        Err(panic) => Poll::Ready(Err(panics::error(&panic))),
    });
    if let Err(error) = ended.await {
        report(error);
    }
}

async fn serve<T, S>(
    (stream, known): (T, Extensions),
    service: S,
    open: Rc<Open>,
    settings: &Settings,
    report: &Report,
) -> Result<(), BoxError>
where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: HttpService<Future: 'static> + 'static,
{
    let activity = Activity::new();
    let limit = settings.limits.request;
    let service = Counted {
        service,
        known,
        activity: activity.clone(),
        limit,
        sessions: settings.sessions.clone(),
        report: report.clone(),
    };
    let limit = WriteLimit::new(settings.limits.write);
    let still_open = Rc::downgrade(&open);
    let stream = CountedStream { stream, activity: activity.clone(), open, limit };
    let mut connection = Protocol::Unknown(settings, stream, service, activity.clone());
    let mut stopped = pin!(settings.sessions.stop().cancelled());
    let mut is_stopping = false;
    let mut timer = Timer::new(activity.clone(), settings.limits);
    let ended = poll_fn(|cx| {
        loop {
            if !is_stopping && stopped.as_mut().poll(cx).is_ready() {
                is_stopping = true;
                timer.stop();
                connection.graceful_shutdown();
            }
            if let Poll::Ready(ended) = connection.poll(cx) {
                return Poll::Ready(ended);
            }
            timer.note(connection.is_releasable());
            match timer.poll_late(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Late::Release) => connection.release(),
                Poll::Ready(Late::Close) => connection.graceful_shutdown(),
                Poll::Ready(Late::Drop(error)) => return Poll::Ready(Err(error.into())),
            }
        }
    })
    .await;
    drop(connection);
    // A stream that outlives its HTTP connection has been upgraded.
    let session = activity.session.take();
    if let Some((session, open)) = session.zip(still_open.upgrade()) {
        open.note_upgraded(session.hold(), report.clone());
    }
    ended
}
