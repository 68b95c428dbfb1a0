//! Receiving a datagram with its sender.

use crate::bytes::lease::Lease;
use crate::net::datagram_handle::RecvDatagram;
use crate::slots::datagrams::ReceivedMessage;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A receive that may wait. Dropped, it is as the one in it.
#[must_use = "futures do nothing unless they are awaited"]
pub(super) struct RecvFrom<'a>(pub(super) RecvDatagram<'a>);

impl Future for RecvFrom<'_> {
    type Output = io::Result<(Lease, SocketAddr)>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0.take_plain()? {
            Some(plain) => Poll::Ready(Ok(plain)),
            None => Pin::new(&mut self.0).poll(cx).map(|message| whole(message?)),
        }
    }
}

/// The bytes and the sender of a datagram that was not cut.
pub(super) fn whole(message: ReceivedMessage) -> io::Result<(Lease, SocketAddr)> {
    if message.is_cut() {
        return Err(cut(&message));
    }
    let source = message.inet_source()?;
    Ok((message.into_bytes(), source))
}

/// The error for a datagram that was cut.
pub(in crate::net) fn cut(message: &ReceivedMessage) -> io::Error {
    let text = format!(
        "a datagram of {} bytes was cut to {}; ask for larger ones with max_datagram",
        message.whole_len(),
        message.len()
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}
