//! The life of an operation that could not be done at once: parked at its socket → queued, when that changes → tried
//! again → parked, or ended.

use super::World;
use crate::faults::Fault;
use crate::op::{Answer, Body, Op, OpId, Outcome};
use annulus_ring::Completion;
use rustix::io::Errno;

impl World {
    /// Runs deferred work until `least` items are done and nothing is left, or `most` are done. A ring that does not
    /// defer runs all there is.
    #[inline]
    pub(super) fn run_work(&mut self, ring: u32, least: u32, most: u32) {
        let most = if self.rings.at(ring).defers() { most } else { u32::MAX };
        let mut done = 0;
        while done < most {
            // What is there now counts as one batch; what it brings about is done only where too little was.
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

    /// Which work is next: the first, unless a fault shuffles. Of those on one socket it is always the first.
    fn choose(&mut self, ring: u32) -> usize {
        let len = self.rings.at(ring).work().len();
        if len < 2 || !self.strikes(Fault::Shuffle) {
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

    /// A new operation has to wait. Its file stays, whatever becomes of the descriptor; its memory is watched.
    pub(super) fn park(&mut self, mut op: Op, at_once: bool) -> OpId {
        self.watch(&mut op);
        let ready = at_once || self.is_ready(&op);
        if let (Body::Send(send), Some(socket), false) = (&op.body, op.socket(), ready) {
            self.net.await_place(socket, send.to());
        }
        let (file, side) = (op.file, op.side());
        let alarm = match op.body {
            Body::Timer { after } => Some(after),
            Body::Notice(ref notice) => Some(notice.after),
            Body::File(ref work) => Some(work.after),
            _ => None,
        };
        let id = self.ops.insert(op);
        if let Some(after) = alarm {
            self.net.set_alarm(after, id);
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
            Body::Send(send) => send.seal = send.look(self.poison),
            _ => {}
        }
    }

    /// An operation has ended.
    pub(super) fn end(&mut self, id: OpId, mut op: Op, answer: Answer) {
        self.ops.end(id, &op);
        let answer = self.notice_of(&mut op, answer);
        self.complete(op.ring, op.user_data, op.skip, answer);
        self.forget(id, &op);
    }

    /// Nothing refers to an ended operation any more.
    pub(super) fn forget(&mut self, id: OpId, op: &Op) {
        self.let_go_of_rights(op);
        if let Some((file, socket)) = op.file {
            let waiters = self.net.socket_mut(socket).waiters(op.side());
            waiters.retain(|waiter| *waiter != id);
            if let Body::Connect = op.body {
                self.net.give_up_connect(socket);
            }
            self.let_go(file);
        }
    }

    /// What an operation did not send, it does not hold any longer.
    pub(super) fn let_go_of_rights(&mut self, op: &Op) {
        op.rights().iter().for_each(|&file| self.let_go(file));
    }

    /// Posts an operation's last completion, unless it is a success that nobody wants to hear of.
    #[inline]
    pub(super) fn complete(&mut self, ring: u32, user_data: u64, skip: bool, answer: Answer) {
        if answer.failed || !skip {
            let Answer { result, flags, .. } = answer;
            self.post(ring, Completion { user_data, result, flags });
        }
    }
}
