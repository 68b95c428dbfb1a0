//! Who waits for what: the answer to "why does nothing happen?".

use super::inner::Inner;
use crate::time::Instant;
use std::task::Waker;

impl Inner {
    /// What a task, known by its waker, waits for; nothing that the runtime knows of, where it is empty.
    pub(crate) fn waits_of(&mut self, task: &Waker) -> Vec<String> {
        let mut waits = self.stream_waits(task);
        self.listeners.add_waits(task, &mut waits);
        for slot in self.post.boxes.indices() {
            let mailbox = self.post.boxes.get(slot);
            let fd = mailbox.fd;
            if mailbox.rx.is_awaited_by(task) {
                waits.push(format!("for a datagram on descriptor {fd}"));
            }
            if mailbox.tx.is_awaited_by(task) {
                waits.push(format!("to send datagrams on descriptor {fd}"));
            }
        }
        self.connects.add_waits(task, &mut waits);
        self.nops.add_waits(task, &mut waits);
        self.file_ops.add_waits(task, &mut waits);
        let now = self.io.now();
        waits.extend(self.io.timers.of(task).map(|deadline| left(deadline, now)));
        waits
    }

    fn stream_waits(&mut self, task: &Waker) -> Vec<String> {
        let mut waits = Vec::new();
        for slot in self.streams.indices() {
            let stream = self.streams.get(slot);
            let directions = [
                ("to receive", stream.rx.is_awaited_by(task)),
                ("for its sends", stream.tx.is_awaited_by(task)),
            ];
            for (what, _) in directions.into_iter().filter(|(_, waits)| *waits) {
                waits.push(format!("{what} on descriptor {}", stream.fd));
            }
        }
        waits
    }
}

fn left(deadline: Instant, now: Instant) -> String {
    format!("for a timer in {:?}", deadline.duration_since(now))
}
