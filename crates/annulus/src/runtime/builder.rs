//! The settings of a runtime.

use super::Runtime;
use super::choice::DriverChoice;
use super::core::{Core, Inner};
use super::zero_copy_receive::{self, ZeroCopyReceive};
use crate::blocking::{Blocking, Limits, Lookup, Pool, Resolver};
use crate::errors::with_text;
use crate::file_policy::{InlinePolicy, Policy};
use crate::fork_guard::ForkGuard;
use crate::memory::{Memory, MemoryLimit, StreamBounds};
use crate::slots::loop_state::{Bounds, LoopState};
use crate::tasks::EVENT_INTERVAL;
use crate::tasks::budget;
use crate::tasks::remote::Remote;
use annulus_driver::{Driver, PoolSize, UringConfig};
use annulus_kernel::Kernel;
use annulus_ring::{SetupFlags, deny_setup};
use std::io;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The longest busy poll or minimum wait. Polling for longer would only waste a core, and waiting
/// for longer only delay what has arrived.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Settings of a runtime. Each has a default that suits a network server. A switch is a `bool`. A
/// value that may be absent is an `Option`, and `None` turns it off.
#[derive(Clone)]
pub struct Builder {
    choice: DriverChoice,
    /// The kernel, the sizes of the ring and of the stream buffers, and the settings that only
    /// io_uring has.
    config: UringConfig,
    /// Undelivered and unsent bytes that a stream may hold while all streams together hold little.
    stream_bounds: StreamBounds,
    bounds: Bounds,
    shutdown_timeout: Duration,
    /// Whether file calls are made inline or off the loop, unless a file has its own policy.
    file_policy: Policy,
    datagrams: PoolSize,
    memory: LimitChoice,
    task_budget: u32,
    event_interval: u32,
    blocking: Limits,
    measures: bool,
    /// If set, every turn is timed, and polls that take at least this long are recorded separately.
    slow_poll: Option<Duration>,
    /// Resolves host names in place of the system's resolver.
    resolver: Option<Arc<Lookup>>,
}

#[derive(Clone)]
enum LimitChoice {
    OfProcess,
    Given(Option<MemoryLimit>),
}

impl LimitChoice {
    /// Returns the limit to use. A simulated kernel has no limit unless one is given, because its
    /// runs must not depend on the machine.
    fn limit(&self, is_real: bool) -> io::Result<Option<MemoryLimit>> {
        match self {
            Self::OfProcess => Ok(is_real.then(MemoryLimit::of_process)),
            Self::Given(None) => Ok(None),
            Self::Given(Some(limit)) => {
                if is_real { limit.check() } else { limit.check_least() }?;
                Ok(Some(limit.clone()))
            }
        }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            choice: DriverChoice::Auto,
            config: UringConfig::default(),
            stream_bounds: StreamBounds { receive: 256 * 1024, send: 256 * 1024 },
            bounds: Bounds {
                zero_copy_threshold: None,
                splice_threshold: 128 * 1024,
                linger: Duration::from_secs(10),
            },
            shutdown_timeout: Duration::from_secs(5),
            file_policy: Policy::default(),
            datagrams: PoolSize { buffer: 68 * 1024, count: 1024 },
            memory: LimitChoice::OfProcess,
            task_budget: budget::DEFAULT_TASK_BUDGET,
            event_interval: EVENT_INTERVAL,
            blocking: Limits::default(),
            measures: false,
            slow_poll: None,
            resolver: None,
        }
    }
}

impl Builder {
    /// Sets the driver. [`DriverChoice::Auto`] by default. Under a simulated kernel both drivers
    /// work, and the environment variable `ANNULUS_DRIVER` is ignored.
    pub fn driver(mut self, choice: DriverChoice) -> Self {
        self.choice = choice;
        self
    }

    /// Sets the number of submission queue entries: 1 to 32,768, 256 by default. A turn that
    /// submits more operations than that makes another system call.
    pub fn sq_entries(mut self, entries: u32) -> Self {
        self.config.sq_entries = entries;
        self
    }

    /// Sets the number of completion queue entries: 1 to 65,536, 4096 by default. An overflow loses
    /// nothing, but ends multishot operations, which are then armed again.
    pub fn cq_entries(mut self, entries: u32) -> Self {
        self.config.cq_entries = entries;
        self
    }

    /// Sets the size in bytes of the buffers that streams receive into: a multiple of 4096 up to 16
    /// MiB, 256 KiB by default. Only address space is reserved in advance: buffers take memory page
    /// by page, as recent traffic needs it.
    pub fn stream_buffer_size(mut self, bytes: u32) -> Self {
        self.config.pool.buffer = bytes;
        self
    }

    /// Sets the number of buffers that streams receive into: a power of two up to 32,768, 1024 by
    /// default. If all are in use, streams receive into heap memory.
    pub fn stream_buffer_count(mut self, count: u32) -> Self {
        self.config.pool.count = count;
        self
    }

    /// Polls for completions for up to this long before each sleep. Off by default, at most one
    /// second.
    ///
    /// If few clients each wait for a reply before they send again, 20 to 50 µs avoid most sleeps
    /// and wake-ups, but the thread then keeps a core busy. If polling finds nothing, the runtime
    /// stops polling by itself. Needs io_uring.
    pub fn busy_poll(mut self, max_wait: Duration) -> Self {
        self.config.busy_poll = max_wait;
        self
    }

    /// Makes the kernel poll the queues of network devices for up to this long before each sleep
    /// (NAPI busy polling). Off by default, at most one second.
    ///
    /// If few clients on another machine each wait for a reply before they send again, 20 to 50 µs
    /// avoid most sleeps and interrupts, but the thread then keeps a core busy. Unlike
    /// [`busy_poll`](Self::busy_poll), it also polls if that finds nothing, and has no effect on
    /// devices without NAPI, such as the loopback interface. With both, `busy_poll` comes first and
    /// leaves little to find. Needs io_uring and Linux 6.9.
    pub fn napi_busy_poll(mut self, max_wait: Duration) -> Self {
        self.config.napi_busy_poll = max_wait;
        self
    }

    /// While events arrive together, waits up to this long for eight of them before each turn. Off
    /// by default, at most one second.
    ///
    /// With many clients, 50 to 100 µs reduce the CPU time per request of a server that is not fully
    /// loaded, because more requests share a system call and a wake-up. Each event waits for up to
    /// this long: replies take longer, and so do wakes from other threads, but timers do not. A
    /// single client whose requests arrive alone is not delayed. Needs io_uring and Linux 6.12.
    pub fn min_wait(mut self, max_wait: Duration) -> Self {
        self.config.min_wait = max_wait;
        self
    }

    /// Sends chunks of at least this many bytes without copying them (`SEND_ZC`, `SENDMSG_ZC`). Off
    /// by default. Needs io_uring and Linux 6.1.
    ///
    /// The device reads the memory of such a send, so its leases and buffers are freed only once
    /// the peer has acknowledged the bytes. A dropped stream waits for that within
    /// [`linger`](Self::linger), a dropped runtime within
    /// [`shutdown_timeout`](Self::shutdown_timeout); then the connection is reset. The kernel still
    /// copies on the loopback interface, for sockets that are not TCP, and if lockable memory is
    /// short (`ulimit -l`): see
    /// [`Counters::zero_copy_copied`](crate::stats::Counters::zero_copy_copied). Sending fewer than
    /// a few kilobytes without a copy costs more than it saves, so measure it on your network.
    pub fn zero_copy_threshold(mut self, bytes: Option<usize>) -> Self {
        self.bounds.zero_copy_threshold = bytes;
        self.config.zero_copy = bytes.is_some();
        self
    }

    /// Receives from TCP sockets into memory that the network stack owns (`RECV_ZC`): each
    /// [`Lease`](crate::Lease) is a piece of it, and the drop of the lease returns the piece.
    /// Programs need no change. `None`, the default, receives as usual.
    ///
    /// Needs io_uring, `CAP_NET_ADMIN`, and the kernel that [`ZeroCopyReceive`] mentions; building
    /// the runtime fails otherwise. The memory is locked, and does not count against the [memory
    /// limit](Self::memory_limit). Leases that are kept take whole pages of it, so they are copied
    /// out once three quarters of it are lent. Sockets other than TCP, and those that the kernel
    /// refuses, receive as usual.
    /// [`Counters::zero_copy_receives`](crate::stats::Counters::zero_copy_receives) counts the
    /// pieces.
    pub fn zero_copy_receive(mut self, memory: Option<ZeroCopyReceive>) -> Self {
        self.config.receive_area = memory.map(|memory| memory.0);
        self
    }

    /// Sets the receive size from which copies between two sockets
    /// ([`io::copy`](crate::io::copy()), [`copy_bidirectional`](crate::io::copy_bidirectional)) go
    /// through a kernel pipe instead of through the process. A copy switches to a pipe after four
    /// consecutive receives of at least this many bytes, and back after four consecutive receives
    /// of less than half of that. 128 KiB by default; `None` disables pipes.
    ///
    /// A pipe takes two descriptors, until the runtime frees unneeded resources: ten seconds after
    /// the last receive. A runtime has at most 64 pipes; further copies go through the process. A
    /// pipe may hold up to 1 MiB of its connection in kernel memory, regardless of
    /// [`unsent_limit`](Self::unsent_limit). The sockets become non-blocking.
    /// [`Counters::spliced_bytes`](crate::stats::Counters::spliced_bytes) counts the bytes moved
    /// this way. A simulated kernel does not use pipes.
    pub fn splice_threshold(mut self, bytes: Option<usize>) -> Self {
        self.bounds.splice_threshold = bytes.unwrap_or(usize::MAX);
        self
    }

    /// Sets the size in bytes of the buffers that datagrams are received into, one per datagram: a
    /// multiple of 4096 up to 16 MiB. 68 KiB by default, so that the largest UDP datagram fits
    /// together with its address and control messages. The buffers are reserved when the first
    /// datagram socket is created.
    pub fn datagram_buffer_size(mut self, bytes: u32) -> Self {
        self.datagrams.buffer = bytes;
        self
    }

    /// Sets the number of buffers that datagrams are received into: a power of two up to 32,768,
    /// 1024 by default.
    pub fn datagram_buffer_count(mut self, count: u32) -> Self {
        self.datagrams.count = count;
        self
    }

    /// Sets the number of unread bytes at which a stream stops receiving. 256 KiB by default. The
    /// last receive may exceed it, so a stream holds at most about twice this number. Receive
    /// buffers are no larger than this, rounded up to a multiple of 4096. Once the runtime's
    /// sockets together hold more than 6 MiB, or half of the memory limit if that is less, the
    /// bound is at most 16 KiB until they hold much less. Even many peers whose data is not read use
    /// little memory.
    pub fn unread_limit(mut self, bytes: usize) -> Self {
        self.stream_bounds.receive = bytes;
        self
    }

    /// Sets the maximum number of queued bytes per stream that wait for the kernel; beyond that
    /// `send` waits. 256 KiB by default. Once the runtime's sockets together hold more than 6 MiB,
    /// or half of the memory limit if that is less, the bound is at most 4 KiB for a stream whose
    /// peer does not read.
    pub fn unsent_limit(mut self, bytes: usize) -> Self {
        self.stream_bounds.send = bytes;
        self
    }

    /// Sets the maximum number of bytes that all streams and datagram sockets together may hold, in
    /// this runtime and all others that share the limit. `None` means no limit.
    /// [`MemoryLimit::of_process`] by default, no limit on a simulated kernel.
    pub fn memory_limit(mut self, limit: Option<MemoryLimit>) -> Self {
        self.memory = LimitChoice::Given(limit);
        self
    }

    /// Sets how long a dropped stream may take to send its queue before it is reset. 10 s by
    /// default.
    ///
    /// The same limit applies to how long the stream's descriptor may stay open until a TCP peer
    /// has acknowledged everything: if the descriptor were closed earlier, arriving bytes would
    /// reset the connection, and the peer would lose the bytes in transit. Arriving bytes are
    /// dropped, up to 4 MiB. Once the peer has acknowledged everything, the stream waits for the
    /// peer's end of stream for at most a second, and only if the peer continues to send or the
    /// stream was shut down.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.bounds.linger = linger;
        self
    }

    /// Sets how long a dropped runtime may take to send queued bytes before it resets the
    /// connections, and to write the bytes that a [`FileStream`](crate::fs::FileStream) has queued.
    /// The rest of the time goes to [blocking calls](crate::task::spawn_blocking) that have begun,
    /// but not to look-ups of host names. 5 s by default.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Sets whether file calls are made inline or off the loop; [`Policy::Adaptive`] by default.
    /// [`OpenOptions::policy`](crate::fs::OpenOptions::policy) overrides it for a file.
    pub fn file_policy(mut self, policy: Policy) -> Self {
        self.file_policy = policy;
        self
    }

    /// Runs the runtime on a kernel other than Linux. For `annulus::sim` and tests; not part of the
    /// public API.
    ///
    /// The trait is sealed in `annulus-kernel`, so that safe code can neither implement nor misuse
    /// it. This crate exports neither the trait nor its implementation for Linux:
    ///
    /// ```compile_fail,E0432
    /// #![forbid(unsafe_code)]
    /// use annulus::ring::{Kernel, Linux};
    /// use std::os::fd::AsRawFd;
    ///
    /// let file = std::fs::File::open("/dev/null")?;
    /// Linux.close(file.as_raw_fd());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn kernel(mut self, kernel: Rc<dyn Kernel>) -> Self {
        self.config.kernel = kernel;
        self
    }

    /// Sets up the ring without these flags, as on an older kernel. For tests; not part of the
    /// public API.
    #[doc(hidden)]
    pub fn without(mut self, flags: SetupFlags) -> Self {
        self.config.without = flags;
        self
    }

    /// Locks down io_uring: the ring accepts only the operations that the runtime needs, and once
    /// this runtime is built, the process and its children are permanently denied `io_uring_setup`.
    /// Off by default.
    ///
    /// In a process with several runtimes, lock down the one that is built last: later ones get no
    /// ring, and cannot detect the features of the kernel's io_uring.
    /// [`Shards`](crate::shards::Shards) do this automatically.
    pub fn locked_down(mut self, locked: bool) -> Self {
        self.config.restricted = locked;
        self
    }

    /// Sets the maximum number of ready operations, such as channel values, locks, permits and
    /// expired timers, that a task may complete before other tasks run. 128 by default; at least 1.
    pub fn task_budget(mut self, operations: u32) -> Self {
        self.task_budget = operations;
        self
    }

    /// Sets the maximum number of task polls before the loop checks for events, while tasks are
    /// ready and nothing is queued for the kernel. 61 by default; at least 1. With a lower number
    /// events wait less, at the cost of more system calls. If more than 16 tasks are ready, the
    /// loop also checks after about 250 µs. Queued operations, such as sends, start at the end of
    /// each turn in any case.
    pub fn event_interval(mut self, polls: u32) -> Self {
        self.event_interval = polls;
        self
    }

    /// Sets the maximum number of threads in the pool for blocking calls:
    /// [`spawn_blocking`](crate::task::spawn_blocking) and name look-ups. 512 by default; at least
    /// 1. Threads start when they are needed. The calls of [`fs`](crate::fs) do not count.
    pub fn blocking_threads(mut self, most: usize) -> Self {
        self.blocking.threads = most;
        self
    }

    /// Sets how long a thread of the pool for blocking calls stays idle before it ends. 10 s by
    /// default.
    pub fn blocking_keep_alive(mut self, keep_alive: Duration) -> Self {
        self.blocking.keep_alive = keep_alive;
        self
    }

    /// Records histograms of how long turns and polls take and how long woken tasks wait, for
    /// [`Stats::timings`](crate::stats::Stats::timings). Off by default. The histograms cover the
    /// two turns every 100 ms that the [flight recorder](crate::stats::Trace) times in any case, so
    /// other turns cost nothing extra. With [`slow_poll`](Self::slow_poll) they cover all turns.
    /// `false` also removes that limit.
    pub fn measure(mut self, measures: bool) -> Self {
        self.measures = measures;
        self.slow_poll = self.slow_poll.filter(|_| measures);
        self
    }

    /// Counts task polls that take at least this long, which keep other tasks waiting, and records
    /// the latest of them with the places where their tasks were spawned:
    /// [`Stats::timings`](crate::stats::Stats::timings). With the feature `tracing`, each also
    /// emits a warning.
    ///
    /// `None`, the default, means no limit. Otherwise all turns are [measured](Self::measure), the
    /// clock is read once per poll, and all turns are in the [trace](crate::stats::Trace), which
    /// then covers a shorter time. A poll that never returns is not detected, because nothing else
    /// runs then, and [`Handle::stats`](crate::Handle::stats) is not answered.
    pub fn slow_poll(mut self, limit: Option<Duration>) -> Self {
        self.slow_poll = limit;
        self
    }

    /// Sets the resolver of host names, for [`lookup_host`](crate::net::lookup_host) and everything
    /// that takes `"host:port"`; by default the system's. `resolver` may block: it is called on a
    /// thread of the pool for [blocking calls](crate::task::spawn_blocking). On a simulated kernel
    /// it is called on the loop. Without a resolver, the simulated network knows only the name
    /// `localhost`.
    ///
    /// ```
    /// # use annulus::{Runtime, net};
    /// let hosts = |name: &str| match name {
    ///     "db.internal" => Ok(vec![std::net::Ipv4Addr::LOCALHOST.into()]),
    ///     _ => Err(std::io::Error::new(std::io::ErrorKind::NotFound, "no such host")),
    /// };
    /// let mut runtime = Runtime::builder().resolver(hosts).build()?;
    /// runtime.block_on(async {
    ///     assert_eq!(net::lookup_host("db.internal:5432").await?.count(), 1);
    ///     let error = net::lookup_host("elsewhere:1").await.map(drop).unwrap_err();
    ///     assert_eq!(error.to_string(), "looking up \"elsewhere\": no such host");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn resolver(
        mut self,
        resolver: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// Builds the runtime on this thread.
    ///
    /// # Errors
    /// If the driver cannot be set up (the error has the reason and a remedy), if the value of
    /// `ANNULUS_DRIVER` is not a driver, if a setting is out of range, or if the process cannot be
    /// locked down.
    pub fn build(self) -> io::Result<Runtime> {
        let restricted = self.config.restricted;
        let runtime = self.build_unsealed()?;
        if restricted {
            deny_further_rings(&*runtime.core.kernel)?;
        }
        Ok(runtime)
    }

    /// Like [`build`](Self::build), but does not yet deny further rings to the process.
    pub(crate) fn build_unsealed(self) -> io::Result<Runtime> {
        self.check()?;
        let (driver, info) = self.choice.open(self.driver_config())?;
        let core = self.core(driver)?;
        Ok(Runtime {
            core: Rc::new(core),
            info,
            shutdown_timeout: self.shutdown_timeout,
            _stays_here: PhantomData,
        })
    }

    /// Returns the driver's configuration. Buffers are no larger than the unread limit (rounded up
    /// to whole pages), because a limited receive may still fill its last buffer. The limit has
    /// been [checked](Self::check).
    fn driver_config(&self) -> UringConfig {
        let mut config = self.config.clone();
        let limit = self.stream_bounds.receive.next_multiple_of(4096) as u32;
        config.pool.buffer = config.pool.buffer.min(limit);
        config
    }

    pub(crate) fn is_locked_down(&self) -> bool {
        self.config.restricted
    }

    fn check(&self) -> io::Result<()> {
        check_pool("stream", self.config.pool)?;
        check_pool("datagram", self.datagrams)?;
        let bounds = self.stream_bounds;
        let waits = [
            ("busy_poll", self.config.busy_poll),
            ("napi_busy_poll", self.config.napi_busy_poll),
            ("min_wait", self.config.min_wait),
        ];
        if let Some((name, wait)) = waits.into_iter().find(|(_, wait)| *wait > MAX_WAIT) {
            let text = format!("{name} of {wait:?} is above {MAX_WAIT:?}; use less");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let above =
            format!("unread_limit of {} bytes is above {}; use less", bounds.receive, i32::MAX);
        let faults = [
            (self.task_budget == 0, "task_budget of 0 would stop every task; use at least 1"),
            (self.event_interval == 0, "event_interval of 0 would stop every task; use at least 1"),
            (
                self.blocking.threads == 0,
                "blocking_threads of 0 would prevent every blocking call; use at least 1",
            ),
            (
                self.slow_poll == Some(Duration::ZERO),
                "slow_poll of 0 would count every poll as slow; use at least 1 ns, or measure(true)",
            ),
            (bounds.receive > i32::MAX as usize, &*above),
            (
                bounds.receive == 0,
                "unread_limit of 0 would stop all receiving; use at least 1 byte",
            ),
            (bounds.send == 0, "unsent_limit of 0 would stop all sending; use at least 1 byte"),
        ];
        match faults.into_iter().find(|(is_fault, _)| *is_fault) {
            Some((_, text)) => Err(io::Error::new(io::ErrorKind::InvalidInput, text)),
            None => zero_copy_receive::check(&self.config),
        }
    }

    fn resolver_for(&self, is_real: bool) -> Resolver {
        match &self.resolver {
            Some(lookup) => Resolver::Given(lookup.clone()),
            None if is_real => Resolver::System,
            None => Resolver::Simulated,
        }
    }

    fn core(&self, mut driver: Driver) -> io::Result<Core> {
        let is_real = driver.kernel().real_descriptors();
        let limit = self.memory.limit(is_real)?;
        let remote = Remote::new(is_real, limit.clone())?;
        let guard = ForkGuard::new()?;
        let memory = Memory::new(limit, self.stream_bounds);
        driver.set_budget(memory.first_budget());
        let mut bounds = self.bounds;
        if self.config.receive_area.is_some_and(|area| area.queue.is_some()) {
            // Neither can a pipe take packets that a device has put in the program's memory.
            bounds.splice_threshold = usize::MAX;
        }
        let mut inner = Inner::new(LoopState::new(driver, bounds, memory), self.datagrams);
        if let Some(wake_fd) = remote.wake_fd() {
            inner.wake_poll = Some(inner.polls.add_wake(&mut inner.state, wake_fd));
        }
        let inline_policy = InlinePolicy::new(self.file_policy, is_real);
        let blocking =
            Blocking { pool: Pool::new(self.blocking), resolver: self.resolver_for(is_real) };
        let measuring = (self.measures, self.slow_poll);
        let core = Core::new(inner, Arc::new(remote), inline_policy, blocking, guard, measuring);
        core.run_queue.task_budget.set(self.task_budget);
        core.run_queue.event_interval.set(self.event_interval);
        Ok(core)
    }
}

/// Checks the size that was set for the stream pool or the datagram pool.
///
/// # Errors
/// `InvalidInput`, with the name of the setting, if the size is invalid.
fn check_pool(pool: &str, size: PoolSize) -> io::Result<()> {
    let text = if !size.is_buffer_valid() {
        let bytes = size.buffer;
        format!("{pool}_buffer_size of {bytes} is invalid; use a multiple of 4096 up to 16 MiB")
    } else if !size.is_count_valid() {
        let count = size.count;
        format!("{pool}_buffer_count of {count} is invalid; use a power of two up to 32768")
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Makes the kernel refuse `io_uring_setup` to this process from now on. Does nothing under a
/// simulated kernel.
pub(crate) fn deny_further_rings(kernel: &dyn Kernel) -> io::Result<()> {
    if !kernel.real_descriptors() {
        return Ok(());
    }
    deny_setup().map_err(|error| {
        let text = format!(
            "locked_down: io_uring_setup cannot be denied: {error}; run on a kernel with seccomp filters, or leave locked_down off"
        );
        with_text(error, text)
    })
}
