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
mod trace;

use crate::driver_kind::DriverKind;
pub use crate::slots::turn_lists::Queues;
use crate::tasks::Id;
pub use crate::tasks::Tasks;
/// A counter with its name, value and description, for code that prints or exports all counters.
///
/// ```
/// use annulus::stats::Counter;
///
/// fn print(Counter { name, value, help, .. }: Counter) {
///     println!("{value:>12} {name}: {help}");
/// }
///
/// let runtime = annulus::Runtime::new()?;
/// runtime.counters().iter().filter(|counter| counter.value > 0).for_each(print);
/// # std::io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_driver::Counter;
/// The counters of a runtime, and the amounts of memory that it holds now: see
/// [`counters`](crate::counters).
///
/// ```
/// use annulus::net::UnixStream;
/// use annulus::stats::Counters;
///
/// /// Returns the average number of messages per `io_uring_enter` or `epoll_pwait`.
/// fn batch(before: &Counters, after: &Counters, messages: u64) -> f64 {
///     messages as f64 / (after.enters - before.enters).max(1) as f64
/// }
///
/// # annulus::run(async {
/// let (mut one, mut two) = UnixStream::pair()?;
/// let before = annulus::counters().expect("not in a runtime");
/// for _ in 0..100 {
///     one.send("a").await?;
/// }
/// two.recv_exact(100).await?;
/// let after = annulus::counters().expect("not in a runtime");
/// assert!(batch(&before, &after, 100) > 1.0);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(inline)]
pub use annulus_driver::Counters;
pub use histogram::Histogram;
pub use prometheus::prometheus;
use std::fmt;
use std::panic::Location;
use std::time::Duration;
pub use trace::{Trace, trace_events};

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
    /// Counts of tasks.
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
    /// Open listeners.
    pub listeners: usize,
    /// Accepted connections that no call of `accept` has taken yet.
    pub unclaimed: usize,
    /// Datagram sockets, including dropped ones that are still sending.
    pub datagram_sockets: usize,
    /// Connects in progress.
    pub connects: usize,
    /// Descriptors that are polled for readiness, including the runtime's own, through which other
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
    /// Buffers that leases hold, and filled buffers that no task has received yet.
    pub lent: u32,
    /// Buffers that the kernel may fill. On epoll, where the driver itself chooses a buffer for
    /// each receive, the free buffers.
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

/// A task that has not ended: where it was spawned, and what it waits for.
/// [`Handle::tasks`](crate::Handle::tasks) lists them.
///
/// ```
/// annulus::run(async {
///     let sleeping = annulus::spawn(annulus::time::sleep(std::time::Duration::from_secs(60)));
///     annulus::task::yield_now().await;
///     let tasks = annulus::handle()?.tasks().await?;
///     assert!(tasks[0].to_string().contains("waits for a timer in "));
///     assert!(!tasks[0].is_ready);
/// #   drop(sleeping);
///     std::io::Result::Ok(())
/// })
/// # .unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The id that [`JoinHandle::id`](crate::task::JoinHandle::id) and
    /// [`task::id`](crate::task::id) return.
    pub id: Id,
    /// The place that spawned the task.
    pub spawned_at: &'static Location<'static>,
    /// Whether the task has been woken and waits to run.
    pub is_ready: bool,
    /// The events that the task waits for, as far as the runtime knows: sockets, files, timers,
    /// signals. Empty if it waits for another task or thread, or for nothing.
    pub waits_for: Vec<String>,
    /// Number of polls of the task.
    pub polls: u64,
    /// Time since the last poll. A task that is not ready has waited that long. The time may be a
    /// few milliseconds too long, because it is measured with a coarse clock. `None` before the
    /// first poll.
    pub last_poll: Option<Duration>,
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (self.spawned_at.file(), self.spawned_at.line());
        write!(f, "task spawned at {file}:{line} waits ")?;
        match self.waits_for.as_slice() {
            [] if self.is_ready => f.write_str("to run")?,
            [] => f.write_str("for a task or another thread")?,
            waits => f.write_str(&waits.join(", "))?,
        }
        write!(f, "; polled {} ×", self.polls)?;
        match self.last_poll {
            Some(ago) => write!(f, ", last {ago:?} ago"),
            None => Ok(()),
        }
    }
}

/// Durations of turns and polls, and of the waits of woken tasks, as measured by a runtime that was
/// built with [`Builder::measure`](crate::Builder::measure) or
/// [`slow_poll`](crate::Builder::slow_poll).
///
/// With `measure`, the runtime reads the clock in the first two turns of every 100 ms, and the
/// histograms count only those turns. So a turn after a pause is counted, but only the first turns
/// of a burst are. With `slow_poll`, the runtime reads the clock in all turns.
///
/// ```
/// use annulus::{Runtime, stats::Timings};
/// use std::time::Duration;
///
/// let mut runtime = Runtime::builder().slow_poll(Some(Duration::from_millis(10))).build()?;
/// runtime.block_on(async {
///     let blocking = annulus::spawn(async { std::thread::sleep(Duration::from_millis(20)) });
///     blocking.await.expect("the task panicked");
/// });
/// let timings: Timings = runtime.stats().and_then(|stats| stats.timings).expect("it is measured");
/// for slow in &timings.last_slow_polls {
///     // The task spawned at src/main.rs:6 held the loop for 20.1 ms.
///     eprintln!("{slow}");
/// }
/// assert!(timings.poll.percentile(100.0) >= Some(Duration::from_millis(20)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Timings {
    /// Time from the return of a system call that waits for events to the next such call: the time
    /// that further events had to wait.
    pub turn: Histogram,
    /// Duration of a poll of a task, or of the future that `block_on` runs: the time that it kept
    /// other tasks waiting.
    pub poll: Histogram,
    /// Time from the wake of a task to its poll, including the time that the loop took to deliver
    /// events. It counts from the last reading of the clock before the wake: the return from the
    /// kernel, or the start of the poll that woke the task.
    pub wake_to_poll: Histogram,
    /// Number of polls that took at least as long as [`slow_poll`](crate::Builder::slow_poll).
    pub slow_polls: u64,
    /// The last 16 slow polls, oldest first.
    pub last_slow_polls: Vec<SlowPoll>,
}

/// A poll that took at least as long as [`slow_poll`](crate::Builder::slow_poll).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowPoll {
    /// The place that spawned the task; `None` for the future that `block_on` runs.
    pub spawned_at: Option<&'static Location<'static>>,
    /// Duration of the poll.
    pub took: Duration,
    /// When the poll ended, as time since the runtime was built, like
    /// [`Stats::uptime`].
    pub ended: Duration,
}

impl fmt::Display for SlowPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spawned_at {
            Some(place) => write!(f, "the task spawned at {}:{}", place.file(), place.line())?,
            None => f.write_str("the future of block_on")?,
        }
        write!(f, " held the loop for {:?}", self.took)
    }
}
