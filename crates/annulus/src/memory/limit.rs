//! A limit on the memory of streams and datagram sockets in one or several runtimes.

use super::machine;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Maximum difference between the bytes that a runtime holds and those that it has reported, so
/// that runtimes rarely write to shared memory.
const REPORT_STEP_BYTES: usize = 64 * 1024;

/// A limit on the bytes that runtimes hold for their streams and datagram sockets. Any number of
/// runtimes and threads can share it. Clones share the same limit.
///
/// The limit counts the pools' buffers, as far as receives have filled them; received bytes that no
/// task has taken; leases that own heap memory, wherever they are; bytes that are queued to be
/// sent; and datagrams in both directions. Shared bytes count once for each stream that sends them.
/// The limit does not count files, memory that tasks allocate, the runtime's own state of about 2
/// KiB per connection, or the memory that the kernel holds for sockets.
///
/// One limit for the runtimes of two threads:
///
/// ```
/// use annulus::{MemoryLimit, Runtime};
///
/// let limit = MemoryLimit::new(64 << 20);
/// limit.check()?; // The error says what would be accepted.
/// let run = |limit: MemoryLimit| {
///     Runtime::builder().memory_limit(Some(limit)).build()?.block_on(async { /* serve */ });
///     std::io::Result::Ok(())
/// };
/// let other = std::thread::spawn({
///     let limit = limit.clone();
///     move || run(limit)
/// });
/// run(limit.clone())?;
/// other.join().unwrap()?;
/// assert_eq!(limit.held(), 0);
/// # std::io::Result::Ok(())
/// ```
///
/// # Near the limit
/// As memory use approaches the limit, each stream may hold less: an eighth of the memory that is
/// still free below three quarters of the limit. Undelivered and unsent bytes count together. A
/// stream that holds more receives only while it has no undelivered bytes, and its sends wait. So
/// the streams that hold most stop first, and the others continue. The last quarter is for streams
/// that hold little: up to 8 KiB each. Beyond the limit, a stream that holds nothing still advances
/// one step at a time. Nothing is lost.
///
/// So the memory held exceeds the limit by at most 4 KiB of received bytes and one chunk of the
/// program per stream, plus the buffers that the kernel always has: 16 of 4 KiB, and for datagrams
/// 4 of full size.
#[derive(Clone)]
pub struct MemoryLimit(Arc<LimitState>);

struct LimitState {
    bytes: usize,
    source: String,
    /// The bytes that runtimes have reported as held.
    held: AtomicUsize,
    /// Number of paused streams in these runtimes.
    streams_paused: AtomicUsize,
}

impl MemoryLimit {
    /// The minimum limit that a runtime accepts: 1 MiB.
    pub const MIN: usize = 1 << 20;

    /// The [source](Self::source) of a limit that the program gave.
    pub const GIVEN: &'static str = "as given";

    /// Creates a limit of `bytes` bytes. [`check`](Self::check) verifies that a runtime accepts it.
    pub fn new(bytes: usize) -> Self {
        Self::of(bytes, Self::GIVEN.into())
    }

    /// Checks that a runtime accepts the limit, as [`Builder::build`](crate::Builder::build) does.
    /// On a simulated kernel, the builder only checks the minimum.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the limit is below [`MIN`](Self::MIN) or above what the
    /// process may use.
    pub fn check(&self) -> io::Result<()> {
        self.check_with(machine::memory)
    }

    pub(crate) fn check_least(&self) -> io::Result<()> {
        self.check_with(|| (usize::MAX, String::new()))
    }

    fn check_with(&self, most: impl FnOnce() -> (usize, String)) -> io::Result<()> {
        let (bytes, least) = (self.bytes(), Self::MIN);
        if bytes < least {
            let text = format!(
                "a memory limit of {bytes} bytes is below the minimum of {least} bytes; set a higher limit, or none"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (most, what) = most();
        if bytes > most.max(least) {
            let text = format!(
                "a memory limit of {bytes} bytes is above {what} ({most} bytes); set a lower limit, or none"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    /// Returns the limit that all runtimes of this process share by default: a quarter of the
    /// memory that the process may use. The process may use the machine's memory, or less if its
    /// control group or one of that group's ancestors has a lower limit (`memory.max` and
    /// `memory.high`, or `memory.limit_in_bytes`). The limit is determined on the first call.
    ///
    /// The rest is for the program and for the memory that the kernel holds for sockets. The latter
    /// counts in a control group too. It is bounded by `net.ipv4.tcp_rmem` and `tcp_wmem` for each
    /// socket, and by `tcp_mem` for all sockets.
    pub fn of_process() -> Self {
        static PROCESS: OnceLock<MemoryLimit> = OnceLock::new();
        let limit = || {
            let (bytes, source) = machine::memory();
            Self::of((bytes / 4).max(Self::MIN), format!("a quarter of {source}"))
        };
        PROCESS.get_or_init(limit).clone()
    }

    fn of(bytes: usize, source: String) -> Self {
        let [held, streams_paused] = Default::default();
        Self(Arc::new(LimitState { bytes, source, held, streams_paused }))
    }

    /// Returns the limit in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Describes where the limit comes from.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Returns the bytes that the runtimes hold, as reported in their last turns. The result may be
    /// off by up to 64 KiB per runtime.
    #[inline]
    pub fn held(&self) -> usize {
        self.0.held.load(Relaxed)
    }

    /// Returns the number of paused streams. These hold more than the free memory allows, so they
    /// wait before they receive or queue more.
    pub fn streams_paused(&self) -> usize {
        self.0.streams_paused.load(Relaxed)
    }

    pub(crate) fn add_paused(&self) {
        self.0.streams_paused.fetch_add(1, Relaxed);
    }

    pub(crate) fn sub_paused(&self, count: usize) {
        self.0.streams_paused.fetch_sub(count, Relaxed);
    }

    /// Reports that a runtime holds `held` bytes and updates `reported`, its last report. Returns
    /// the bytes that all runtimes hold.
    #[inline]
    pub(crate) fn report(&self, reported: &mut usize, held: usize) -> usize {
        let change = held.wrapping_sub(*reported);
        // The change is an increase of less than one step, or a decrease of at most one step.
        if change.wrapping_add(REPORT_STEP_BYTES) < 2 * REPORT_STEP_BYTES {
            return self.held().wrapping_add(change);
        }
        *reported = held;
        self.0.held.fetch_add(change, Relaxed).wrapping_add(change)
    }

    /// Removes the last report of a runtime that has ended.
    pub(crate) fn end(&self, reported: usize) {
        self.0.held.fetch_sub(reported, Relaxed);
    }
}

impl fmt::Debug for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryLimit({} of {} bytes, {})", self.held(), self.bytes(), self.source())
    }
}
