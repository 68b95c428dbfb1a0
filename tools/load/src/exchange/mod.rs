//! The interface between the load engine and the protocols: exchanges, and the transports that
//! carry them.
//!
//! A *protocol* is an exchange over a transport:
//! - An [`Exchange`] writes requests and recognises their replies. It does no I/O and reads no
//!   clock: the client does both ([`crate::streams`]). Each client has one exchange, which it uses
//!   for all its successive connections.
//! - A [`Transport`](crate::transport::Transport) carries the bytes: a
//!   [`PlainTransport`](crate::transport::PlainTransport), or TLS around one.
//!
//! # A codec
//! `Out` is usually `Vec<u8>`, or [`RequestBuffer`] if all requests may be the same.
//! [`Exchange::request`] appends a request. [`Exchange::take`] takes bytes as they arrive, and
//! calls `answered` for each complete reply. The exchange buffers the bytes of an incomplete reply
//! only if it cannot process them as they arrive. The client matches replies to requests in order
//! (the first reply belongs to the oldest request), so a codec keeps no list of requests unless a
//! reply depends on its request (a reply to HEAD has no body). The client detects a reply without a
//! request.
//!
//! ```text
//! struct Line { request: Rc<[u8]>, rest: usize }
//! impl Exchange for Line {
//!     type Out = Vec<u8>;
//!     fn request(&mut self, out: &mut Vec<u8>) -> usize { out.extend_from_slice(&self.request); 0 }
//!     fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault> {
//!         input.iter().filter(|&&byte| byte == b'\n').for_each(|_| answered(Answer::OK));
//!         Ok(input.len())
//!     }
//!     …
//! }
//! ```
//!
//! # TLS
//! [`TlsTransport`](crate::transport::TlsTransport) owns a stream and a session. It receives
//! decrypted bytes, and encrypts the bytes to send. The handshake is part of connecting
//! ([`crate::transport`]). No codec knows about TLS.
//!
//! # A protocol that multiplexes
//! Replies say which request they answer ([`Answer::position`]). The exchange acknowledges received
//! bytes ([`Exchange::respond`]), and reports requests that the server has not processed
//! ([`Exchange::pop_refused`]), while other requests are still answered.

pub(crate) mod cuts;
mod echo;
pub(crate) mod http;
pub(crate) mod http2;
mod partial;
mod request_buffer;
pub(crate) mod script;

pub(crate) use echo::EchoExchange;
pub(crate) use request_buffer::RequestBuffer;

use crate::fault::Fault;
use crate::outcome::Outcome;
use std::rc::Rc;

/// The requests and replies of one client.
pub(crate) trait Exchange {
    type Out: OutgoingBuffer;

    /// Appends the next request. Returns its class: an index into the plan's mix, or 0 if there is
    /// only one kind of request.
    fn request(&mut self, out: &mut Self::Out) -> usize;

    /// Takes received bytes, and calls `answered` once for each complete reply. Any split of the
    /// input gives the same replies.
    ///
    /// # Errors
    /// Fails if the bytes are not what a correct server sends. Replies before the error count, and
    /// the connection must not be used again.
    fn receive(
        &mut self,
        mut input: &[u8],
        answered: &mut impl FnMut(Answer),
    ) -> Result<(), Fault> {
        while !input.is_empty() {
            input = &input[self.take(input, answered)?..];
        }
        Ok(())
    }

    /// Takes at least one of the received bytes, and returns how many it took. Otherwise it is like
    /// [`receive`](Exchange::receive).
    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault>;

    /// Appends bytes that the protocol itself must send after receiving, such as acknowledgements.
    fn respond(&mut self, _out: &mut Self::Out) {}

    /// Handles the server closing its side: completes a reply that ends with the connection.
    ///
    /// # Errors
    /// Fails if a reply is incomplete, or if the server must not close first. The client handles
    /// requests for which no byte of a reply has arrived.
    fn on_close(&mut self, answered: &mut impl FnMut(Answer)) -> Result<(), Fault>;

    /// Returns true if the connection must not be used for another request, because the server has
    /// said so.
    fn must_close(&self) -> bool {
        false
    }

    /// Returns true if no further requests may be written to the connection, although some replies
    /// are still expected.
    fn is_draining(&self) -> bool {
        false
    }

    /// Returns the position, as in [`Answer::position`], of a request that the server has not
    /// processed and will not process. The client sends it again. The client calls this after each
    /// [`receive`](Exchange::receive) and [`on_close`](Exchange::on_close) until it returns `None`.
    fn pop_refused(&mut self) -> Option<usize> {
        None
    }

    /// Returns true while the body of the current reply ends only with the connection.
    fn is_until_close(&self) -> bool {
        false
    }

    /// Returns true if the last reply is complete and tells the client not to send the rest of its
    /// request.
    fn stops_upload(&self) -> bool {
        false
    }

    /// Forgets the state of the last connection, because a new one is about to be opened.
    fn on_reconnect(&mut self);

    /// Returns the number of reply bytes still expected, if it is known. After a fault the client
    /// then waits a moment to distinguish wrong bytes from too many.
    fn outstanding(&self) -> Option<usize> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    /// The position of the answered request among the requests without a reply. The request at
    /// position 0 then moves to this position, so it is the oldest only if all earlier replies came
    /// in order.
    pub(crate) position: usize,
}

impl Answer {
    pub(crate) const OK: Answer = Answer::new(Outcome::Ok);

    /// Creates an answer to the oldest request.
    pub(crate) const fn new(outcome: Outcome) -> Answer {
        Answer { outcome, position: 0 }
    }
}

/// Requests that have been written but not sent completely.
pub(crate) trait OutgoingBuffer: Default {
    /// Returns the total number of bytes.
    fn len(&self) -> usize;

    /// Returns bytes starting at `at`: at least one, unless `at` is the end.
    fn bytes_from(&self, at: usize) -> SendBytes<'_>;

    /// Empties the buffer after all bytes have been sent.
    fn clear(&mut self);
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SendBytes<'a> {
    /// The transport keeps no reference to the bytes.
    Borrowed(&'a [u8]),
    /// The transport may keep a reference, unless it encrypts the bytes.
    Static(&'static [u8]),
    /// The transport may keep a reference until the bytes are sent, unless there are many or it
    /// encrypts them.
    Shared(&'a Rc<[u8]>),
}

impl SendBytes<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            SendBytes::Borrowed(bytes) | SendBytes::Static(bytes) => bytes,
            SendBytes::Shared(bytes) => bytes,
        }
    }
}
