//! The events that each task waits for, to find out why a program hangs.

use super::core::{Core, Inner};
use crate::slots::waits::Waits;
use crate::stats::TaskInfo;
use crate::tasks::Task;
use crate::timers::Instant;
use std::task::Waker;

impl Core {
    /// Every task but the one that asks, and the events it waits for; `None` in a forked child and after the end.
    pub(super) fn tasks(&self) -> Option<Vec<TaskInfo>> {
        let tasks = self.run_queue.tasks();
        let mut waits = Waits::new(tasks.iter().map(|task| task.waker.clone()).collect());
        self.enter().ok()?.add_waits(&mut waits);
        self.arrivals
            .waiting()
            .iter()
            .for_each(|waker| waits.note(waker, || "for a signal".into()));
        let now = self.kernel.now();
        let info = |(task, waits_for): (Task, Vec<String>)| TaskInfo {
            id: task.id,
            spawned_at: task.spawned_at,
            is_ready: task.queued,
            waits_for,
            polls: task.polls,
            last_poll: (task.polls > 0).then(|| now.saturating_sub(task.polled_at)),
        };
        Some(tasks.into_iter().zip(waits.into_found()).map(info).collect())
    }

    /// A line for every task but the one that asks: the events it waits for.
    pub(super) fn waiting(&self) -> Vec<String> {
        self.tasks().unwrap_or_default().iter().map(TaskInfo::to_string).collect()
    }
}

impl Inner {
    /// The wakers of all that wait for something of this runtime.
    pub(super) fn all_waiting(&mut self) -> Vec<Waker> {
        let mut waits = Waits::of_all();
        self.add_waits(&mut waits);
        waits.into_wakers()
    }

    /// Adds the events that tasks wait for, as far as the runtime knows them.
    fn add_waits(&mut self, waits: &mut Waits) {
        self.streams.add_waits(waits);
        self.listeners.add_waits(waits);
        self.datagrams.add_waits(waits);
        self.connects.add_waits(waits);
        self.nops.add_waits(waits);
        self.polls.add_waits(waits);
        self.file_ops.add_waits(waits);
        let now = self.io.now();
        self.io.timers.each_wait(|waker, deadline| waits.note(waker, || left(deadline, now)));
    }
}

fn left(deadline: Instant, now: Instant) -> String {
    format!("for a timer in {:?}", deadline.duration_since(now))
}
