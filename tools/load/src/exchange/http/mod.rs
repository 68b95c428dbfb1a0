//! HTTP/1.1 requests over one connection, and their replies.

mod head;
mod replies;
mod requests;

pub(crate) use requests::invalid_authority;
pub use requests::{Http, HttpRequest};
pub(crate) use requests::{Requests, is_host_header};

use super::partial::PartialInput;
use super::{Answer, Exchange, RequestBuffer};
use crate::expected::BodyCheck;
use crate::fault::FirstRefusal;
use crate::fault::{Fault, FaultKind};
use crate::mix::FieldValues;
use crate::outcome::Outcome;
use head::{HeadReader, MAX_HEAD_BYTES, ReplyHead, too_long};
use replies::ReplyParser;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

pub(crate) struct HttpExchange {
    requests: Rc<Requests>,
    /// Number of requests without a reply.
    outstanding: usize,
    replies: ReplyParser,
    /// `None` if all requests are the same.
    varying: Option<Box<VaryingRequests>>,
    refusal: FirstRefusal,
    /// The check of the body of the next reply, if it has begun.
    check: Option<Box<RefCell<BodyCheck>>>,
    /// `None` unless bytes have arrived without a request.
    unrequested: Option<Box<Unrequested>>,
}

/// The state after bytes have arrived without a request.
#[derive(Debug, Default)]
struct Unrequested {
    /// The bytes, while they may be the head of a reply that ends the connection.
    partial: PartialInput,
    /// Whether the server has ended the idle connection with a reply of status 408.
    is_timeout: bool,
}

/// The state of a client whose requests vary.
struct VaryingRequests {
    values: FieldValues,
    /// The kinds of the requests without a reply. Empty if all kinds are handled alike.
    kinds: VecDeque<u32>,
}

impl HttpExchange {
    pub(crate) fn new(
        requests: &Rc<Requests>,
        mut values: FieldValues,
        refusal: &FirstRefusal,
    ) -> HttpExchange {
        values.cookies().set_encrypted(requests.are_encrypted());
        let varying = || Box::new(VaryingRequests { values, kinds: VecDeque::new() });
        let varying = requests.constant().is_none().then(varying);
        let (requests, refusal, replies) =
            (Rc::clone(requests), refusal.clone(), ReplyParser::new());
        HttpExchange {
            requests,
            outstanding: 0,
            replies,
            varying,
            refusal,
            check: None,
            unrequested: None,
        }
    }

    /// Returns the kind of the request that the next reply answers, or 0 if it does not matter.
    fn kind(&self) -> usize {
        self.varying
            .as_ref()
            .and_then(|varying| varying.kinds.front())
            .map_or(0, |kind| *kind as usize)
    }

    /// Returns true if the next reply has no body because its request was HEAD.
    fn is_to_head(&self) -> bool {
        self.requests.is_head().unwrap_or_else(|| self.requests.is_head_of(self.kind()))
    }

    fn has_timed_out(&self) -> bool {
        self.unrequested.as_ref().is_some_and(|unrequested| unrequested.is_timeout)
    }

    fn answer(&mut self, status: u16, answered: &mut impl FnMut(Answer)) {
        let mut outcome = Outcome::Status(status);
        if let Some(expected) = self.requests.expected(self.kind()) {
            let check = self.check.take().map(|check| check.into_inner());
            let check = check.unwrap_or_else(|| BodyCheck::new(expected));
            if let (..400, Err(found)) = (status, check.finish(expected)) {
                self.refusal.record(|| [b"the body ", &found[..]].concat());
                outcome = Outcome::WrongBody(status);
            }
        }
        self.outstanding -= 1;
        self.varying.iter_mut().for_each(|varying| _ = varying.kinds.pop_front());
        answered(Answer::new(outcome));
    }

    fn set_cookies(&mut self, found: Vec<Vec<u8>>) {
        let Some(varying) = &mut self.varying else { return };
        found.iter().for_each(|value| varying.values.cookies().set(value));
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

    /// Returns the fault for bytes that arrived while no request was outstanding.
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
        let Some(VaryingRequests { values, kinds }) = self.varying.as_deref_mut() else {
            self.requests.constant().into_iter().for_each(|request| out.push_same(request));
            return 0;
        };
        let index = self.requests.write(values, out.bytes());
        if self.requests.has_kinds() {
            kinds.push_back(index as u32);
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
        let is_to_head = self.is_to_head();
        let expected = self.requests.expected(self.kind());
        let new_check = |expected| Box::new(RefCell::new(BodyCheck::new(expected)));
        let check = expected
            .map(|expected| (expected, &**self.check.get_or_insert_with(|| new_check(expected))));
        let cookies = self.requests.has_cookies().then(RefCell::default);
        let heads = HeadReader {
            is_to_head,
            last: self.requests.last_head(),
            refusal: &self.refusal,
            cookies: cookies.as_ref(),
            check,
        };
        let (taken, status) = self.replies.take(input, heads)?;
        cookies.into_iter().for_each(|found| self.set_cookies(found.into_inner()));
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

    /// The connection stays in use until the reply that ends it is complete.
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
        if let Some(varying) = &mut self.varying {
            self.requests.repeat(&mut varying.values, self.outstanding);
            varying.kinds.clear();
        }
        (self.outstanding, self.replies) = (0, ReplyParser::new());
        (self.unrequested, self.check) = (None, None);
    }
}

#[cfg(test)]
mod tests;
