//! A connection of HTTP/1 of which hyper's part can be freed while nothing is under way.

use super::activity::Activity;
use super::watched::Watched;
use crate::hyper::{BoxError, HttpService};
use annulus::io::{AsyncRecv, AsyncSend};
use hyper::server::conn::http1::{Builder, Parts, UpgradeableConnection};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// It has no timers: what drives it says when it is to be released.
pub(super) struct Releasable<'a, T, S: HttpService> {
    http: &'a Builder,
    activity: Rc<Activity>,
    phase: Phase<T, S>,
    is_stopping: bool,
}

enum Phase<T, S: HttpService> {
    /// hyper holds nothing, and the next byte is awaited.
    Released(Watched<T>, S),
    /// Boxed, so that the task does not have its size while it is released.
    Served(Box<UpgradeableConnection<Watched<T>, S>>),
    /// Nothing is under way, and the stream ends.
    Closing(Watched<T>),
    Ended,
}

impl<'a, T, S> Releasable<'a, T, S>
where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: HttpService,
{
    /// A connection that is released, until its first byte.
    pub(super) fn new(http: &'a Builder, stream: T, service: S, activity: Rc<Activity>) -> Self {
        let phase = Phase::Released(Watched::new(stream, activity.clone()), service);
        Self { http, activity, phase, is_stopping: false }
    }

    /// Serves it to its end, or until it is upgraded.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            let ended = match &mut self.phase {
                Phase::Released(stream, _) => {
                    // An idle connection that breaks off has ended: for hyper, too, that is no error.
                    let goes_on =
                        !self.is_stopping && ready!(stream.poll_has_bytes(cx)).unwrap_or(false);
                    self.leave_released(goes_on);
                    continue;
                }
                Phase::Served(connection) => {
                    ready!(Pin::new(&mut **connection).poll(cx)).map_err(Into::into)
                }
                // The peer may have gone.
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
            unreachable!("it is released")
        };
        self.phase = if goes_on {
            let connection = self.http.serve_connection(stream, service);
            Phase::Served(Box::new(connection.with_upgrades()))
        } else {
            Phase::Closing(stream)
        };
    }

    /// Lets it end: after the response to the request that has begun, or with the next poll.
    pub(super) fn graceful_shutdown(&mut self) {
        self.is_stopping = true;
        if let Phase::Served(connection) = &mut self.phase {
            Pin::new(&mut **connection).graceful_shutdown();
        }
    }

    /// Whether hyper holds nothing for the connection.
    pub(super) fn is_released(&self) -> bool {
        !matches!(self.phase, Phase::Served(_))
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.is_released() || self.activity.is_idle()
    }

    /// Frees what hyper holds, if nothing is under way. It is to be polled afterwards.
    pub(super) fn release(&mut self) {
        if self.is_released() || !self.is_idle() {
            return;
        }
        let Phase::Served(connection) = std::mem::replace(&mut self.phase, Phase::Ended) else {
            unreachable!("it is served")
        };
        // There are none of a connection that was upgraded, which has ended.
        let Some(Parts { io: mut stream, read_buf, service, .. }) = connection.into_parts() else {
            return;
        };
        if stream.put_back(read_buf).is_ok() {
            self.phase = Phase::Released(stream, service);
        }
    }
}
