//! HTTP/1.1: requests over one connection, and their replies.

mod head;
mod replies;
mod requests;

pub(crate) use requests::no_authority;
pub use requests::{Http, HttpRequest};
pub(crate) use requests::{Requests, is_host};

use super::{Answer, Exchange, Written};
use crate::fault::{Fault, Kind};
use crate::fault_log::FirstRefusal;
use crate::mix::Fill;
use crate::outcome::Outcome;
use head::HeadReader;
use replies::Replies;
use std::collections::VecDeque;
use std::rc::Rc;

/// The requests and replies of one client.
pub(crate) struct HttpExchange {
    requests: Rc<Requests>,
    /// Requests without a reply.
    outstanding: usize,
    replies: Replies,
    /// If requests differ.
    varied: Option<Box<Varied>>,
    refusal: FirstRefusal,
}

/// The state of a client whose requests differ.
struct Varied {
    fill: Fill,
    /// Which requests without a reply have the method HEAD, if some have and some have not.
    heads: VecDeque<bool>,
}

impl HttpExchange {
    pub(crate) fn new(requests: &Rc<Requests>, fill: Fill, refusal: &FirstRefusal) -> HttpExchange {
        let varied = || Box::new(Varied { fill, heads: VecDeque::new() });
        let varied = requests.constant().is_none().then(varied);
        let (requests, refusal, replies) = (Rc::clone(requests), refusal.clone(), Replies::new());
        HttpExchange { requests, outstanding: 0, replies, varied, refusal }
    }

    /// Whether the next reply has a head only.
    fn to_head(&self) -> bool {
        let of_the_next = || self.varied.as_ref()?.heads.front().copied();
        self.requests.is_head().or_else(of_the_next).unwrap_or(false)
    }

    fn answer(&mut self, status: u16, answered: &mut impl FnMut(Answer)) {
        self.outstanding -= 1;
        self.varied.iter_mut().for_each(|varied| _ = varied.heads.pop_front());
        answered(Answer::new(Outcome::Status(status)));
    }

    /// Bytes for which no request is outstanding.
    #[cold]
    fn unexpected(&self, input: &[u8]) -> Fault {
        let behind =
            if self.replies.is_last() { " after the last one of the connection" } else { "" };
        let text = format!("{} bytes came that no request asked for{behind}", input.len());
        Fault::new(Kind::TOO_MANY_BYTES, text)
    }
}

impl Exchange for HttpExchange {
    type Out = Written;

    fn request(&mut self, out: &mut Written) -> usize {
        self.outstanding += 1;
        let Some(Varied { fill, heads }) = self.varied.as_deref_mut() else {
            self.requests.constant().into_iter().for_each(|request| out.push_same(request));
            return 0;
        };
        let index = self.requests.write(fill, out.bytes());
        if self.requests.is_head().is_none() {
            heads.push_back(self.requests.is_head_of(index));
        }
        index
    }

    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault> {
        if self.outstanding == 0 || self.is_last() {
            return Err(self.unexpected(input));
        }
        let heads = HeadReader {
            to_head: self.to_head(),
            last: self.requests.last_head(),
            refusal: &self.refusal,
        };
        let (taken, status) = self.replies.take(input, heads)?;
        if let Some(status) = status {
            self.answer(status, answered);
        }
        Ok(taken)
    }

    fn closed(&mut self, answered: &mut impl FnMut(Answer)) -> Result<(), Fault> {
        if self.replies.is_between() {
            return Ok(());
        }
        let status = self.replies.closed(self.to_head())?;
        self.answer(status, answered);
        Ok(())
    }

    /// A reply that ends with the connection is the last one once it has ended.
    fn is_last(&self) -> bool {
        self.replies.is_last() && self.replies.is_between()
    }

    fn reconnected(&mut self) {
        (self.outstanding, self.replies) = (0, Replies::new());
        self.varied.iter_mut().for_each(|varied| varied.heads.clear());
    }
}

#[cfg(test)]
mod tests;
