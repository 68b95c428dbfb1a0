//! Statistics of a runtime: counters, queues, buffers, memory.
//!
//! [`Handle::stats`](crate::Handle::stats) returns them on any thread, [`stats()`](crate::stats())
//! on the runtime's own thread.
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

pub use crate::slots::turn_lists::Queues;
pub use crate::tasks::Tasks;
pub use histogram::Histogram;
pub use prometheus::prometheus;
pub use task_info::TaskInfo;
pub use timings::{SlowPoll, Timings};
pub use trace::{Trace, trace_events};

use annulus_driver::Counters;
use std::fmt;
use std::time::Duration;

/// The state and counters of a runtime.
///
/// The runtime's thread takes this snapshot between two polls of its tasks, so its values are
/// consistent. The exceptions are values that other threads change: [`Tasks::inbox`], and the
/// counters `remote_wakes` and `wakeups`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The driver in use.
    pub driver: DriverKind,
    /// Time since the runtime was built. On a simulated kernel, virtual time.
    pub uptime: Duration,
    /// Number of turns of the loop so far.
    pub turns: u64,
    /// Tasks.
    pub tasks: Tasks,
    /// The runtime's sockets, files and timers.
    pub resources: Resources,
    /// Counts of work queued for the next turn.
    pub queues: Queues,
    /// Receive buffers of streams.
    pub stream_buffers: Buffers,
    /// Receive buffers of datagram sockets; `None` before the first datagram socket.
    pub datagram_buffers: Option<Buffers>,
    /// Memory of streams and datagram sockets.
    pub memory: Memory,
    /// The driver's counters.
    pub counters: Counters,
    /// Durations of turns and polls, if the runtime was built with
    /// [`Builder::measure`](crate::Builder::measure) or [`slow_poll`](crate::Builder::slow_poll).
    pub timings: Option<Timings>,
}

/// Counts of the objects that a runtime has open or in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// Streams, including dropped ones that are still sending queued bytes.
    pub streams: usize,
    /// Listeners.
    pub listeners: usize,
    /// Accepted connections that no call of `accept` has taken yet.
    pub unclaimed: usize,
    /// Datagram sockets, including dropped ones that are still sending.
    pub datagram_sockets: usize,
    /// Connects in progress.
    pub connects: usize,
    /// Descriptors that are polled for readiness. The runtime polls one itself, through which other
    /// threads wake it.
    pub polls: usize,
    /// File calls off the loop.
    pub file_calls: usize,
    /// Timers of sleeps and timeouts, and the runtime's own.
    pub timers: usize,
    /// Operations of the driver whose last event has not arrived yet, such as receives that wait
    /// for bytes.
    pub in_flight: usize,
}

/// A pool of receive buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Buffers {
    /// Number of buffers in the pool.
    pub count: u32,
    /// Bytes per buffer.
    pub size: u32,
    /// Buffers that are held by leases or that wait in sockets to be received.
    pub lent: u32,
    /// Buffers that the kernel may fill. If the driver chooses the buffers itself, the free ones.
    pub with_kernel: u32,
    /// Bytes of the pool that are in memory: receives have written to them, and they have not been
    /// returned to the system since.
    pub resident: usize,
}

/// The memory of a runtime's streams and datagram sockets, in bytes, as
/// [`MemoryLimit`](crate::MemoryLimit) counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// All memory that this runtime's sockets hold.
    pub held: usize,
    /// The part on the heap: unsent bytes, and received bytes outside the pools.
    pub heap: usize,
    /// The limit, which runtimes can share; `None` if there is no limit.
    pub limit: Option<usize>,
    /// Streams that the limit has paused.
    pub streams_paused: usize,
}

/// A driver.
///
/// ```
/// use annulus::{DriverKind, Runtime};
///
/// let runtime = Runtime::new()?;
/// if runtime.driver().kind == DriverKind::Epoll {
///     eprintln!("slower than it could be: {}", runtime.driver().reason);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverKind {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        })
    }
}
