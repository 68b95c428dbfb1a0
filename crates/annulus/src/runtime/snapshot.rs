//! Taking the stats of a runtime.

use super::core::{Core, Inner};
use crate::base::driver_kind::DriverKind;
use crate::base::queues::Queues;
use crate::memory::MemoryLimit;
use crate::stats::{Buffers, Memory, Resources, Stats, Trace};
use annulus_driver::{Driver, Pool};

impl Core {
    /// The stats; `None` in a forked child and after the end.
    pub(crate) fn stats(&self) -> Option<Stats> {
        let counters = self.counters()?;
        let mut inner = self.enter().ok()?;
        let mut tasks = self.run_queue.stats();
        tasks.inbox = self.remote.waiting();
        Some(Stats {
            driver: inner.kind(),
            uptime: self.kernel.now().saturating_sub(self.began),
            turns: self.inline_policy.turns(),
            tasks,
            resources: inner.resources(),
            queues: inner.queues(),
            stream_buffers: buffers(inner.io.driver.pool()),
            datagram_buffers: inner.io.driver.datagram_pool().map(|pool| buffers(pool)),
            memory: inner.memory(),
            counters,
            timings: self.recorder.timings(),
        })
    }

    /// The trace; `None` in a forked child and after the end.
    pub(crate) fn trace(&self) -> Option<Trace> {
        self.enter().ok()?;
        Some(self.recorder.trace())
    }
}

impl Inner {
    fn kind(&self) -> DriverKind {
        match *self.io.driver {
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
            timers: self.io.timers.len(),
            in_flight: self.io.in_flight,
        }
    }

    fn queues(&self) -> Queues {
        let mut queues = Queues { rechecks: self.io.rechecks.len(), ..Queues::default() };
        self.streams.turn().add_to(&mut queues);
        self.datagrams.turn().add_to(&mut queues);
        queues
    }

    fn memory(&self) -> Memory {
        let memory = &self.io.memory;
        Memory {
            held: self.io.held(),
            heap: memory.meter.bytes(),
            limit: memory.limit().map(MemoryLimit::bytes),
            streams_held_back: memory.held_back(),
        }
    }
}

fn buffers(pool: &Pool) -> Buffers {
    Buffers {
        count: pool.capacity(),
        size: pool.buffer_size(),
        lent: pool.lent(),
        with_kernel: pool.with_kernel(),
        resident: pool.resident(),
    }
}
