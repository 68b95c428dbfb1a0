//! What each task waits for, to find out why a program hangs.

use super::core::Core;
use super::inner::Inner;
use crate::task::Task;
use crate::time::Instant;
use std::task::Waker;

impl Core {
    /// What every task but `asking` waits for, a line each.
    pub(super) fn waiting(&self, asking: Option<&Waker>) -> Vec<String> {
        let tasks = self.run_queue.tasks();
        let Ok(mut inner) = self.enter() else { return Vec::new() };
        let line = |task: Task| {
            let waits = inner.waits_of(&task.waker);
            let what = match waits.is_empty() {
                true if task.queued => "to run".into(),
                true => "for a task or another thread".into(),
                false => waits.join(", "),
            };
            let (file, line) = (task.spawned_at.file(), task.spawned_at.line());
            format!("task spawned at {file}:{line} waits {what}")
        };
        let is_asking = |task: &Task| asking.is_some_and(|waker| waker.will_wake(&task.waker));
        tasks.into_iter().filter(|task| !is_asking(task)).map(line).collect()
    }
}

impl Inner {
    /// What a task, known by its waker, waits for; empty if it waits for nothing that the runtime knows of.
    pub(crate) fn waits_of(&mut self, task: &Waker) -> Vec<String> {
        let mut waits = Vec::new();
        self.streams.add_waits(task, &mut waits);
        self.listeners.add_waits(task, &mut waits);
        self.datagrams.add_waits(task, &mut waits);
        self.connects.add_waits(task, &mut waits);
        self.nops.add_waits(task, &mut waits);
        self.polls.add_waits(task, &mut waits);
        self.file_ops.add_waits(task, &mut waits);
        let now = self.io.now();
        waits.extend(self.io.timers.of(task).map(|deadline| left(deadline, now)));
        waits
    }
}

fn left(deadline: Instant, now: Instant) -> String {
    format!("for a timer in {:?}", deadline.duration_since(now))
}
