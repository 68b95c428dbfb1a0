//! What each task waits for: the answer to "why does nothing happen?".

use super::inner::Inner;
use crate::time::Instant;
use std::task::Waker;

impl Inner {
    /// What a task, known by its waker, waits for; empty if it waits for nothing that the runtime knows of.
    pub(crate) fn waits_of(&mut self, task: &Waker) -> Vec<String> {
        let mut waits = Vec::new();
        self.streams.add_waits(task, &mut waits);
        self.listeners.add_waits(task, &mut waits);
        self.datagrams.add_waits(task, &mut waits);
        self.connects.add_waits(task, &mut waits);
        self.nops.add_waits(task, &mut waits);
        self.file_ops.add_waits(task, &mut waits);
        let now = self.io.now();
        waits.extend(self.io.timers.of(task).map(|deadline| left(deadline, now)));
        waits
    }
}

fn left(deadline: Instant, now: Instant) -> String {
    format!("for a timer in {:?}", deadline.duration_since(now))
}
