//! As a listener of `axum::serve`.

use super::Incoming;
use crate::{Listen, OnThread, SendStream};
use annulus::time::sleep;
use axum::serve::Listener;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

impl<L> Listener for Incoming<L>
where
    L: Listen<Stream: AsyncRead + AsyncWrite + Unpin, Peer: Send> + Unpin + 'static,
{
    type Io = SendStream<L::Stream>;
    type Addr = L::Peer;

    /// After an error of the listener it tries again; after the runtime's end it waits for ever, and a graceful shutdown still ends the server.
    ///
    /// # Panics
    /// On another thread than the one that made it.
    fn accept(&mut self) -> impl Future<Output = (Self::Io, L::Peer)> + Send {
        let listener = self.listener.try_mut();
        OnThread::new(async move {
            let listener = listener.unwrap_or_else(|wrong| panic!("{wrong}"));
            loop {
                match poll_fn(|cx| listener.poll_accept(cx)).await {
                    Ok((stream, peer)) => return (SendStream::new(stream), peer),
                    Err(_) if has_ended() => pending().await,
                    Err(_) => pause().await,
                }
            }
        })
    }

    fn local_addr(&self) -> io::Result<L::Peer> {
        self.local_addr()
    }
}

fn has_ended() -> bool {
    annulus::handle().is_err()
}

/// A second, as axum's own listeners wait, without a look at the timer after the runtime's end, which would be a panic.
async fn pause() {
    let mut timer = pin!(sleep(Duration::from_secs(1)));
    poll_fn(|cx| if has_ended() { Poll::Pending } else { timer.as_mut().poll(cx) }).await;
}
