//! How slow a disk is, and how large.

use std::time::Duration;

/// A simulated disk's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// What a read takes that finds not everything in the page cache, or goes past it.
    pub read: Duration,
    /// What writing to the device takes: what was written past the cache, or is synced.
    pub write: Duration,
    /// What a sync takes beside.
    pub sync: Duration,
    /// Bytes that all files together may have, in whole pages: beyond that, ENOSPC.
    pub capacity: u64,
    /// What direct I/O's memory, offset and length must be multiples of: else EINVAL.
    pub alignment: u32,
}

impl Default for Device {
    /// A quick one: 80 µs to read, 20 µs to write, half a millisecond to sync, 1 GiB.
    fn default() -> Self {
        Self {
            read: Duration::from_micros(80),
            write: Duration::from_micros(20),
            sync: Duration::from_micros(500),
            capacity: 1 << 30,
            alignment: 512,
        }
    }
}
