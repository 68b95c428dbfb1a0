//! HTTP/1.1: requests over one connection, and their replies.

mod head;
mod replies;
mod requests;

pub use requests::{Http, HttpError, HttpRequest};
pub(crate) use requests::{Requests, is_host};

use super::{Answer, Exchange, Outcome};
use crate::fault::{Fault, Kind};
use crate::mix::Fill;
use replies::Replies;
use std::collections::VecDeque;
use std::rc::Rc;

/// The requests and replies of one client.
pub(crate) struct HttpExchange {
    requests: Rc<Requests>,
    fill: Fill,
    /// Requests without a reply.
    outstanding: usize,
    /// Which of them have the method HEAD, if some have and some have not.
    heads: VecDeque<bool>,
    replies: Replies,
}

impl HttpExchange {
    pub(crate) fn new(requests: &Rc<Requests>, fill: Fill) -> HttpExchange {
        let (requests, heads) = (Rc::clone(requests), VecDeque::new());
        HttpExchange { requests, fill, outstanding: 0, heads, replies: Replies::new() }
    }

    /// Whether the next reply has a head only.
    fn to_head(&self) -> bool {
        self.requests.is_head().or(self.heads.front().copied()).unwrap_or(false)
    }

    fn answer(&mut self, status: u16, answered: &mut impl FnMut(Answer)) {
        self.outstanding -= 1;
        self.heads.pop_front();
        answered(Answer::new(Outcome::Status(status)));
    }

    /// Bytes for which no request is outstanding.
    #[cold]
    fn unexpected(&self, input: &[u8]) -> Fault {
        let behind =
            if self.replies.is_last() { " after the last one of the connection" } else { "" };
        let text = format!("{} bytes came that no request asked for{behind}", input.len());
        Fault::new(Kind::TooManyBytes, text)
    }
}

impl Exchange for HttpExchange {
    type Out = Vec<u8>;

    fn request(&mut self, out: &mut Vec<u8>) -> usize {
        let index = self.requests.write(&mut self.fill, out);
        if self.requests.is_head().is_none() {
            self.heads.push_back(self.requests.is_head_of(index));
        }
        self.outstanding += 1;
        index
    }

    fn receive(
        &mut self,
        mut input: &[u8],
        answered: &mut impl FnMut(Answer),
    ) -> Result<(), Fault> {
        while !input.is_empty() {
            if self.outstanding == 0 || self.is_last() {
                return Err(self.unexpected(input));
            }
            let (taken, status) = self.replies.take(input, self.to_head())?;
            input = &input[taken..];
            if let Some(status) = status {
                self.answer(status, answered);
            }
        }
        Ok(())
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
        self.heads.clear();
    }
}

#[cfg(test)]
mod tests;
