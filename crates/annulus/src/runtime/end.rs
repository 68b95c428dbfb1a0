//! The end of a runtime, in order: tasks dropped at home → accepted sends flushed within the grace → the rest cancelled
//! and waited for → the ring closed → memory freed, or leaked where something could not be drained.

use crate::core::{Core, Inner};
use crate::current;
use crate::time::Instant;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// How long cancelled operations may take to come back.
const REAP: Duration = Duration::from_secs(2);

impl Core {
    pub(crate) fn end_in_order(self: &Rc<Self>, grace: Duration) {
        self.remote.close();
        // An error here means that another runtime is running on this thread: this one was dropped inside it. Its tasks
        // are dropped all the same; what they want to do last, they can't.
        let entered = current::enter(self);
        self.ready.drop_all(|| self.remote.take());
        self.turn_until(grace, Inner::all_sent_out);
        _ = self.enter().map(|mut inner| inner.stop_everything());
        let drained = self.turn_until(REAP, Inner::is_over);
        self.ready.drop_all(|| self.remote.finish());
        let inner = self.end();
        drop(entered);
        if let Some(inner) = inner {
            inner.close_all(drained);
        }
    }

    /// Turns the loop until `done`, for `limit` at most, and tells whether it was.
    fn turn_until(&self, limit: Duration, done: impl Fn(&mut Inner) -> bool) -> bool {
        let deadline = Instant::since_origin(self.kernel.now()) + limit;
        loop {
            let Ok(is_done) = self.enter().map(|mut inner| done(&mut inner)) else { return false };
            if is_done {
                return true;
            }
            let left = deadline.duration_since(Instant::since_origin(self.kernel.now()));
            let hurry = self.enter().is_ok_and(|inner| !inner.driver.is_clear());
            if left.is_zero() || self.turn(hurry, Some(left)).is_err() {
                return false;
            }
            // Nobody is left to run, but wakes may have put finished tasks' remains in the queue.
            self.ready.drop_all(|| self.remote.take());
        }
    }
}

impl Inner {
    fn all_sent_out(&mut self) -> bool {
        let streams = self.streams.indices();
        streams.into_iter().all(|slot| self.streams.get(slot).tx.is_over()) && self.all_posted()
    }

    /// Nothing is in flight, and every descriptor was closed.
    fn is_over(&mut self) -> bool {
        self.in_flight == 0
            && self.agenda.eager.is_empty()
            && self.post.posted.is_empty()
            && self.driver.is_clear()
    }

    /// Cancels everything that is in flight. Handles that outlive the runtime find it ended.
    fn stop_everything(&mut self) {
        for slot in self.streams.indices() {
            if !self.streams.get(slot).tx.is_over() {
                self.make_reset(slot);
            }
            self.stop_sending(slot);
            if self.streams.get(slot).dropped {
                self.close_if_done(slot);
            } else {
                self.drop_stream(slot);
            }
        }
        for slot in self.listeners.indices() {
            self.drop_listener(slot);
        }
        for slot in self.connects.indices() {
            self.drop_connect(slot);
        }
        for slot in self.calls.indices() {
            self.stop_call(slot);
        }
        for slot in self.polls.indices() {
            self.drop_poll(slot);
        }
        self.stop_mailboxes();
    }

    /// Closes the driver. Where the kernel may still know some memory, that memory is leaked instead of freed.
    fn close_all(self, drained: bool) {
        let Self { driver, streams, connects, vectors, loans, calls, post, .. } = self;
        let pools = (driver.pool().clone(), driver.packets().cloned());
        let closed: io::Result<()> = driver.close();
        if !drained || closed.is_err() {
            std::mem::forget((pools, streams, connects, vectors, loans, calls, post));
        }
    }
}
