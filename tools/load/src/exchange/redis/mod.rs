//! Redis: commands over one connection, and their replies in RESP2 and RESP3.

mod commands;
mod replies;

pub(crate) use commands::Commands;
pub use commands::{Redis, RedisError, Resp};

use super::{Answer, Exchange};
use crate::fault::{Fault, Kind};
use crate::fault_log::FirstRefusal;
use crate::mix::Fill;
use crate::outcome::Outcome;
use replies::{Replies, Reply};
use std::rc::Rc;

/// The commands and replies of one client.
///
/// A connection starts with the commands that log in and select a database, together with the first command of the run; their replies
/// are no answers, and an error among them is a fault.
pub(crate) struct RedisExchange {
    commands: Rc<Commands>,
    fill: Fill,
    /// Commands without a reply.
    outstanding: usize,
    /// Replies to the commands of the start that are missing; `None` before they are sent.
    starting: Option<usize>,
    replies: Replies,
    refusal: FirstRefusal,
}

impl RedisExchange {
    pub(crate) fn new(
        commands: &Rc<Commands>,
        fill: Fill,
        refusal: &FirstRefusal,
    ) -> RedisExchange {
        let (commands, refusal, replies) = (Rc::clone(commands), refusal.clone(), Replies::new());
        RedisExchange { commands, fill, outstanding: 0, starting: None, replies, refusal }
    }

    /// Whether the next reply belongs to the start of the connection.
    fn is_starting(&self) -> bool {
        self.starting.is_some_and(|missing| missing > 0)
    }

    fn note(&mut self, reply: Reply, answered: &mut impl FnMut(Answer)) {
        let outcome = match reply {
            Reply::Push => return,
            Reply::Ok => Outcome::Ok,
            Reply::Error => Outcome::ErrorReply,
        };
        match &mut self.starting {
            Some(missing @ 1..) => *missing -= 1,
            _ => {
                self.outstanding -= 1;
                answered(Answer::new(outcome));
            }
        }
    }
}

impl Exchange for RedisExchange {
    type Out = Vec<u8>;

    fn request(&mut self, out: &mut Vec<u8>) -> usize {
        if self.starting.is_none() {
            self.starting = Some(self.commands.start(out));
        }
        self.outstanding += 1;
        self.commands.write(&mut self.fill, out)
    }

    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault> {
        let (mut refused, is_starting) = (None, self.is_starting());
        let taken = self.replies.take(input, &mut |line| match is_starting {
            true => refused = Some(refusal(line)),
            false => self.refusal.note(|| line),
        });
        // The refusal came before any error that `taken` has.
        if let Some(refused) = refused {
            return Err(refused);
        }
        let (taken, reply) = taken?;
        let is_answer = reply.is_some_and(|reply| reply != Reply::Push);
        if is_answer && self.outstanding == 0 {
            return Err(Fault::too_many_bytes(input.len()));
        }
        if let Some(reply) = reply {
            self.note(reply, answered);
        }
        Ok(taken)
    }

    fn closed(&mut self, _answered: &mut impl FnMut(Answer)) -> Result<(), Fault> {
        if self.replies.is_between() {
            return Ok(());
        }
        Err(self.replies.closed_early())
    }

    fn reconnected(&mut self) {
        (self.outstanding, self.starting, self.replies) = (0, None, Replies::new());
    }
}

/// An error in answer to a command of the start.
#[cold]
fn refusal(line: &[u8]) -> Fault {
    let shown = line.escape_ascii();
    Fault::new(Kind::Login, format!("the server refused the start of a connection: {shown}"))
}

#[cfg(test)]
mod tests;
