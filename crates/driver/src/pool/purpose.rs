//! The purposes of the buffers of a pool.

/// The purpose of buffers, as far as it decides how many the kernel has, and how large they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose {
    /// A budget may shorten them.
    pub(super) shortens: bool,
    /// Receives of more bytes are large: copying them costs more than arming a receive again.
    pub(super) large_above: u32,
    /// Buffers to spare for every four that a turn takes; by as much the depth grows if receives find none.
    spare: u32,
}

impl Purpose {
    /// Each stream that finds no buffer must be armed again, so there are twice as many as turns take.
    pub(super) const STREAMS: Self = Self { shortens: true, large_above: 32 * 1024, spare: 4 };
    /// Shorter buffers would truncate datagrams. The datagrams of a turn come through one receive, up to 33, so there is less to arm again:
    /// fewer bytes are large, and fewer buffers stand by (42 for turns of 33).
    pub(super) const DATAGRAMS: Self = Self { shortens: false, large_above: 4 * 1024, spare: 1 };

    /// A number of buffers, and those to spare.
    #[inline]
    pub(super) fn with_spare(self, buffers: u32) -> u32 {
        buffers + (buffers * self.spare).div_ceil(4)
    }
}
