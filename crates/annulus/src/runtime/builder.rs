//! Building a runtime.

use super::Runtime;
use super::choice::DriverChoice;
use super::core::Core;
use super::inner::Inner;
use super::io::{Bounds, Io};
use super::lockdown::deny_further_rings;
use crate::fs::{InlinePolicy, Policy};
use crate::runtime::fork::ForkGuard;
use crate::runtime::memory::{Memory, MemoryLimit};
use crate::runtime::remote::Remote;
use crate::task::budget;
use annulus_driver::{Driver, Operations, PoolSize, UringConfig};
use annulus_kernel::Kernel;
use annulus_ring::{SetupFlags, SqPoll};
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longer ones would take a whole core.
const LONGEST_BUSY_POLL: Duration = Duration::from_secs(1);

/// Settings of a runtime. Each has a default that suits a network server.
#[derive(Clone)]
pub struct Builder {
    choice: DriverChoice,
    config: UringConfig,
    bounds: Bounds,
    shutdown_timeout: Duration,
    file_policy: Policy,
    datagrams: PoolSize,
    memory: LimitChoice,
    task_budget: u32,
}

/// Which memory limit.
#[derive(Clone)]
enum LimitChoice {
    OfProcess,
    Given(Option<MemoryLimit>),
}

impl LimitChoice {
    /// A simulation has none unless it is given: what the machine has must not change its run.
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
            bounds: Bounds {
                receive: 256 * 1024,
                send: 256 * 1024,
                lend: None,
                linger: Duration::from_secs(10),
            },
            shutdown_timeout: Duration::from_secs(5),
            file_policy: Policy::default(),
            datagrams: PoolSize { buffer: 68 * 1024, count: 1024 },
            memory: LimitChoice::OfProcess,
            task_budget: budget::DEFAULT,
        }
    }
}

impl Builder {
    /// Which driver. [`DriverChoice::Auto`] by default.
    pub fn driver(mut self, choice: DriverChoice) -> Self {
        self.choice = choice;
        self
    }

    /// Entries of the submission queue: 1 to 32,768, 256 by default. More operations than that in one turn cost one
    /// system call more.
    pub fn sq_entries(mut self, entries: u32) -> Self {
        self.config.sq_entries = entries;
        self
    }

    /// Entries of the completion queue: 1 to 65,536, 4096 by default. Overflow loses nothing, but ends multishot
    /// operations, which are then armed anew.
    pub fn cq_entries(mut self, entries: u32) -> Self {
        self.config.cq_entries = entries;
        self
    }

    /// Receive memory: bytes a buffer (a multiple of 4096) and the most buffers (a power of two up to 32,768). 256 KiB ×
    /// 1024 by default. The range is reserved, and takes memory page by page, only as far as recent traffic needs it.
    pub fn recv_buffers(mut self, size: u32, count: u32) -> Self {
        self.config.pool = PoolSize { buffer: size, count };
        self
    }

    /// Which operations carry the bytes of streams. The default is the fastest; the others are there to be compared, and
    /// need io_uring.
    pub fn operations(mut self, operations: Operations) -> Self {
        self.config.operations = operations;
        self
    }

    /// Has a kernel thread take the submissions, which costs a core while there is work and for the idle time after it.
    /// Off by default: it pays only while cores are idle, and costs throughput otherwise. Needs io_uring.
    pub fn sq_poll(mut self, polls: SqPoll) -> Self {
        self.config.sq_poll = Some(polls);
        self
    }

    /// Polls for completions for up to this long before each sleep, while that pays: off by default, at most a second.
    ///
    /// If requests come one by one and each is waited for, 20 to 50 µs save the sleep and the wake-up of most. While
    /// it pays, the thread takes a whole core; if nothing comes in time, it stops by itself. Needs io_uring.
    pub fn busy_poll(mut self, upto: Duration) -> Self {
        self.config.busy_poll = upto;
        self
    }

    /// Sends at least this many bytes at once without copying them (`SEND_ZC`, `SENDMSG_ZC`); off by default.
    ///
    /// The kernel then reads the memory when the device wants it, and the leases and buffers of such a send come back only
    /// when the peer has acknowledged them. A dropped stream stays for that, within the linger; the runtime's end waits
    /// within the shutdown timeout; both reset the connection afterwards. On the loopback, towards sockets that are not TCP, and if
    /// the system is short of lockable memory (`ulimit -l`) it is copied all the same, which `Counters` tell. Measure it on
    /// the network that it is for: below some kilobytes it costs more than it saves. Needs io_uring, Linux 6.1.
    pub fn zero_copy_above(mut self, bytes: Option<usize>) -> Self {
        self.bounds.lend = bytes;
        self.config.zero_copy = bytes.is_some();
        self
    }

    /// Receive memory of datagram sockets, one buffer a datagram: bytes a buffer and the most buffers, as for
    /// [`recv_buffers`](Self::recv_buffers). 68 KiB × 1024 by default, so that the largest UDP datagram fits with what comes beside
    /// it; the range is reserved with the first datagram socket, and takes memory only as far as datagrams fill it.
    pub fn datagram_buffers(mut self, size: u32, count: u32) -> Self {
        self.datagrams = PoolSize { buffer: size, count };
        self
    }

    /// Most bytes a stream receives ahead of its reader, and one buffer more; 256 KiB by default. Buffers are no larger.
    pub fn receive_bound(mut self, bytes: u32) -> Self {
        self.bounds.receive = bytes;
        self
    }

    /// Accepted and unsent bytes a stream beyond which a send waits; 256 KiB by default.
    pub fn send_bound(mut self, bytes: usize) -> Self {
        self.bounds.send = bytes;
        self
    }

    /// How many bytes may be held for all streams and datagram sockets together, by this runtime and all others that share
    /// the limit; `None` is no limit. [`MemoryLimit::of_process`] by default, and none on a simulated kernel.
    pub fn memory_limit(mut self, limit: impl Into<Option<MemoryLimit>>) -> Self {
        self.memory = LimitChoice::Given(limit.into());
        self
    }

    /// How long a dropped stream may go on sending what it had accepted; 10 s by default.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.bounds.linger = linger;
        self
    }

    /// How long the runtime's end may take to send what streams had accepted; 5 s by default.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Where calls on files are made; [`Policy::Adaptive`] by default. A file's own
    /// [`OpenOptions::policy`](crate::fs::OpenOptions::policy) comes first.
    pub fn file_policy(mut self, policy: Policy) -> Self {
        self.file_policy = policy;
        self
    }

    /// Runs the runtime on another kernel than Linux. For `annulus::sim`, and for tests: not part of what this crate promises.
    ///
    /// The kernel is `annulus-kernel`'s, which safe code can neither implement nor misuse; this crate exports neither that nor
    /// Linux behind it:
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

    /// Sets the ring up without these flags, as an older kernel would. For tests.
    #[doc(hidden)]
    pub fn without(mut self, flags: SetupFlags) -> Self {
        self.config.without = flags;
        self
    }

    /// Locks io_uring down: the ring may do only what the runtime itself submits, and once this runtime is built,
    /// `io_uring_setup` is denied to the whole process and its children, for good. Off by default.
    ///
    /// Of several runtimes in a process, lock down the last one that is built: later ones get no ring
    /// ([`Shards`](crate::shards::Shards) see to it themselves). Asking the kernel what its io_uring offers takes a ring, too.
    pub fn locked_down(mut self, locked: bool) -> Self {
        self.config.restricted = locked;
        self
    }

    /// How many operations that are ready at once a task may complete before the other tasks have their turn: values of a channel,
    /// locks, permits, timers that are due. 128 by default; at least 1.
    pub fn task_budget(mut self, operations: u32) -> Self {
        self.task_budget = operations;
        self
    }

    /// Builds the runtime on this thread.
    ///
    /// # Errors
    /// If the driver cannot be set up, with the reason and the way out; if `ANNULUS_DRIVER` names none that exists; if a
    /// bound is zero; or if the process cannot be locked down.
    pub fn build(self) -> io::Result<Runtime> {
        let restricted = self.config.restricted;
        let runtime = self.build_unsealed()?;
        if restricted {
            deny_further_rings(&*runtime.core.kernel)?;
        }
        Ok(runtime)
    }

    /// As [`build`](Self::build), but does not yet deny further rings to the process.
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

    /// The last buffer of a limited receive is not cut, so a small bound needs small buffers.
    fn driver_config(&self) -> UringConfig {
        let mut config = self.config.clone();
        config.pool.buffer = config.pool.buffer.min(self.bounds.receive.next_multiple_of(4096));
        config
    }

    /// Whether [`locked_down`](Self::locked_down) was asked for.
    pub(crate) fn is_locked_down(&self) -> bool {
        self.config.restricted
    }

    fn not_above(&self, what: &str, given: Duration, most: Duration) -> io::Result<()> {
        if given <= most {
            return Ok(());
        }
        let text = format!("{what} of {given:?} is above {most:?}; take less");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    fn check(&self) -> io::Result<()> {
        self.not_above("busy_poll", self.config.busy_poll, LONGEST_BUSY_POLL)?;
        let idle = self.config.sq_poll.map_or(Duration::ZERO, |polls| polls.idle);
        self.not_above("the idle time of sq_poll", idle, SqPoll::MOST_IDLE)?;
        if self.task_budget == 0 {
            let text = "task_budget of 0 would let no task go on; take at least 1";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let zero =
            [("receive_bound", self.bounds.receive == 0), ("send_bound", self.bounds.send == 0)];
        if self.bounds.receive > i32::MAX as u32 {
            let text = format!("receive_bound of {} is above {}", self.bounds.receive, i32::MAX);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            None => Ok(()),
            Some((name, _)) => {
                let text = format!("{name} of 0 would let nothing through; take at least 1 byte");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }

    fn core(&self, mut driver: Driver) -> io::Result<Core> {
        let is_real = driver.kernel().real_descriptors();
        let limit = self.memory.limit(is_real)?;
        let remote = Remote::new(is_real, limit.clone())?;
        let guard = ForkGuard::new()?;
        let memory = Memory::new(limit, self.bounds.send);
        driver.set_budget(memory.first_budget());
        let mut inner = Inner::new(Io::new(driver, self.bounds, memory), self.datagrams);
        if let Some(wake_fd) = remote.wake_fd() {
            inner.polls.add(&mut inner.io, wake_fd);
        }
        let core = Core::new(inner, Arc::new(remote), InlinePolicy::new(self.file_policy), guard);
        core.ready.set_task_budget(self.task_budget);
        Ok(core)
    }
}
