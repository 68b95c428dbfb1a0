//! Accepting within a limit on open connections.
//!
//! While a task waits: *idle* → *polling*, until the backlog holds a connection → a permit is taken → *single*, one accept → idle. A
//! permit is taken only if a connection is there, so that a listener without clients takes none from the others that share the
//! limit. If the limit is reached, the listener stays idle, and its tasks are woken when a connection closes.

use super::Listener;
use crate::base::connection_limit::{ConnectionLimit, Permit};
use crate::base::io::Io;
use crate::slots::arming::Arming;
use annulus_driver::{Kind, Op};
use std::task::Context;

/// State of a listener with a limit.
pub(super) struct Limited {
    limit: ConnectionLimit,
    /// The backlog holds a connection.
    pub(super) is_ready: bool,
    /// The permit of the accept in flight.
    pub(super) permit: Option<Permit>,
}

impl Limited {
    pub(super) fn new(limit: ConnectionLimit) -> Box<Self> {
        Box::new(Self { limit, is_ready: false, permit: None })
    }
}

impl Listener {
    /// Continues an idle listener with a limit, unless no task waits for a connection.
    ///
    /// If the limit is reached, the task that polls is woken once a connection has closed. If no task polls, all that wait are woken
    /// now and poll: a waker's clone is foreign code, which must not run while the runtime is borrowed.
    pub(super) fn accept_within_limit(&mut self, io: &mut Io, polled: Option<&Context<'_>>) {
        let Some(limited) = &mut self.limited else { return };
        if self.waiters.is_empty() || !self.unclaimed.is_empty() {
            return;
        }
        if !limited.is_ready {
            self.arming = Arming::Polling;
            return io.start(self.id.token(Kind::AcceptReady), Op::ReadableOnce { fd: self.fd });
        }
        let mut task = polled.map(|cx| cx.waker().clone());
        let permit = limited.limit.take(&mut task);
        io.after.drops.extend(task);
        let Some(permit) = permit else {
            if polled.is_none() {
                self.waiters.notify_all(&mut io.after.wakes);
            }
            return;
        };
        (limited.is_ready, limited.permit) = (false, Some(permit));
        self.arming = Arming::Single;
        io.start(self.id.token(Kind::Accept), Op::Accept { fd: self.fd });
    }
}
