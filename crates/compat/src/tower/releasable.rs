//! An HTTP/1 connection whose hyper state can be freed while it is idle.

use super::activity::Activity;
use super::watched::Watched;
use crate::hyper::{BoxError, HttpService};
use annulus::io::{AsyncRecv, AsyncSend};
use hyper::server::conn::http1::{Builder, Parts, UpgradeableConnection};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// An HTTP/1 connection that has no timers: the caller decides when to release it.
pub(super) struct Releasable<'a, T, S: HttpService> {
    http: &'a Builder,
    activity: Rc<Activity>,
    phase: Phase<T, S>,
    is_stopping: bool,
}

enum Phase<T, S: HttpService> {
    /// hyper has no state for the connection, which waits for its next byte.
    Released(Watched<T>, S),
    /// Boxed, so that the task stays small while the connection is released.
    Served(Box<UpgradeableConnection<Watched<T>, S>>),
    /// The connection is idle, and its stream is being shut down.
    Closing(Watched<T>),
    Ended,
}

impl<'a, T, S> Releasable<'a, T, S>
where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: HttpService,
{
    /// Creates a connection that stays released until its first byte.
    pub(super) fn new(http: &'a Builder, stream: T, service: S, activity: Rc<Activity>) -> Self {
        let phase = Phase::Released(Watched::new(stream, activity.clone()), service);
        Self { http, activity, phase, is_stopping: false }
    }

    /// Serves the connection until it ends or is upgraded.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            let ended = match &mut self.phase {
                Phase::Released(stream, _) => {
                    // An error on an idle connection ends it without a report, as in hyper.
                    let goes_on =
                        !self.is_stopping && ready!(stream.poll_has_bytes(cx)).unwrap_or(false);
                    self.leave_released(goes_on);
                    continue;
                }
                Phase::Served(connection) => {
                    ready!(Pin::new(&mut **connection).poll(cx)).map_err(Into::into)
                }
                // The peer may already be gone, so errors of the shutdown are ignored.
                Phase::Closing(stream) => ready!(stream.poll_end(cx)).or(Ok(())),
                Phase::Ended => Ok(()),
            };
            self.phase = Phase::Ended;
            return Poll::Ready(ended);
        }
    }

    fn leave_released(&mut self, goes_on: bool) {
        let Phase::Released(stream, service) = std::mem::replace(&mut self.phase, Phase::Ended)
        else {
            unreachable!("the connection is released")
        };
        self.phase = if goes_on {
            let connection = self.http.serve_connection(stream, service);
            Phase::Served(Box::new(connection.with_upgrades()))
        } else {
            Phase::Closing(stream)
        };
    }

    /// Ends the connection after the response to the current request, or at the next poll if it is
    /// released.
    pub(super) fn graceful_shutdown(&mut self) {
        self.is_stopping = true;
        if let Phase::Served(connection) = &mut self.phase {
            Pin::new(&mut **connection).graceful_shutdown();
        }
    }

    /// Returns true if hyper has no state for the connection.
    pub(super) fn is_released(&self) -> bool {
        !matches!(self.phase, Phase::Served(_))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_released() || self.activity.is_idle()
    }

    /// Frees hyper's state if the connection is idle. The caller must poll the connection
    /// afterwards.
    pub(super) fn release(&mut self) {
        if self.is_released() || !self.is_idle() {
            return;
        }
        let Phase::Served(connection) = std::mem::replace(&mut self.phase, Phase::Ended) else {
            unreachable!("the connection is being served")
        };
        // An upgraded connection returns no parts, and has ended.
        let Some(Parts { io: mut stream, read_buf, service, .. }) = connection.into_parts() else {
            return;
        };
        if stream.put_back(read_buf).is_ok() {
            self.phase = Phase::Released(stream, service);
        }
    }
}
