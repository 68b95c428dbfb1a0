//! HTTP/1.1 requests over one connection, and their replies.

mod head;
mod replies;
mod requests;

pub(crate) use requests::invalid_authority;
pub use requests::{Http, HttpRequest};
pub(crate) use requests::{Requests, is_host_header};

use super::partial::PartialInput;
use super::{Answer, Exchange, RequestBuffer};
use crate::fault::FirstRefusal;
use crate::fault::{Fault, FaultKind};
use crate::mix::FieldValues;
use crate::outcome::Outcome;
use head::{HeadReader, MAX_HEAD_BYTES, ReplyHead, too_long};
use replies::ReplyParser;
use std::collections::VecDeque;
use std::rc::Rc;

/// The requests and replies of one client.
pub(crate) struct HttpExchange {
    requests: Rc<Requests>,
    /// Number of requests without a reply.
    outstanding: usize,
    replies: ReplyParser,
    /// `None` if all requests are the same.
    varying: Option<Box<VaryingRequests>>,
    refusal: FirstRefusal,
    /// `None` unless bytes have arrived without a request.
    unrequested: Option<Box<Unrequested>>,
}

/// What has arrived without a request.
#[derive(Debug, Default)]
struct Unrequested {
    /// The bytes, while they may be the head of a reply that ends the connection.
    partial: PartialInput,
    /// Whether the server has ended the idle connection with such a reply.
    is_timeout: bool,
}

/// The state of a client whose requests vary.
struct VaryingRequests {
    values: FieldValues,
    /// Whether each request without a reply has the method HEAD. Empty if all requests have it, or
    /// none has.
    heads: VecDeque<bool>,
}

impl HttpExchange {
    pub(crate) fn new(
        requests: &Rc<Requests>,
        values: FieldValues,
        refusal: &FirstRefusal,
    ) -> HttpExchange {
        let varying = || Box::new(VaryingRequests { values, heads: VecDeque::new() });
        let varying = requests.constant().is_none().then(varying);
        let (requests, refusal, replies) =
            (Rc::clone(requests), refusal.clone(), ReplyParser::new());
        HttpExchange { requests, outstanding: 0, replies, varying, refusal, unrequested: None }
    }

    /// Returns true if the next reply has no body because its request was HEAD.
    fn is_to_head(&self) -> bool {
        let of_the_next = || self.varying.as_ref()?.heads.front().copied();
        self.requests.is_head().or_else(of_the_next).unwrap_or(false)
    }

    /// Returns true if the server has ended an idle connection.
    fn has_timed_out(&self) -> bool {
        self.unrequested.as_ref().is_some_and(|unrequested| unrequested.is_timeout)
    }

    fn answer(&mut self, status: u16, answered: &mut impl FnMut(Answer)) {
        self.outstanding -= 1;
        self.varying.iter_mut().for_each(|varying| _ = varying.heads.pop_front());
        answered(Answer::new(Outcome::Status(status)));
    }

    /// Takes bytes that arrived while no request was outstanding. A server may send a reply with
    /// status 408 before it closes an idle connection (RFC 9110, 15.5.9).
    #[cold]
    fn take_unrequested(&mut self, input: &[u8]) -> Result<usize, Fault> {
        if self.replies.must_close() {
            return Err(self.unexpected(input));
        }
        let Unrequested { partial, is_timeout } = &mut **self.unrequested.get_or_insert_default();
        let parse = |bytes: &[u8]| head::parse(bytes, false);
        match partial.parse_lines(input, MAX_HEAD_BYTES, parse, || too_long("a head")) {
            Ok((taken, None)) => Ok(taken),
            Ok((_, Some(ReplyHead { status: 408, must_close: true, .. }))) => {
                *is_timeout = true;
                Ok(input.len())
            }
            Ok(_) | Err(_) => Err(self.unexpected(input)),
        }
    }

    /// Reports bytes that arrived while no request was outstanding.
    #[cold]
    fn unexpected(&self, input: &[u8]) -> Fault {
        const MAX_SHOWN_BYTES: usize = 32;
        let before = self.unrequested.as_ref().map_or(0, |unrequested| unrequested.partial.len());
        let count = before + input.len();
        let shown = input[..input.len().min(MAX_SHOWN_BYTES)].escape_ascii();
        let behind =
            if self.replies.must_close() { " after the last reply of the connection" } else { "" };
        let text = format!("{count} bytes arrived without a request{behind}: \"{shown}\"");
        Fault::new(FaultKind::TOO_MANY_BYTES, text)
    }
}

impl Exchange for HttpExchange {
    type Out = RequestBuffer;

    fn request(&mut self, out: &mut RequestBuffer) -> usize {
        self.outstanding += 1;
        let Some(VaryingRequests { values, heads }) = self.varying.as_deref_mut() else {
            self.requests.constant().into_iter().for_each(|request| out.push_same(request));
            return 0;
        };
        let index = self.requests.write(values, out.bytes());
        if self.requests.is_head().is_none() {
            heads.push_back(self.requests.is_head_of(index));
        }
        index
    }

    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault> {
        if self.has_timed_out() {
            return Ok(input.len());
        }
        // Some servers send an empty line after a body, which belongs to no reply.
        let is_between_replies = self.unrequested.is_none() && self.replies.is_between_replies();
        if b"\r\n".contains(&input[0]) && is_between_replies {
            let is_blank = |byte: &&u8| b"\r\n".contains(byte);
            return Ok(input.iter().take_while(is_blank).count());
        }
        if self.outstanding == 0 || self.must_close() || self.unrequested.is_some() {
            return self.take_unrequested(input);
        }
        let heads = HeadReader {
            is_to_head: self.is_to_head(),
            last: self.requests.last_head(),
            refusal: &self.refusal,
        };
        let (taken, status) = self.replies.take(input, heads)?;
        if let Some(status) = status {
            self.answer(status, answered);
        }
        Ok(taken)
    }

    fn on_close(&mut self, answered: &mut impl FnMut(Answer)) -> Result<(), Fault> {
        if self.unrequested.is_some() && !self.has_timed_out() {
            return Err(self.unexpected(&[]));
        }
        if self.replies.is_between_replies() {
            return Ok(());
        }
        let status = self.replies.on_close(self.is_to_head())?;
        self.answer(status, answered);
        Ok(())
    }

    /// A reply that ends with the connection makes it unusable only once the reply is complete.
    fn must_close(&self) -> bool {
        self.has_timed_out() || (self.replies.must_close() && self.replies.is_between_replies())
    }

    fn is_until_close(&self) -> bool {
        self.replies.is_until_close()
    }

    /// A client stops sending a body when the reply reports an error (RFC 9112, 9.5).
    fn stops_upload(&self) -> bool {
        self.replies.is_between_replies() && self.replies.status() >= 400
    }

    fn on_reconnect(&mut self) {
        (self.outstanding, self.replies) = (0, ReplyParser::new());
        self.unrequested = None;
        self.varying.iter_mut().for_each(|varying| varying.heads.clear());
    }
}

#[cfg(test)]
mod tests;
