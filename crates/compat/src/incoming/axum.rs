//! `Incoming` as a listener for `axum::serve`.

use super::{ERROR_PAUSE, Incoming, runtime_has_ended};
use crate::{Listen, OnThread, SendStream};
use annulus::time::sleep;
use axum::serve::Listener;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWrite};

impl<L> Listener for Incoming<L>
where
    L: Listen<Stream: AsyncRead + AsyncWrite + Unpin, Peer: Send> + Unpin + 'static,
{
    type Io = SendStream<L::Stream>;
    type Addr = L::Peer;

    /// Retries a second after a listener error. Once the runtime has ended, it waits forever, and a
    /// graceful shutdown still ends the server.
    ///
    /// # Panics
    /// Panics if polled on a thread other than the one that created the [`Incoming`].
    fn accept(&mut self) -> impl Future<Output = (Self::Io, L::Peer)> + Send {
        let listener = self.listener.try_mut();
        OnThread::new(async move {
            let listener = listener.unwrap_or_else(|wrong| panic!("{wrong}"));
            loop {
                match poll_fn(|cx| listener.poll_accept(cx)).await {
                    Ok((stream, peer)) => return (SendStream::new(stream), peer),
                    Err(_) if runtime_has_ended() => pending().await,
                    Err(_) => pause().await,
                }
            }
        })
    }

    fn local_addr(&self) -> io::Result<L::Peer> {
        self.local_addr()
    }
}

/// Waits after a listener error. It does not poll the timer after the runtime has ended, because
/// that would panic.
async fn pause() {
    let mut timer = pin!(sleep(ERROR_PAUSE));
    poll_fn(|cx| if runtime_has_ended() { Poll::Pending } else { timer.as_mut().poll(cx) }).await;
}
