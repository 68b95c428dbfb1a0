//! Inspects a runtime from any thread: the events that each task waits for, the stats and the
//! trace.

use super::core::{Core, Inner};
use super::current;
use super::handle::Handle;
use crate::driver_kind::DriverKind;
use crate::memory::MemoryLimit;
use crate::slots::Waits;
use crate::slots::turn_lists::Queues;
use crate::stats::{Buffers, Memory, Resources, Stats, TaskInfo, Trace};
use crate::tasks::{TaskSnapshot, consume_budget};
use crate::timers::Instant;
use annulus_driver::{Driver, Pool};
use std::future::poll_fn;
use std::io;
use std::panic::resume_unwind;
use std::task::{Poll, Waker};

/// A function that reads a value from a runtime, on the runtime's thread. It returns `None` after
/// the runtime's end.
pub(super) type Question<T> = fn(&Core) -> Option<T>;

impl Handle {
    /// Answers a question about the runtime: at once on the runtime's own thread, otherwise through
    /// a task there.
    pub(super) async fn ask<T: Send + 'static>(&self, question: Question<T>) -> io::Result<T> {
        consume_budget().await;
        if let Some(answer) = self.answer_here(question) {
            return answer.ok_or_else(ended);
        }
        let answer = self
            .spawn(poll_fn(move |_| Poll::Ready(current::with(|core| question(core)).flatten())))?;
        match answer.await {
            Ok(answer) => answer.ok_or_else(ended),
            // The task was not aborted, so either it panicked or its runtime has ended.
            Err(error) => {
                error.try_into_panic().map_or_else(|_| Err(ended()), |panic| resume_unwind(panic))
            }
        }
    }

    fn answer_here<T>(&self, question: Question<T>) -> Option<Option<T>> {
        let is_here = |core: &Core| std::ptr::eq(&*core.remote, self.remote());
        current::with(|core| is_here(core).then(|| question(core))).flatten()
    }
}

fn ended() -> io::Error {
    io::Error::other("the runtime has ended")
}

impl Core {
    /// Returns every task except the calling one, with the events it waits for. Returns `None` in a
    /// forked child and after the end.
    pub(super) fn tasks(&self) -> Option<Vec<TaskInfo>> {
        let tasks = self.run_queue.tasks();
        let mut waits = Waits::new(tasks.iter().map(|task| task.waker.clone()).collect());
        self.borrow().ok()?.add_waits(&mut waits);
        self.simulated_signals
            .waiting()
            .iter()
            .for_each(|waker| waits.note(waker, || "for a signal".into()));
        let now = self.kernel.now();
        let info = |(task, waits_for): (TaskSnapshot, Vec<String>)| TaskInfo {
            id: task.id,
            spawned_at: task.spawned_at,
            is_ready: task.queued,
            waits_for,
            polls: task.polls,
            last_poll: (task.polls > 0).then(|| now.saturating_sub(task.polled_at)),
        };
        Some(tasks.into_iter().zip(waits.into_found()).map(info).collect())
    }

    /// Returns a line for every task except the calling one: the events it waits for.
    pub(super) fn waiting(&self) -> Vec<String> {
        self.tasks().unwrap_or_default().iter().map(TaskInfo::to_string).collect()
    }
}

impl Inner {
    /// Returns all wakers that wait for an event of this runtime, including wakers of a host's
    /// tasks.
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
        self.custom_ops.add_waits(waits);
        let now = self.state.now();
        self.state.timers.each_wait(|waker, deadline| waits.note(waker, || left(deadline, now)));
    }
}

fn left(deadline: Instant, now: Instant) -> String {
    format!("for a timer in {:?}", deadline.duration_since(now))
}

impl Core {
    /// Returns the stats, or `None` in a forked child and after the end.
    pub(crate) fn stats(&self) -> Option<Stats> {
        let counters = self.counters()?;
        let mut inner = self.borrow().ok()?;
        let mut tasks = self.run_queue.stats();
        tasks.inbox = self.remote.waiting();
        Some(Stats {
            driver: inner.kind(),
            uptime: self.kernel.now().saturating_sub(self.began),
            turns: self.turns(),
            tasks,
            resources: inner.resources(),
            queues: inner.queues(),
            stream_buffers: buffers(inner.state.driver.pool()),
            datagram_buffers: inner.state.driver.datagram_pool().map(|pool| buffers(pool)),
            memory: inner.memory(),
            counters,
            timings: self.recorder.timings(),
        })
    }

    /// Returns the trace, or `None` in a forked child and after the end.
    pub(crate) fn trace(&self) -> Option<Trace> {
        self.borrow().ok()?;
        Some(self.recorder.trace())
    }
}

impl Inner {
    fn kind(&self) -> DriverKind {
        match *self.state.driver {
            Driver::Uring(_) => DriverKind::Uring,
            Driver::Epoll(_) => DriverKind::Epoll,
        }
    }

    fn resources(&mut self) -> Resources {
        Resources {
            streams: self.streams.len(),
            listeners: self.listeners.len(),
            unclaimed: self.listeners.unclaimed(),
            datagram_sockets: self.datagrams.len(),
            connects: self.connects.len(),
            polls: self.polls.len(),
            file_calls: self.file_ops.len(),
            timers: self.state.timers.len(),
            in_flight: self.state.in_flight,
        }
    }

    fn queues(&self) -> Queues {
        let mut queues = Queues { rechecks: self.state.rechecks.len(), ..Queues::default() };
        self.streams.turn_lists().add_to(&mut queues);
        self.datagrams.turn_lists().add_to(&mut queues);
        queues
    }

    fn memory(&self) -> Memory {
        let memory = &self.state.memory;
        Memory {
            held: self.state.held(),
            heap: memory.meter.bytes(),
            limit: memory.limit().map(MemoryLimit::bytes),
            streams_paused: memory.streams_paused(),
        }
    }
}

fn buffers(pool: &Pool) -> Buffers {
    Buffers {
        count: pool.capacity(),
        size: pool.buffer_size(),
        lent: pool.lent() + pool.lent_pieces(),
        with_kernel: pool.with_kernel(),
        resident: pool.resident_bytes(),
    }
}
