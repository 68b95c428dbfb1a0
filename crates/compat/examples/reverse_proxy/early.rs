//! Informational responses, such as 103 Early Hints, on HTTP/1 connections. hyper's server cannot
//! send them, so the stream sends them during flushes.

use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::{TcpListener, TcpStream};
use annulus_compat::Listen;
use hyper::{HeaderMap, StatusCode};
use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Maximum bytes queued for a client that does not read. Further responses are dropped.
const MAX_QUEUED_BYTES: usize = 64 << 10;

/// Responses that wait for the next flush of their connection.
#[derive(Clone, Default)]
pub(crate) struct Early(Rc<RefCell<Vec<u8>>>);

impl Early {
    /// Returns the early responses to one request.
    pub(crate) fn of_request(&self) -> EarlyOfRequest {
        EarlyOfRequest(self.clone())
    }
}

/// The early responses to one request. Dropping it discards unsent responses, since they must not
/// follow the final response.
pub(crate) struct EarlyOfRequest(Early);

impl EarlyOfRequest {
    /// Queues a response for the next flush.
    pub(crate) fn push(&self, response: &[u8]) {
        let mut waiting = self.0.0.borrow_mut();
        if waiting.len() + response.len() <= MAX_QUEUED_BYTES {
            waiting.extend_from_slice(response);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.0.borrow().is_empty()
    }
}

impl Drop for EarlyOfRequest {
    fn drop(&mut self) {
        self.0.0.take();
    }
}

/// Encodes an informational response.
pub(crate) fn encode(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for (name, value) in headers {
        text.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    text.extend(b"\r\n");
    text
}

/// The client of a connection, and its early responses.
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) early: Early,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)
    }
}

/// A listener whose connections can send early responses.
pub(crate) struct Clients(pub(crate) TcpListener);

impl Listen for Clients {
    type Stream = ClientStream;
    type Peer = Client;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(ClientStream, Client)>> {
        let (stream, mut address) = ready!(self.0.poll_accept(cx))?;
        // A dual-stack listener reports IPv4 addresses as ::ffff:192.0.2.1.
        address.set_ip(address.ip().to_canonical());
        let early = Early::default();
        let client = Client { address, early: early.clone() };
        Poll::Ready(Ok((ClientStream { stream, early, begun: Vec::new() }, client)))
    }

    fn local_addr(&self) -> io::Result<Client> {
        Ok(Client { address: self.0.local_addr()?, early: Early::default() })
    }
}

/// A stream that sends early responses when hyper flushes it, because hyper then holds no bytes of
/// an earlier response.
pub(crate) struct ClientStream {
    stream: TcpStream,
    early: Early,
    /// Unsent bytes of the responses that are being sent.
    begun: Vec<u8>,
}

impl ClientStream {
    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.begun.is_empty() {
            let count = ready!(self.stream.poll_write(cx, &self.begun))?;
            self.begun.drain(..count);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRecv for ClientStream {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
        self.stream.poll_fill_at_least(cx, n)
    }

    fn consume(&mut self, n: usize) {
        self.stream.consume(n);
    }

    fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.stream.poll_fill_buf(cx)
    }
}

impl AsyncSend for ClientStream {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_begun(cx))?;
        self.stream.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_begun(cx))?;
        self.begun = self.early.0.take();
        ready!(self.poll_begun(cx))?;
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_begun(cx))?;
        self.stream.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_begun(cx))?;
        self.stream.poll_write_vectored(cx, slices)
    }
}
