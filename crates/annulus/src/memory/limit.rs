//! A limit on the memory of streams and datagram sockets, of one runtime or of many.

use super::machine;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// How far what a runtime has reported may be from what it holds, so that runtimes write to what they share now and then only.
const GRAIN: usize = 64 * 1024;

/// How many bytes runtimes may hold for their streams and datagram sockets, over all runtimes that share this limit, on any
/// number of threads. Clones share it.
///
/// The limit counts the pools' buffers, as far as receives have filled them; received bytes that no task has taken; leases that own
/// heap memory, wherever they are; bytes queued and not sent; datagrams both ways. Bytes that are
/// shared count for each stream that is to send them. It does not count the memory of tasks themselves, about 2 KiB for each
/// connection, files, and the memory that the kernel holds for sockets.
///
/// One limit for the runtimes of two threads:
///
/// ```
/// use annulus::{MemoryLimit, Runtime};
///
/// let limit = MemoryLimit::new(64 << 20);
/// limit.check()?; // The error says what would be accepted.
/// let run = |limit: MemoryLimit| {
///     Runtime::builder().memory_limit(limit).build()?.block_on(async { /* serve */ });
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
/// # How it is reached
/// As the limit comes near, each stream is allowed to hold less: an eighth of what is still free, of three quarters of the
/// limit. A stream that holds more, undelivered and unsent bytes together, receives nothing more until it holds less, and
/// its sends wait: so those that hold most stop first, and the others go on. The last quarter is for streams that hold little:
/// 8 KiB each. Beyond the limit, a stream that holds nothing still makes one step at a time. Nothing is lost.
///
/// So what is held exceeds the limit at most by 4 KiB received and one chunk of the program's own for each stream, and by the
/// 16 buffers of 4 KiB (of datagrams 4 of their full size) that the kernel always has.
#[derive(Clone)]
pub struct MemoryLimit(Arc<Shared>);

struct Shared {
    bytes: usize,
    source: String,
    /// The bytes that runtimes have reported as held.
    held: AtomicUsize,
    /// Their streams that are paused.
    streams_paused: AtomicUsize,
}

impl MemoryLimit {
    /// The least limit that a runtime accepts: 1 MiB.
    pub const LEAST: usize = 1 << 20;

    /// The [source](Self::source) of a limit that the program gave.
    pub const GIVEN: &'static str = "as given";

    /// A limit of so many bytes. [`check`](Self::check) verifies that a runtime accepts it.
    pub fn new(bytes: usize) -> Self {
        Self::of(bytes, Self::GIVEN.into())
    }

    /// Whether a runtime accepts it; [`Builder::build`](crate::Builder::build) answers the same. On a simulated kernel, only
    /// the least limit counts.
    ///
    /// # Errors
    /// `InvalidInput` if it is below [`LEAST`](Self::LEAST), or above what the process may use at most.
    pub fn check(&self) -> io::Result<()> {
        self.check_with(machine::memory)
    }

    pub(crate) fn check_least(&self) -> io::Result<()> {
        self.check_with(|| (usize::MAX, String::new()))
    }

    fn check_with(&self, most: impl FnOnce() -> (usize, String)) -> io::Result<()> {
        let (bytes, least) = (self.bytes(), Self::LEAST);
        if bytes < least {
            let text = format!(
                "a memory limit of {bytes} bytes is below the least, {least}: give that or more"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (most, what) = most();
        if bytes > most.max(least) {
            let text = format!(
                "a memory limit of {bytes} bytes is above {what}, {most} bytes: give less, or no limit"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    /// The limit that all runtimes of this process share unless they were given another: a quarter of what the process may
    /// use at most. That is the least of the memory of the machine and the limits of the process's control group and all
    /// above it (`memory.max` and `memory.high`, or `memory.limit_in_bytes`) when this is first called.
    ///
    /// The rest is for the program, and for what the kernel holds for sockets: that counts in a control group, too, and is
    /// bounded by `net.ipv4.tcp_rmem` and `tcp_wmem` for each socket and by `tcp_mem` for all.
    pub fn of_process() -> Self {
        static PROCESS: OnceLock<MemoryLimit> = OnceLock::new();
        let limit = || {
            let (bytes, source) = machine::memory();
            Self::of((bytes / 4).max(Self::LEAST), format!("a quarter of {source}"))
        };
        PROCESS.get_or_init(limit).clone()
    }

    fn of(bytes: usize, source: String) -> Self {
        let [held, streams_paused] = Default::default();
        Self(Arc::new(Shared { bytes, source, held, streams_paused }))
    }

    /// The limit.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Where it comes from, in a few words.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Bytes held now, as the runtimes have reported in their last turns: up to 64 KiB off for each.
    #[inline]
    pub fn held(&self) -> usize {
        self.0.held.load(Relaxed)
    }

    /// Streams that are paused now: they hold more than what is free leaves each of them, so they receive nothing and their
    /// sends wait.
    pub fn streams_paused(&self) -> usize {
        self.0.streams_paused.load(Relaxed)
    }

    pub(crate) fn add_paused(&self) {
        self.0.streams_paused.fetch_add(1, Relaxed);
    }

    pub(crate) fn sub_paused(&self, count: usize) {
        self.0.streams_paused.fetch_sub(count, Relaxed);
    }

    /// A runtime whose last report was `reported` holds `held` now. Returns the bytes that all runtimes hold.
    #[inline]
    pub(crate) fn report(&self, reported: &mut usize, held: usize) -> usize {
        let change = held.wrapping_sub(*reported);
        // Below the grain either way.
        if change.wrapping_add(GRAIN) < 2 * GRAIN {
            return self.held().wrapping_add(change);
        }
        *reported = held;
        self.0.held.fetch_add(change, Relaxed).wrapping_add(change)
    }

    /// A runtime whose last report was `reported` has ended.
    pub(crate) fn end(&self, reported: usize) {
        self.0.held.fetch_sub(reported, Relaxed);
    }
}

impl fmt::Debug for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryLimit({} of {} bytes, {})", self.held(), self.bytes(), self.source())
    }
}
