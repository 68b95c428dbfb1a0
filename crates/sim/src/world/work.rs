//! How a waiting operation continues. Most operations wait at their socket, and are queued when the
//! socket changes. Then they are tried again, and wait again or end.

use super::World;
use crate::faults::Fault;
use crate::op::{Op, OpKind, OpResult, Outcome};
use crate::op_id::OpId;
use annulus_ring::Completion;
use rustix::io::Errno;

impl World {
    /// Runs queued work in batches until at least `min_items` or exactly `max_items` items have
    /// run, or nothing is queued. A ring without deferred work has no maximum.
    #[inline]
    pub(super) fn run_work(&mut self, ring: u32, min_items: u32, max_items: u32) {
        let max_items = if self.rings.at(ring).defers() { max_items } else { u32::MAX };
        let mut done = 0;
        while done < max_items {
            // A batch is what is queued now. Work that it queues runs only if fewer than
            // `min_items` have run.
            let batch = (self.rings.at(ring).work().len() as u32).min(max_items - done);
            if batch == 0 || done > 0 && done >= min_items {
                break;
            }
            (0..batch).for_each(|_| self.run_next(ring));
            done += batch;
        }
    }

    fn run_next(&mut self, ring: u32) {
        let index = self.choose(ring);
        let Some(id) = self.rings.at_mut(ring).take_work(index) else { return };
        if self.ops.find(id).is_some() {
            self.run(id);
        }
    }

    /// Returns the index of the next work: the first, unless the shuffle fault occurs. Work on the
    /// same socket stays in order.
    fn choose(&mut self, ring: u32) -> usize {
        let len = self.rings.at(ring).work().len();
        if len < 2 || !self.occurs(Fault::Shuffle) {
            return 0;
        }
        let picked = self.random.below(len as u64) as usize;
        let Self { rings, ops, .. } = self;
        let work = rings.at(ring).work();
        let mut socket = |index: usize| ops.find(work[index]).and_then(|op| op.socket());
        let wanted = socket(picked);
        (0..picked).find(|&index| socket(index) == wanted).unwrap_or(picked)
    }

    /// Tries a waiting operation again.
    pub(super) fn run(&mut self, id: OpId) {
        let mut op = self.ops.take(id);
        op.queued = false;
        self.verify(&op);
        let outcome = if op.cancelled {
            Outcome::Done(op.stopped_by(Errno::CANCELED))
        } else {
            self.attempt(&mut op)
        };
        match outcome {
            Outcome::Done(answer) => self.end(id, op, answer),
            Outcome::Waits => {
                let ready = self.is_ready(&op);
                self.ops.put(id, op);
                if ready {
                    self.queue(id);
                }
            }
            Outcome::Continues => {
                self.ops.put(id, op);
                self.queue(id);
            }
        }
        self.wake();
    }

    /// Makes a new operation wait. Its file stays open even if the descriptor is closed, and its
    /// memory is checked.
    pub(super) fn start_waiting(&mut self, mut op: Op, at_once: bool) -> OpId {
        self.watch(&mut op);
        let ready = at_once || self.is_ready(&op);
        if let (OpKind::Send(send), Some(socket), false) = (&op.body, op.socket(), ready) {
            self.net.await_space(socket, send.to());
        }
        let (file, side) = (op.file, op.side());
        let timeout = match op.body {
            OpKind::Timer { after } => Some(after),
            OpKind::Notification(ref notification) => Some(notification.after),
            OpKind::File(ref work) => Some(work.after),
            OpKind::Accept { .. } | OpKind::Connect | OpKind::Poll { .. } => None,
            OpKind::Receive(_) | OpKind::Send(_) | OpKind::Never => None,
        };
        let id = self.ops.insert(op);
        if let Some(after) = timeout {
            self.net.start_timer(after, id);
        }
        if let Some((file, socket)) = file {
            self.files.hold(file);
            self.net.socket_mut(socket).waiters(side).push(id);
        }
        if ready {
            self.queue(id);
        }
        id
    }

    fn watch(&self, op: &mut Op) {
        match &mut op.body {
            OpKind::Receive(receive) => receive.watch(self.poison),
            OpKind::File(work) => work.watch(self.poison),
            OpKind::Send(send) => send.checksum = send.memory_checksum(self.poison),
            // These have no memory, or have taken their checksum already.
            OpKind::Accept { .. } | OpKind::Connect | OpKind::Poll { .. } => {}
            OpKind::Timer { .. } | OpKind::Notification(_) | OpKind::Never => {}
        }
    }

    pub(super) fn end(&mut self, id: OpId, mut op: Op, answer: OpResult) {
        self.ops.end(id, &op);
        let answer = self.start_notification(&mut op, answer);
        self.complete(op.ring, op.user_data, op.skip_success, answer);
        self.forget(id, &op);
    }

    /// Removes an operation from everything that refers to it.
    pub(super) fn forget(&mut self, id: OpId, op: &Op) {
        self.drop_rights(op);
        if let Some((file, socket)) = op.file {
            let waiters = self.net.socket_mut(socket).waiters(op.side());
            waiters.retain(|waiter| *waiter != id);
            if let OpKind::Connect = op.body {
                self.net.give_up_connect(socket);
            }
            self.drop_file(file);
        }
    }

    /// Drops the references to files that were to be passed, or that a file call uses.
    pub(super) fn drop_rights(&mut self, op: &Op) {
        op.held_files().iter().for_each(|&file| self.drop_file(file));
    }

    /// Posts the completion of an operation, unless it is a skipped success.
    #[inline]
    pub(super) fn complete(&mut self, ring: u32, user_data: u64, skip: bool, answer: OpResult) {
        if answer.failed || !skip {
            let OpResult { result, flags, .. } = answer;
            self.post(ring, Completion { user_data, result, flags });
        }
    }

    pub(super) fn cancel(&mut self, ring: u32, user_data: u64) -> OpResult {
        let Some(id) = self.ops.oldest_with(ring, user_data) else {
            return OpResult::error(Errno::NOENT);
        };
        if self.ops.peek(id).is_some_and(|op| matches!(op.body, OpKind::Notification(_))) {
            // The send itself has completed, so Linux does not find it.
            return OpResult::error(Errno::NOENT);
        }
        if self.ops.peek(id).is_some_and(|op| matches!(op.body, OpKind::File(_))) {
            // The device cannot be interrupted.
            return OpResult::error(Errno::ALREADY);
        }
        if self.occurs(Fault::CancelLost) {
            return OpResult::error(self.complete_before_cancel(id));
        }
        if let Some(op) = self.ops.find(id) {
            op.cancelled = true;
        }
        if self.occurs(Fault::CancelSecond) {
            self.run(id);
            return OpResult::good(0);
        }
        self.queue(id);
        OpResult::good(0)
    }

    /// Returns true if the target would complete if it were tried now.
    fn is_due(&self, id: OpId) -> bool {
        self.ops.peek(id).is_some_and(|op| !op.cancelled && self.is_ready(op))
    }

    /// Lets the target complete, if it is ready, as if it had not been cancelled. If it is still in
    /// flight afterwards, because it was not ready or is a multishot, it is then cancelled.
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
