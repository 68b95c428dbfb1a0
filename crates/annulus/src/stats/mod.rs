//! Statistics of a runtime: counters, queues, buffers, memory.
//!
//! [`Handle::stats`](crate::Handle::stats) asks for them from any thread, [`stats()`](crate::stats()) on the runtime's own.
//!
//! ```
//! use annulus::stats::Stats;
//!
//! annulus::run(async {
//!     let listener = annulus::net::TcpListener::bind("127.0.0.1:0")?;
//!     let stats: Stats = annulus::handle()?.stats().await?;
//!     assert_eq!((stats.resources.listeners, stats.resources.streams), (1, 0));
//!     println!("{} turns, {} system calls", stats.turns, stats.counters.enters);
//! #   drop(listener);
//!     std::io::Result::Ok(())
//! })
//! # .unwrap();
//! ```

mod histogram;
mod prometheus;
pub(crate) mod recorder;
mod task_info;
mod timings;
mod trace;
mod wake_marks;

pub use crate::base::queues::Queues;
pub use crate::tasks::Tasks;
pub use histogram::Histogram;
pub use prometheus::prometheus;
pub use task_info::TaskInfo;
pub use timings::{SlowPoll, Timings};
pub use trace::{Trace, trace_events};

use crate::base::driver_kind::DriverKind;
use annulus_driver::Counters;
use std::time::Duration;

/// The state and counters of a runtime.
///
/// A snapshot that the runtime's thread takes between two polls of its tasks, so its values fit together. Exceptions are what other
/// threads change meanwhile: [`Tasks::inbox`], and the counters `remote_wakes` and `wakeups`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The driver that runs.
    pub driver: DriverKind,
    /// Time since the runtime was built. On a simulated kernel, virtual time.
    pub uptime: Duration,
    /// Turns of the loop so far.
    pub turns: u64,
    /// Tasks.
    pub tasks: Tasks,
    /// Sockets, files and timers that the runtime has.
    pub resources: Resources,
    /// Counts of the work that waits for the next turn.
    pub queues: Queues,
    /// Buffers that streams receive into.
    pub stream_buffers: Buffers,
    /// Buffers that datagrams are received into; `None` before the first datagram socket.
    pub datagram_buffers: Option<Buffers>,
    /// Memory of streams and datagram sockets.
    pub memory: Memory,
    /// The driver's counters.
    pub counters: Counters,
    /// How long turns and polls took, if the runtime was built with [`Builder::measure`](crate::Builder::measure) or
    /// [`slow_poll`](crate::Builder::slow_poll).
    pub timings: Option<Timings>,
}

/// Counts of the objects that a runtime has open or in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// Streams, including dropped ones that still send what they had queued.
    pub streams: usize,
    /// Listeners.
    pub listeners: usize,
    /// Connections that were accepted and that no `accept` has taken.
    pub unclaimed: usize,
    /// Datagram sockets, including dropped ones that still send.
    pub datagram_sockets: usize,
    /// Attempts to connect.
    pub connects: usize,
    /// Descriptors that are polled for readiness; the runtime polls one itself, to be woken by other threads.
    pub polls: usize,
    /// File calls off the loop.
    pub file_calls: usize,
    /// Timers: of sleeps and time-outs, and the runtime's own.
    pub timers: usize,
    /// Operations that the driver has and whose last event has not come, such as receives that wait for bytes.
    pub in_flight: usize,
}

/// A pool of receive buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Buffers {
    /// How many there are.
    pub count: u32,
    /// Bytes of each.
    pub size: u32,
    /// Buffers that leases hold, or that wait in sockets to be received.
    pub lent: u32,
    /// Buffers that the kernel may fill; if the driver chooses buffers itself, the free ones.
    pub with_kernel: u32,
    /// Bytes of memory that the pool has: what receives have written and has not gone back to the system.
    pub resident: usize,
}

/// The memory of a runtime's streams and datagram sockets, in bytes: what [`MemoryLimit`](crate::MemoryLimit) counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// All that this runtime holds.
    pub held: usize,
    /// The part that is heap memory: unsent bytes, and received ones that lie in no buffer of a pool.
    pub heap: usize,
    /// The limit, which runtimes can share; `None` is no limit.
    pub limit: Option<usize>,
    /// Streams that the limit has paused.
    pub streams_paused: usize,
}
