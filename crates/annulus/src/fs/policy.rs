//! Where a call on a file is made.

use crate::name::named;

/// Where calls on files are made: on the loop, or off it.
///
/// io_uring hands most file operations to kernel workers, and a hop there and back costs more than a call on cached data
/// takes. But a call that waits for a device holds up everything else on the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// On the loop, as a plain program would. Whatever a device makes it wait, everything else waits with it.
    Inline,
    /// On the loop where that has been quick: reads that find their data in memory, and what the device has lately done
    /// within [`QUICK`](crate::fs::QUICK). Off the loop otherwise. What was never tried is tried on the loop: a device
    /// that is slow from the start holds it up a few times for each kind of call, and a file that was in memory for a
    /// thousand reads may do so, too, when it no longer is. Closing is always done on the loop. The default.
    #[default]
    Adaptive,
    /// Off the loop, always: by the ring, or by a worker thread where the ring has no such operation.
    Offload,
}

named!(Policy, "policy", {
    "inline" => Inline,
    "adaptive" => Adaptive,
    "offload" => Offload,
});
