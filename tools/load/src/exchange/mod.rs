//! Exchanges over a connection, and the transports that carry them: the seam between the engine and the protocols.
//!
//! A *protocol* is an exchange over a transport:
//! - An [`Exchange`] writes requests and recognizes their replies. It makes no I/O, reads no clock and counts nothing: the client does
//!   ([`crate::streams`]). Each client has one, for all its connections, one after the other.
//! - A [`Transport`] carries the bytes: [`Plain`], or one that wraps another, as TLS does.
//!
//! # A codec
//! `Out` is `Vec<u8>`, or [`RequestBuffer`] if all requests may be equal. [`Exchange::request`] appends a request, [`Exchange::take`] takes
//! bytes as they come and calls `answered` for each reply that is complete. What is incomplete stays in the exchange: only then does it need
//! memory of its own. The client answers for the order (the first reply belongs to the oldest request), so a codec keeps no list of requests
//! unless the form of a reply depends on its request (a reply to HEAD has no body). A reply without a request need not be detected.
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
//! [`TlsTransport`](crate::tls) owns a stream and a session: [`Transport::poll_receive`] passes plain text to `take` where the
//! session has it, and is pending while records bring none; [`Transport::poll_send`] encrypts. The handshake is a part of
//! connecting ([`crate::transport`]). No codec knows of TLS.
//!
//! # A protocol that multiplexes
//! Replies say which request they answer ([`Answer::position`]). The exchange acknowledges what it receives ([`Exchange::respond`]), and says which
//! requests the server has not taken ([`Exchange::refused`]), while others are still answered.

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
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The requests and replies of one client.
pub(crate) trait Exchange {
    /// The buffer that requests are written to.
    type Out: OutgoingBuffer;

    /// Appends the next request; returns its class: an index into the mix of the plan, 0 if there is one kind of request.
    fn request(&mut self, out: &mut Self::Out) -> usize;

    /// Takes received bytes; calls `answered` once for each reply that is complete. Any cut of the input gives the same replies.
    ///
    /// # Errors
    /// If the bytes are not what a correct server sends. The connection is not used again; replies before that count.
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

    /// Takes the next part of received bytes, one at least; returns how many, and is otherwise as [`receive`](Exchange::receive).
    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault>;

    /// Appends what the protocol itself has to say after bytes have come, such as acknowledgements.
    fn respond(&mut self, _out: &mut Self::Out) {}

    /// The server has closed its side: completes a reply that ends so.
    ///
    /// # Errors
    /// If a reply is incomplete, and for a server that must not close first. Requests without any byte of a reply are left to the
    /// client.
    fn on_close(&mut self, answered: &mut impl FnMut(Answer)) -> Result<(), Fault>;

    /// Whether the connection must not be used for another request, as the server has said.
    fn must_close(&self) -> bool {
        false
    }

    /// Whether no further request may be written to the connection, although replies to some are still to come.
    fn is_draining(&self) -> bool {
        false
    }

    /// A request without a reply that the server has not taken, and will not: its position, as in [`Answer::position`]. It is sent again.
    /// Asked for after each [`receive`](Exchange::receive) and [`on_close`](Exchange::closed), until there is none.
    fn pop_refused(&mut self) -> Option<usize> {
        None
    }

    /// A new connection: forgets what is left of the last one.
    fn on_reconnect(&mut self);

    /// Bytes of replies still expected, if that is known. A fault then waits a moment, to distinguish wrong bytes from too many.
    fn outstanding(&self) -> Option<usize> {
        None
    }
}

/// A complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    /// Which of the requests without a reply it answers: 0 is the oldest one, which then takes its place in the order.
    pub(crate) position: usize,
}

impl Answer {
    /// As expected, to the oldest request.
    pub(crate) const OK: Answer = Answer::new(Outcome::Ok);

    /// To the oldest request.
    pub(crate) const fn new(outcome: Outcome) -> Answer {
        Answer { outcome, position: 0 }
    }
}

/// Requests that are written and not all sent.
pub(crate) trait OutgoingBuffer: Default {
    /// Bytes in all.
    fn len(&self) -> usize;

    /// Bytes from `at` on: at least one, if there are so many.
    fn bytes_from(&self, at: usize) -> SendBytes<'_>;

    /// All of them are sent.
    fn clear(&mut self);
}

/// Bytes to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SendBytes<'a> {
    /// Copied, unless they are many.
    Borrowed(&'a [u8]),
    /// Never copied.
    Static(&'static [u8]),
    /// Never copied: the connection holds them until they are sent.
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

/// A connection, as a stream of bytes in both directions. Dropping it closes it.
pub(crate) trait Transport: 'static {
    /// Passes the next received bytes to `take`; `None` at the end of the server's side.
    fn poll_receive<R>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Poll<io::Result<Option<R>>>;

    /// Accepts bytes to send; returns how many: at least one. They leave by themselves.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes_from: SendBytes<'_>,
    ) -> Poll<io::Result<usize>>;

    /// Ends the client's side, behind what was accepted.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}
