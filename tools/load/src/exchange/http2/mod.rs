//! HTTP/2 with the crate h2: one stream per request, with as many concurrent streams as the
//! pipeline allows.
//!
//! h2 needs a byte stream and a task. Here the stream is a pair of buffers
//! ([`Pipe`](session::Pipe)), and h2 is polled whenever bytes arrive or a request is sent. The
//! exchange therefore reads no clock, works over any transport, and gives the same replies for any
//! split of the input.
//!
//! Requests above the server's stream limit wait in the exchange, and the wait counts as part of
//! their latency.
//!
//! Requests that the server reports as not processed are sent again (RFC 9113, 8.7). A refused
//! stream (`REFUSED_STREAM`) is sent again on the same connection. After a `GOAWAY`, streams above
//! the last processed one, and requests still waiting for a stream, are sent on the next connection
//! once the remaining streams have ended.

mod filter;
mod grpc;
mod requests;
mod session;

pub(crate) use requests::Requests;

use super::{Answer, Exchange};
use crate::fault::Fault;
use crate::fault::FirstRefusal;
use crate::mix::FieldValues;
use crate::outcome::Outcome;
use session::Session;
use std::rc::Rc;

pub(crate) struct Http2Exchange {
    requests: Rc<Requests>,
    values: FieldValues,
    session: Session,
    refusal: FirstRefusal,
}

impl Http2Exchange {
    pub(crate) fn new(
        requests: &Rc<Requests>,
        values: FieldValues,
        refusal: &FirstRefusal,
    ) -> Http2Exchange {
        let (requests, refusal) = (Rc::clone(requests), refusal.clone());
        Http2Exchange { requests, values, session: Session::new(), refusal }
    }

    /// Advances the session, and records the first refusal among its answers.
    fn progress(&mut self, answered: &mut impl FnMut(Answer)) -> Result<(), Fault> {
        let progress = self.session.progress(&mut |answer, grpc| {
            match answer.outcome {
                Outcome::Grpc(_) => {
                    self.refusal.record(|| grpc.map_or_else(String::new, ToString::to_string));
                }
                Outcome::Status(status @ 400..) => {
                    self.refusal.record(|| format!("HTTP/2 status {status}"));
                }
                Outcome::ErrorReply => {
                    self.refusal.record(|| "HTTP/2: the server reset the stream")
                }
                Outcome::Ok | Outcome::Status(_) | Outcome::WrongBody(_) => {}
            }
            answered(answer);
        });
        let wrong_body = self.session.take_wrong_body();
        if !wrong_body.is_empty() {
            self.refusal.record(|| [b"the body ", &wrong_body[..]].concat());
        }
        if self.requests.has_cookies() {
            let cookies = self.session.take_cookies();
            cookies.iter().for_each(|value| self.values.cookies().set(value));
        }
        progress
    }
}

impl Exchange for Http2Exchange {
    type Out = Vec<u8>;

    fn request(&mut self, out: &mut Vec<u8>) -> usize {
        let (index, request) = self.requests.next(&mut self.values);
        self.session.send(request);
        self.session.write(out);
        index
    }

    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault> {
        self.session.receive(input);
        self.progress(answered).map(|()| input.len())
    }

    fn respond(&mut self, out: &mut Vec<u8>) {
        self.session.write(out);
    }

    fn on_close(&mut self, answered: &mut impl FnMut(Answer)) -> Result<(), Fault> {
        self.session.close();
        self.progress(answered)?;
        self.session.check_closed()
    }

    fn must_close(&self) -> bool {
        self.session.must_close()
    }

    fn is_draining(&self) -> bool {
        self.session.is_draining()
    }

    fn pop_refused(&mut self) -> Option<usize> {
        let refused = self.session.pop_refused();
        self.requests.repeat(&mut self.values, usize::from(refused.is_some()));
        refused
    }

    fn on_reconnect(&mut self) {
        self.requests.repeat(&mut self.values, self.session.unanswered());
        self.session = Session::new();
    }
}

#[cfg(test)]
mod tests;
