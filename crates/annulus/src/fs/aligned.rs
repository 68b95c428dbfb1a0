//! Memory for direct I/O.
#![allow(unsafe_code)]

use crate::bytes::buf::{IoBuf, IoBufMut};
use crate::bytes::chunk::Chunk;
use crate::runtime::current;
use annulus_driver::BufferRegistry;
use annulus_kernel::{Limit, Resource};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// Zeroed memory with the alignment that direct I/O needs; see
/// [`File::alignment`](super::File::alignment).
///
/// ```no_run
/// use annulus::fs::{AlignedBuf, OpenOptions};
///
/// # annulus::run(async {
/// let file = OpenOptions::new().read(true).direct(true).open("/dev/nvme0n1").await?;
/// let alignment = file.alignment().await?;
/// let mut buf = AlignedBuf::new(128 << 10, alignment.memory)?;
/// let mut offset = 0;
/// loop {
///     let (read, back) = file.read_at(buf, offset).await;
///     buf = back;
///     match read? {
///         0 => break,
///         count => offset += count as u64, // The bytes are in `buf[..count]`.
///     }
/// }
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// Reads and writes at an offset cost less CPU time with a buffer that was allocated in a running
/// runtime and is used again: on io_uring, it is registered with the kernel after a few calls, and
/// then its pages stay in memory. Per runtime, these are at most 1,024 buffers and 64 MiB, and no
/// more than `RLIMIT_MEMLOCK` allows; other buffers work without that.
pub struct AlignedBuf {
    start: NonNull<u8>,
    layout: Layout,
    /// Where the buffer was added when it was allocated.
    registry: Option<Rc<BufferRegistry>>,
}

impl AlignedBuf {
    /// Allocates `len` bytes at a multiple of `align`.
    ///
    /// # Errors
    /// `InvalidInput` if `len` is zero, `align` is not a power of two, or the size exceeds the
    /// address space; `OutOfMemory` if the system cannot provide the memory.
    pub fn new(len: usize, align: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len, align).ok().filter(|_| len > 0);
        let layout = layout.ok_or_else(|| {
            let text = format!(
                "cannot allocate {len} bytes aligned to {align}: the length must be from 1 to {}, and the alignment a power of two",
                isize::MAX
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(|| out_of_memory(layout))?;
        let registry = current::with(|core| core.buffer_registry.clone()).flatten();
        if let Some(registry) = &registry {
            // SAFETY: only the drop frees the memory, after it has removed the buffer.
            unsafe { registry.add(start.as_ptr(), len) };
        }
        Ok(Self { start, layout, registry })
    }
}

/// Returns the error of a failed allocation, with its size and the limit on this process's address
/// space.
fn out_of_memory(layout: Layout) -> io::Error {
    let limit = match Limit::of(Resource::AddressSpace).soft {
        Some(bytes) => format!("{bytes} bytes"),
        None => "unlimited".to_owned(),
    };
    let text = format!(
        "cannot allocate {} bytes aligned to {} (limit on this process's address space, RLIMIT_AS: {limit}); \
         allocate less, or reuse buffers",
        layout.size(),
        layout.align(),
    );
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `new` has allocated and zeroed this many bytes, which only `self` owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `new` has allocated and zeroed this many bytes, which only `self` owns and which
        // are borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

// SAFETY: only this value owns the memory, which is on the heap and initialised.
#[diagnostic::do_not_recommend]
unsafe impl IoBuf for AlignedBuf {
    fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.layout.size()
    }
}

// SAFETY: only this value owns the memory, which is on the heap and initialised.
unsafe impl IoBufMut for AlignedBuf {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn bytes_total(&mut self) -> usize {
        self.layout.size()
    }

    unsafe fn set_init(&mut self, _count: usize) {}
}

impl From<AlignedBuf> for Chunk {
    fn from(buf: AlignedBuf) -> Self {
        Self::from_buf(buf)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // Memory that is allocated later at this address is not registered.
        self.registry.iter().for_each(|registry| registry.remove(self.start.as_ptr()));
        // SAFETY: `new` has allocated the memory with this layout, and nothing else frees it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.layout.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_buffers_are_aligned_and_zeroed() {
        for align in [1, 512, 4096, 1 << 21] {
            let mut buf = AlignedBuf::new(5000, align).unwrap();
            assert_eq!(IoBuf::as_ptr(&buf) as usize % align, 0);
            assert!(buf.len() == 5000 && buf.iter().all(|byte| *byte == 0));
            buf[4999] = 1;
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends the program if the system has no memory")]
    fn allocating_more_than_the_system_has_fails() {
        let error = AlignedBuf::new(1 << 47, 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        let text = error.to_string();
        assert!(text.contains("140737488355328 bytes") && text.contains("RLIMIT_AS"), "{text}");
    }

    #[test]
    fn impossible_layouts_are_refused() {
        for (len, align) in [(0, 512), (4096, 0), (4096, 3), (usize::MAX, 4096)] {
            let error = AlignedBuf::new(len, align).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
