//! The speed and the size of a disk.

use std::time::Duration;

/// The device of a simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The time of a read that is not all in the page cache, or bypasses it.
    pub read: Duration,
    /// The time of a write to the device: by direct I/O, or by a sync.
    pub write: Duration,
    /// The time of a sync, besides that of its write.
    pub sync: Duration,
    /// Bytes that all files together may have, in whole pages: ENOSPC beyond this limit.
    pub capacity: u64,
    /// The alignment of direct I/O, of memory, offset and length: EINVAL otherwise.
    pub alignment: u32,
}

impl Default for Device {
    /// A fast one: 80 µs to read, 20 µs to write, half a millisecond to sync, 1 GiB.
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
