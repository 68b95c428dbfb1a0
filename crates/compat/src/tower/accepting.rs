//! Accepts connections, and waits for them to end.

use super::error::{OnError, ServeError};
use super::open::OpenCount;
use super::sessions::Sessions;
use crate::Listen;
use annulus::task::JoinSet;
use annulus::time::{Sleep, sleep, timeout};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Time from a listener error to the next attempt to accept.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// The sources that a running server waits for: the listener, its connections and the shutdown
/// signal.
pub(super) struct Accepting<'a, L: Listen> {
    pub(super) listener: &'a mut L,
    pub(super) limit: usize,
    pub(super) open: Rc<OpenCount>,
    pub(super) signal: Option<Pin<Box<dyn Future<Output = ()>>>>,
    pub(super) connections: JoinSet<()>,
    pub(super) on_error: OnError<L::Peer>,
    /// Runs for a second after a listener error.
    pub(super) pause: Option<Pin<Box<Sleep>>>,
}

impl<L: Listen> Accepting<'_, L> {
    /// Returns the next connection, or `None` if the server has to shut down.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(L::Stream, L::Peer)>> {
        if let Some(signal) = &mut self.signal
            && signal.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        while let Poll::Ready(Some(_)) = self.connections.poll_join_next(cx) {}
        while self.open.is_below(self.limit, cx) {
            if let Some(pause) = &mut self.pause
                && pause.as_mut().poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            self.pause = None;
            match self.listener.poll_accept(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(accepted)) => return Poll::Ready(Some(accepted)),
                Poll::Ready(Err(error)) => {
                    (self.on_error)(ServeError { peer: None, error: error.into() });
                    self.pause = Some(Box::pin(sleep(ERROR_PAUSE)));
                }
            }
        }
        Poll::Pending
    }
}

/// Time that sessions have to end after the other connections, if no limit is set. It is the same
/// as for an HTTP/2 connection without a request, because both depend on the peer alone.
const SESSION_WAIT: Duration = Duration::from_secs(5);

/// Waits until all connections and sessions have ended. Drops the connections and cuts the sessions
/// that exceed the limit.
pub(super) async fn drain(
    mut connections: JoinSet<()>,
    open: &OpenCount,
    sessions: &Sessions,
    limit: Option<Duration>,
) {
    let all = async { while connections.join_next().await.is_some() {} };
    match limit {
        None => {
            all.await;
            _ = timeout(SESSION_WAIT, sessions.all_ended()).await;
        }
        Some(limit) => {
            let all = async {
                all.await;
                sessions.all_ended().await;
            };
            _ = timeout(limit, all).await;
        }
    }
    connections.shutdown().await;
    if sessions.open() > 0 {
        // Counted before they are reported: the callback may drop their streams.
        sessions.cut_all();
        open.cut_upgraded(limit.unwrap_or(SESSION_WAIT));
        sessions.all_tasks_dropped().await;
    }
}
