//! The errors that a server reports.

use crate::hyper::BoxError;
use std::error::Error;
use std::fmt;
use std::rc::Rc;

/// An error that a server reports to [`Serve::on_error`](super::Serve::on_error), with the peer of
/// its connection. `Display` shows both, and [`source`](Error::source) returns the inner error's
/// source.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
/// use annulus_compat::tower::{ServeError, serve};
/// use axum::Router;
/// use std::net::SocketAddr;
///
/// fn log(error: ServeError<'_, SocketAddr>) {
///     match error.peer {
///         Some(peer) => eprintln!("peer={} error={:?}", peer.ip(), error.error.to_string()),
///         None => eprintln!("cannot accept connections: {}", error.error),
///     }
/// }
///
/// # annulus::run(async {
/// let server = serve(TcpListener::bind("127.0.0.1:0")?, Router::new()).on_error(log);
/// # drop(server);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct ServeError<'a, P> {
    /// The peer of the connection; `None` for a listener error.
    pub peer: Option<&'a P>,
    /// The error, without its peer.
    pub error: Box<dyn Error + Send + Sync>,
}

impl<P: fmt::Debug> fmt::Display for ServeError<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "{peer:?}: {}", self.error),
            None => write!(f, "cannot accept connections: {}", self.error),
        }
    }
}

impl<P: fmt::Debug> Error for ServeError<'_, P> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

pub(super) type OnError<P> = Rc<dyn Fn(ServeError<'_, P>)>;

/// Reports the errors of one connection.
pub(super) type Report = Rc<dyn Fn(BoxError)>;

pub(super) fn of_peer<P: 'static>(on_error: &OnError<P>, peer: P) -> Report {
    let on_error = on_error.clone();
    Rc::new(move |error| on_error(ServeError { peer: Some(&peer), error }))
}

/// Formats an error with its causes, for a report. hyper gets the error itself.
pub(super) fn text_of(error: &(dyn Error + 'static)) -> BoxError {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")).into()
}
