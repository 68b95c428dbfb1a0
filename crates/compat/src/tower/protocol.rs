//! Detects a connection's HTTP version and serves it.

use super::activity::Activity;
use super::connection::Settings;
use super::releasable::Releasable;
use crate::hyper::{BoxError, Executor, HttpService, Io};
use annulus::io::{AsyncRecv, AsyncSend};
use hyper::server::conn::http2;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The first bytes of an HTTP/2 connection.
pub(super) const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Versions {
    #[default]
    Both,
    Http1,
    Http2,
}

/// A connection, whose version is unknown until its first bytes have arrived.
pub(super) enum Protocol<'a, T, S>
where
    T: AsyncRecv + AsyncSend + Unpin,
    S: HttpService<Future: 'static>,
{
    Unknown(&'a Settings, T, S, Rc<Activity>),
    Http1(Releasable<'a, T, S>),
    /// Boxed, so that it does not enlarge HTTP/1 connections.
    Http2(Pin<Box<http2::Connection<Io<T>, S, Executor>>>),
    Ended,
}

impl<'a, T, S> Protocol<'a, T, S>
where
    T: AsyncRecv + AsyncSend + Unpin + 'static,
    S: HttpService<Future: 'static>,
{
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            match self {
                Self::Unknown(settings, stream, ..) => {
                    let is_http2 = ready!(poll_is_http2(stream, settings.versions, cx))?;
                    self.begin(is_http2);
                }
                Self::Http1(connection) => return connection.poll(cx),
                Self::Http2(connection) => {
                    return connection.as_mut().poll(cx).map_err(Into::into);
                }
                Self::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    fn begin(&mut self, is_http2: bool) {
        let Self::Unknown(settings, stream, service, activity) =
            std::mem::replace(self, Self::Ended)
        else {
            unreachable!("the version is detected once")
        };
        *self = if is_http2 {
            let connection = settings.http2.serve_connection(Io::new(stream), service);
            Self::Http2(Box::pin(connection))
        } else {
            Self::Http1(Releasable::new(&settings.http1, stream, service, activity))
        };
    }

    /// Starts the protocol's graceful shutdown. The caller must poll the connection afterwards.
    pub(super) fn graceful_shutdown(&mut self) {
        match self {
            Self::Unknown(..) => *self = Self::Ended,
            Self::Http1(connection) => connection.graceful_shutdown(),
            Self::Http2(connection) => connection.as_mut().graceful_shutdown(),
            Self::Ended => {}
        }
    }

    /// Returns true if [`release`](Self::release) would free memory.
    pub(super) fn is_releasable(&self) -> bool {
        matches!(self, Self::Http1(connection) if !connection.is_released() && connection.is_idle())
    }

    /// Frees hyper's state of an idle HTTP/1 connection.
    pub(super) fn release(&mut self) {
        if let Self::Http1(connection) = self {
            connection.release();
        }
    }
}

/// Peeks at as many of the first bytes as it needs to detect the version.
fn poll_is_http2(
    stream: &mut impl AsyncRecv,
    versions: Versions,
    cx: &mut Context<'_>,
) -> Poll<io::Result<bool>> {
    if versions != Versions::Both {
        return Poll::Ready(Ok(versions == Versions::Http2));
    }
    let mut wanted = 1;
    loop {
        let shown = ready!(stream.poll_fill_at_least(cx, wanted))?;
        let common = shown.len().min(HTTP2_PREFACE.len());
        let is_preface = shown[..common] == HTTP2_PREFACE[..common];
        if !is_preface || common == HTTP2_PREFACE.len() || shown.len() < wanted {
            return Poll::Ready(Ok(is_preface && common == HTTP2_PREFACE.len()));
        }
        wanted = common + 1;
    }
}
