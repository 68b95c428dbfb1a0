//! `Incoming` as the connections of tonic's own server.

use super::Incoming;
use crate::{Listen, SendStream};
use annulus::net::{Credentials, TcpStream, UnixStream};
use futures_core::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::transport::server::{Connected, TcpConnectInfo};

impl<L: Listen + Unpin> Stream for Incoming<L> {
    type Item = io::Result<SendStream<L::Stream>>;

    /// Returns the next connection. The stream continues after system errors, such as running out
    /// of descriptors. It ends after an error without an OS error number, such as one which says
    /// that the runtime has ended.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let accepted = match self.listener.try_mut() {
            Ok(listener) => ready!(listener.poll_accept(cx)),
            Err(wrong) => Err(wrong.into()),
        };
        // Errors without an OS error number, such as a runtime that has ended, would recur on every
        // call.
        self.has_ended = matches!(&accepted, Err(error) if error.raw_os_error().is_none());
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
