//! Where file calls are made.

use crate::name::named;

/// Where file calls are made: inline, on the loop, or off it.
///
/// io_uring hands most file operations to kernel workers, and the way there and back costs more than a call on cached data. But an
/// inline call that waits for a device holds up everything else on the loop.
///
/// ```
/// use annulus::fs::{OpenOptions, Policy};
///
/// // For a runtime whose files are all on a network file system, and one file that is in memory.
/// let mut runtime = annulus::Runtime::builder().file_policy(Policy::Offload).build()?;
/// runtime.block_on(async {
///     let cpus = OpenOptions::new().read(true).policy(Policy::Inline).open("/proc/cpuinfo").await?;
///     let (read, _text) = cpus.read_at(Vec::with_capacity(4096), 0).await;
///     assert!(read? > 0);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Inline, as in a plain program. While a device makes a call wait, everything else on the loop waits with it.
    Inline,
    /// Inline if that has been quick: reads that find their data in memory, and calls that the device has lately done within
    /// [`QUICK`](crate::fs::QUICK). Off the loop otherwise. Calls of a kind that was never made are made inline: a device that is
    /// slow from the start holds up the loop a few times for each kind of call. So may a file that was in memory for a thousand
    /// reads and no longer is. Files are always closed inline. The default.
    #[default]
    Adaptive,
    /// Always off the loop: reads, direct writes and calls on paths by the ring, all others by a worker thread.
    Offload,
}

named!(Policy, "policy", {
    "inline" => Inline,
    "adaptive" => Adaptive,
    "offload" => Offload,
});
