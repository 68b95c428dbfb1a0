//! The size of a pool, and its limits.

use annulus_kernel::{Limit, Resource};
use std::io;

/// The size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Bytes a buffer: a multiple of 4096.
    pub buffer: u32,
    /// The number of buffers: a power of two, at most 32,768.
    pub count: u32,
}

impl Default for PoolSize {
    /// 1024 buffers of 256 KiB. Large buffers take fewer receives a message. They cost addresses, not memory: pages are allocated
    /// when they are written to, and a small message costs one page.
    fn default() -> Self {
        Self { buffer: 256 * 1024, count: 1024 }
    }
}

impl PoolSize {
    /// Bytes of addresses that a pool of this size reserves.
    pub fn reserved(self) -> usize {
        self.stride() * self.count as usize
    }

    /// Bytes from one buffer to the next one.
    pub(super) fn stride(self) -> usize {
        (self.buffer as usize).next_multiple_of(rustix::param::page_size())
    }
}

/// The error if the range could not be reserved: the limit that applies, and the remedy.
pub(super) fn cannot_reserve(bytes: usize, error: &io::Error) -> io::Error {
    let bound = match Limit::of(Resource::AddressSpace).soft {
        Some(limit) => format!(
            "this process may have {} MiB of addresses; raise the limit (`ulimit -v`), or ask for fewer buffers",
            limit >> 20
        ),
        None => {
            "the system refuses, as it does if vm.overcommit_memory is 2; ask for fewer buffers"
                .into()
        }
    };
    let text =
        format!("reserving {} MiB of addresses for receive memory: {error}: {bound}", bytes >> 20);
    io::Error::new(error.kind(), text)
}

/// # Errors
/// `InvalidInput`, naming the size, if it is out of range.
pub(super) fn check(size: PoolSize) -> io::Result<()> {
    let whole_pages = size.buffer.is_multiple_of(4096) && (4096..=1 << 24).contains(&size.buffer);
    let valid_count = size.count.is_power_of_two() && size.count <= 32_768;
    if whole_pages && valid_count {
        return Ok(());
    }
    let text = format!(
        "a pool of {} buffers of {} bytes: take a power of two up to 32768, each a multiple of 4096 up to 16 MiB",
        size.count, size.buffer
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
