//! `Incoming` as the connections of tonic's own server.

use super::{ERROR_PAUSE, Incoming, runtime_has_ended};
use crate::{Listen, OnThread, SendStream};
use annulus::net::{Credentials, TcpStream, UnixStream};
use annulus::time::sleep;
use futures_core::Stream;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::transport::server::{Connected, TcpConnectInfo};

impl<L: Listen + Unpin> Stream for Incoming<L> {
    type Item = io::Result<SendStream<L::Stream>>;

    /// Returns the next connection. After an error of the listener, the stream waits a second
    /// before it accepts again, because tonic retries at once. The stream ends after an error that
    /// would recur on every call: the runtime has ended, or another thread polls the stream.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        let listener = match this.listener.try_mut() {
            Ok(listener) => listener,
            Err(wrong) => {
                this.has_ended = true;
                return Poll::Ready(Some(Err(wrong.into())));
            }
        };
        if let Some(pause) = &mut this.pause {
            _ = ready!(Pin::new(pause).poll(cx));
            this.pause = None;
        }
        let accepted = ready!(listener.poll_accept(cx));
        if accepted.is_err() {
            this.has_ended = runtime_has_ended();
            if !this.has_ended {
                this.pause = Some(OnThread::new(annulus::spawn(sleep(ERROR_PAUSE))));
            }
        }
        Poll::Ready(Some(accepted.map(|(stream, _)| SendStream::new(stream))))
    }
}

impl Connected for SendStream<TcpStream> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        let stream = self.try_ref().ok();
        TcpConnectInfo {
            local_addr: stream.and_then(|stream| stream.local_addr().ok()),
            remote_addr: stream.and_then(|stream| stream.peer_addr().ok()),
        }
    }
}

impl Connected for SendStream<UnixStream> {
    /// The credentials of the peer process. tonic's own `UdsConnectInfo` does not fit: only tokio
    /// can construct its fields.
    type ConnectInfo = Option<Credentials>;

    fn connect_info(&self) -> Option<Credentials> {
        self.try_ref().ok()?.peer_cred().ok()
    }
}
