//! HTTP/1.1 requests over one connection, and their replies.

mod head;
mod replies;
mod requests;

pub(crate) use requests::invalid_authority;
pub use requests::{Http, HttpRequest};
pub(crate) use requests::{Requests, is_host_header};

use super::{Answer, Exchange, RequestBuffer};
use crate::fault::FirstRefusal;
use crate::fault::{Fault, FaultKind};
use crate::mix::FieldValues;
use crate::outcome::Outcome;
use head::HeadReader;
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
        HttpExchange { requests, outstanding: 0, replies, varying, refusal }
    }

    /// Returns true if the next reply has no body because its request was HEAD.
    fn is_to_head(&self) -> bool {
        let of_the_next = || self.varying.as_ref()?.heads.front().copied();
        self.requests.is_head().or_else(of_the_next).unwrap_or(false)
    }

    fn answer(&mut self, status: u16, answered: &mut impl FnMut(Answer)) {
        self.outstanding -= 1;
        self.varying.iter_mut().for_each(|varying| _ = varying.heads.pop_front());
        answered(Answer::new(Outcome::Status(status)));
    }

    /// Reports bytes that arrived while no request was outstanding.
    #[cold]
    fn unexpected(&self, input: &[u8]) -> Fault {
        let behind =
            if self.replies.must_close() { " after the last reply of the connection" } else { "" };
        let text = format!("{} bytes arrived without a request{behind}", input.len());
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
        if self.outstanding == 0 || self.must_close() {
            return Err(self.unexpected(input));
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
        if self.replies.is_between_replies() {
            return Ok(());
        }
        let status = self.replies.on_close(self.is_to_head())?;
        self.answer(status, answered);
        Ok(())
    }

    /// A reply that ends with the connection makes it unusable only once the reply is complete.
    fn must_close(&self) -> bool {
        self.replies.must_close() && self.replies.is_between_replies()
    }

    fn on_reconnect(&mut self) {
        (self.outstanding, self.replies) = (0, ReplyParser::new());
        self.varying.iter_mut().for_each(|varying| varying.heads.clear());
    }
}

#[cfg(test)]
mod tests;
