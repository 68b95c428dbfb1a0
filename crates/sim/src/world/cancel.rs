//! Cancels by `user_data`: the result is 0, ENOENT or EALREADY, and the target completes before or after.

use super::World;
use crate::faults::Fault;
use crate::op::{Answer, Body};
use crate::op_id::OpId;
use rustix::io::Errno;

impl World {
    pub(super) fn cancel(&mut self, ring: u32, user_data: u64) -> Answer {
        let Some(id) = self.ops.named(ring, user_data) else { return Answer::error(Errno::NOENT) };
        if self.ops.peek(id).is_some_and(|op| matches!(op.body, Body::Notification(_))) {
            // A completed target does not exist any more.
            return Answer::error(Errno::NOENT);
        }
        if self.ops.peek(id).is_some_and(|op| matches!(op.body, Body::File(_))) {
            // The device cannot be interrupted.
            return Answer::error(Errno::ALREADY);
        }
        if self.occurs(Fault::CancelLost) {
            return Answer::error(self.complete_before_cancel(id));
        }
        if let Some(op) = self.ops.find(id) {
            op.cancelled = true;
        }
        if self.occurs(Fault::CancelSecond) {
            self.run(id);
            return Answer::good(0);
        }
        self.queue(id);
        Answer::good(0)
    }

    /// Whether the target would complete if it were tried now.
    fn is_due(&self, id: OpId) -> bool {
        self.ops.peek(id).is_some_and(|op| !op.cancelled && self.is_ready(op))
    }

    /// The target completes as if it were not cancelled; a multishot target then ends.
    fn complete_before_cancel(&mut self, id: OpId) -> Errno {
        if self.is_due(id) {
            self.run(id);
        }
        match self.ops.find(id) {
            Some(op) => {
                op.cancelled = true;
                self.queue(id);
                Errno::ALREADY
            }
            None if self.random.chance(500) => Errno::NOENT,
            None => Errno::ALREADY,
        }
    }
}
