//! The memory of a pool, its size, and the limits on its size.
#![allow(unsafe_code)]

use annulus_kernel::{Limit, Mapping, Resource, with_text};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Bytes per buffer: a multiple of 4096, at most 16 MiB.
    pub buffer: u32,
    /// The number of buffers: a power of two, at most 32,768.
    pub count: u32,
}

impl Default for PoolSize {
    /// Returns 1024 buffers of 256 KiB. Large buffers need fewer receives per message. They cost
    /// address space, not memory: the system allocates a page when it is first written, so a small
    /// message costs one page.
    fn default() -> Self {
        Self { buffer: 256 * 1024, count: 1024 }
    }
}

impl PoolSize {
    /// Returns true if the buffers may have this size: see [`buffer`](Self::buffer).
    pub fn is_buffer_valid(self) -> bool {
        self.buffer.is_multiple_of(4096) && (4096..=1 << 24).contains(&self.buffer)
    }

    /// Returns true if a pool may have this many buffers: see [`count`](Self::count).
    pub fn is_count_valid(self) -> bool {
        self.count.is_power_of_two() && self.count <= 32_768
    }

    /// Returns the bytes of address space that a pool of this size reserves.
    pub fn reserved(self) -> usize {
        self.stride() * self.count as usize
    }

    /// Returns the distance in bytes from one buffer to the next.
    pub(super) fn stride(self) -> usize {
        (self.buffer as usize).next_multiple_of(rustix::param::page_size())
    }
}

/// Creates the error for a range that could not be reserved, with the limit that applies and the
/// remedy.
pub(super) fn cannot_reserve(bytes: usize, error: io::Error) -> io::Error {
    let bound = match Limit::of(Resource::AddressSpace).soft {
        Some(limit) => format!(
            "the address space of this process is limited to {} MiB; raise the limit (`ulimit -v`), or use fewer buffers",
            limit >> 20
        ),
        None => {
            "the system refuses, as it does if vm.overcommit_memory is 2; use fewer buffers".into()
        }
    };
    let text =
        format!("reserving {} MiB of addresses for receive memory: {error}: {bound}", bytes >> 20);
    with_text(error, text)
}

/// Checks that a pool size is valid, see [`PoolSize`].
///
/// # Errors
/// `InvalidInput`, with the size, if the size is invalid.
pub(super) fn check_size(size: PoolSize) -> io::Result<()> {
    if size.is_buffer_valid() && size.is_count_valid() {
        return Ok(());
    }
    let text = format!(
        "a pool of {} buffers of {} bytes is invalid: the count must be a power of two up to 32768, and the size a multiple of 4096 up to 16 MiB",
        size.count, size.buffer
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// The part of a pool that may outlive the pool: the memory, and the list through which other
/// threads give buffers back.
pub struct PoolMemory {
    pub(super) mapping: Mapping,
    /// Memory that the network stack fills, for zero-copy receives.
    pub(super) area: Option<Mapping>,
    /// Distance in bytes from one buffer to the next: whole pages of the system, so that each
    /// buffer can be discarded separately.
    pub(super) stride: usize,
    pub(super) page: usize,
    returned: Mutex<Vec<u16>>,
    any_returned: AtomicBool,
}

impl PoolMemory {
    /// Reserves the range of addresses.
    ///
    /// # Errors
    /// Returns the system's error, such as `OutOfMemory`, with the limit that applies, if the range
    /// cannot be reserved.
    pub(super) fn reserve(size: PoolSize, area: usize) -> io::Result<Self> {
        let map = |len| Mapping::anonymous(len).map_err(|error| cannot_reserve(len, error));
        let mapping = map(size.reserved())?;
        let area = (area > 0).then(|| map(area)).transpose()?;
        // This fails only if the system has no huge pages, and then there is nothing to forgo.
        _ = mapping.forgo_huge_pages();
        let (stride, page) = (size.stride(), rustix::param::page_size());
        Ok(Self {
            mapping,
            area,
            stride,
            page,
            returned: Mutex::default(),
            any_returned: AtomicBool::new(false),
        })
    }

    /// Returns the memory that the network stack fills, if there is any.
    pub(crate) fn area(&self) -> Option<&Mapping> {
        self.area.as_ref()
    }

    /// Returns the address of a buffer.
    ///
    /// The id is not checked here: `Pool::mark_lent` and `Pool::lend` look each id up in the table
    /// of buffers, and a second check costs a dozen instructions per datagram. So this function is
    /// unsafe:
    ///
    /// ```compile_fail,E0133
    /// fn beyond(memory: &annulus_driver::PoolMemory) -> *mut u8 {
    ///     memory.address(u16::MAX)
    /// }
    /// ```
    ///
    /// # Safety
    /// The id must be one that the pool has handed out.
    #[inline]
    pub unsafe fn address(&self, id: u16) -> *mut u8 {
        let offset = usize::from(id) * self.stride;
        debug_assert!(offset < self.mapping.len());
        // SAFETY: the pool has handed out the id, so it is below `PoolSize::count`, and the mapping
        // holds that many strides.
        unsafe { self.mapping.as_ptr().add(offset) }
    }

    /// Gives a buffer back from any thread. The pool takes it back at its next refill.
    pub fn give_back_remotely(&self, id: u16) {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        // Release pairs with the acquire swap in `take_returned`: a thread that sees the flag also
        // sees the list.
        self.any_returned.store(true, Ordering::Release);
    }

    /// Returns true if buffers have been given back through the list.
    #[inline]
    pub(super) fn any_returned(&self) -> bool {
        self.any_returned.load(Ordering::Relaxed)
    }

    /// Takes the buffers that have been given back through the list since the last call.
    #[cold]
    pub(super) fn take_returned(&self) -> Vec<u16> {
        self.any_returned.swap(false, Ordering::Acquire);
        std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
