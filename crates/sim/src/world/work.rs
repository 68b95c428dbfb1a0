//! The states of an operation that waits: parked at its socket; queued, when the socket changes; tried again; then parked,
//! or ended.

use super::World;
use crate::faults::Fault;
use crate::op::{Answer, Body, Op, Outcome};
use crate::op_id::OpId;
use annulus_ring::Completion;
use rustix::io::Errno;

impl World {
    /// Runs deferred work until `least` items are done and none is left, or `most` are done. A ring without deferred work
    /// runs all.
    #[inline]
    pub(super) fn run_work(&mut self, ring: u32, least: u32, most: u32) {
        let most = if self.rings.at(ring).defers() { most } else { u32::MAX };
        let mut done = 0;
        while done < most {
            // The items queued now are one batch; those that it leads to run only if there were too few.
            let batch = (self.rings.at(ring).work().len() as u32).min(most - done);
            if batch == 0 || done > 0 && done >= least {
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

    /// The index of the next work: the first, unless a fault shuffles. Work on one socket stays in order.
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

    /// Tries a parked operation again.
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
            Outcome::GoesOn => {
                self.ops.put(id, op);
                self.queue(id);
            }
        }
        self.wake();
    }

    /// Parks a new operation. Its file stays open even if the descriptor is closed, and its memory is checked.
    pub(super) fn park(&mut self, mut op: Op, at_once: bool) -> OpId {
        self.watch(&mut op);
        let ready = at_once || self.is_ready(&op);
        if let (Body::Send(send), Some(socket), false) = (&op.body, op.socket(), ready) {
            self.net.await_space(socket, send.to());
        }
        let (file, side) = (op.file, op.side());
        let timeout = match op.body {
            Body::Timer { after } => Some(after),
            Body::Notification(ref notification) => Some(notification.after),
            Body::File(ref work) => Some(work.after),
            Body::Accept { .. } | Body::Connect | Body::Poll { .. } => None,
            Body::Receive(_) | Body::Send(_) | Body::Never => None,
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
            Body::Receive(receive) => receive.watch(self.poison),
            Body::File(work) => work.watch(self.poison),
            Body::Send(send) => send.seal = send.seal_memory(self.poison),
            // They name no memory, or have sealed it.
            Body::Accept { .. } | Body::Connect | Body::Poll { .. } => {}
            Body::Timer { .. } | Body::Notification(_) | Body::Never => {}
        }
    }

    /// Ends an operation.
    pub(super) fn end(&mut self, id: OpId, mut op: Op, answer: Answer) {
        self.ops.end(id, &op);
        let answer = self.notification_of(&mut op, answer);
        self.complete(op.ring, op.user_data, op.skip, answer);
        self.forget(id, &op);
    }

    /// Removes an operation from everything that refers to it.
    pub(super) fn forget(&mut self, id: OpId, op: &Op) {
        self.drop_rights(op);
        if let Some((file, socket)) = op.file {
            let waiters = self.net.socket_mut(socket).waiters(op.side());
            waiters.retain(|waiter| *waiter != id);
            if let Body::Connect = op.body {
                self.net.give_up_connect(socket);
            }
            self.drop_file(file);
        }
    }

    /// Drops the references to files that were not sent.
    pub(super) fn drop_rights(&mut self, op: &Op) {
        op.rights().iter().for_each(|&file| self.drop_file(file));
    }

    /// Posts the last completion of an operation, unless it is a success that is skipped.
    #[inline]
    pub(super) fn complete(&mut self, ring: u32, user_data: u64, skip: bool, answer: Answer) {
        if answer.failed || !skip {
            let Answer { result, flags, .. } = answer;
            self.post(ring, Completion { user_data, result, flags });
        }
    }
}
