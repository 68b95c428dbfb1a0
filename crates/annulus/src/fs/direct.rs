//! Memory for direct I/O that is registered with the ring.
#![allow(unsafe_code)]

use super::aligned::AlignedBuf;
use super::permits::{Permit, Permits};
use crate::bytes::buf::{IoBuf, IoBufMut};
use crate::bytes::chunk::Chunk;
use crate::runtime::core::Core;
use crate::runtime::current;
use annulus_kernel::IoVec;
use annulus_ring::BufferTable;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// The alignment of buffers, and of their size: enough for direct I/O on every device.
const STEP: usize = 4096;

/// A pool of buffers of one size for direct I/O: aligned, and registered with the runtime's ring, so that the kernel need not look
/// up and pin their pages for each read or write.
///
/// [`File::read_at`](super::File::read_at), [`File::write_at`](super::File::write_at) and the methods built on them recognise a buffer of
/// their own runtime's pool, or a [slice](IoBuf::slice) of one, and use it as registered. Anywhere else it is plain
/// aligned memory: on epoll, in another runtime, or if the kernel refused it. [`registered`](Self::registered) has the reason.
///
/// The memory is freed once the pool and all its buffers are dropped, and no operation is in flight in it. A clone is the same
/// pool.
///
/// ```no_run
/// use annulus::fs::{DirectPool, OpenOptions};
///
/// # annulus::run(async {
/// let file = OpenOptions::new().read(true).direct(true).open("data").await?;
/// let pool = DirectPool::new(32, 4096)?;
/// let buf = pool.take().await;
/// let (read, buf) = file.read_at(buf, 0).await;
/// println!("{:?}", &buf[..read?]);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct DirectPool {
    memory: Rc<Shared>,
    permits: Permits,
}

/// The memory of the buffers, freed once none is in use.
struct Shared {
    core: Rc<Core>,
    memory: AlignedBuf,
    /// Bytes of a buffer.
    size: usize,
    /// The number of the pool's registration in the driver.
    registration: io::Result<u32>,
}

impl DirectPool {
    /// `count` buffers of `size` bytes each, all zero.
    ///
    /// # Errors
    /// `InvalidInput` for no buffers, a size that is no multiple of 4096, or more than 1 GiB in all; or outside a runtime. It is no
    /// error if they cannot be registered.
    pub fn new(count: usize, size: usize) -> io::Result<Self> {
        let bytes = total(count, size)?;
        let core = current::get()?;
        let memory = AlignedBuf::new(bytes, STEP)?;
        let vector = IoVec { base: IoBuf::as_ptr(&memory), len: bytes };
        // SAFETY: the memory is on the heap, and the drop of `Shared` makes the driver forget it before it is freed.
        let registration = unsafe { core.enter()?.io.driver.register_memory(vector) };
        let permits = Permits::new(core.clone(), count as u32);
        let memory = Rc::new(Shared { core, memory, size, registration });
        Ok(Self { memory, permits })
    }

    /// Whether the memory is registered, or why not.
    ///
    /// # Errors
    /// `Unsupported` on epoll, `OutOfMemory` beyond `RLIMIT_MEMLOCK`, `QuotaExceeded` for a 65th pool, `PermissionDenied` in a
    /// locked-down runtime, `InvalidInput` before Linux 5.19.
    pub fn registered(&self) -> Result<(), &io::Error> {
        self.memory.registration.as_ref().map(drop)
    }

    /// Bytes of a buffer.
    pub fn buffer_size(&self) -> usize {
        self.memory.size
    }

    /// Buffers that can be taken now: free, and not reserved for a waiting task.
    pub fn available(&self) -> usize {
        self.permits.available()
    }

    /// Waits for a buffer: tasks get one in the order in which they asked. It has the bytes of its last use.
    ///
    /// A task that holds buffers while it waits for more may wait for ever.
    ///
    /// # What dropping the future does
    /// The buffer that it was to get goes to the next task. If the future is forgotten instead (`mem::forget`), the others are
    /// delayed by one or two turns of the loop.
    pub fn take(&self) -> impl Future<Output = DirectBuf> + use<> {
        let (memory, permit) = (self.memory.clone(), self.permits.take());
        async { DirectBuf { memory, permit: permit.await } }
    }

    /// A buffer, if one is free and no task waits for it.
    pub fn try_take(&self) -> Option<DirectBuf> {
        let permit = self.permits.try_take()?;
        Some(DirectBuf { memory: self.memory.clone(), permit })
    }
}

impl fmt::Debug for DirectPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectPool")
            .field("buffer_size", &self.memory.size)
            .field("available", &self.available())
            .field("registered", &self.registered())
            .finish()
    }
}

/// The bytes of all buffers.
fn total(count: usize, size: usize) -> io::Result<usize> {
    let refused = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if count == 0 || size == 0 || !size.is_multiple_of(STEP) {
        let what = format!("{count} direct buffers of {size} bytes");
        return refused(format!("{what}: take at least one, and a multiple of {STEP} bytes"));
    }
    match count.checked_mul(size) {
        Some(bytes) if bytes <= BufferTable::MOST => Ok(bytes),
        _ => refused(format!(
            "{count} direct buffers of {size} bytes: a pool has at most {} bytes; make several",
            BufferTable::MOST
        )),
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // After the runtime's end, and in a forked child, no operation can start in it.
        if let (Ok(name), Ok(mut inner)) = (&self.registration, self.core.enter()) {
            inner.io.driver.unregister_memory(*name);
        }
    }
}

/// A buffer of a [`DirectPool`]. Dropping it returns it to the pool.
///
/// ```
/// use annulus::fs::{self, DirectPool, File, IoBuf};
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-direct-{}", std::process::id()));
/// let pool = DirectPool::new(2, 4096)?;
/// let mut page = pool.take().await;
/// page[..6].copy_from_slice(b"header");
/// let file = File::create(&path).await?; // With `OpenOptions::direct` on a device.
/// let (written, part) = file.write_all_at(page.slice(..512), 0).await;
/// written?;
/// assert_eq!(pool.available(), 1);
/// drop(part.into_inner()); // Back to the pool.
/// assert_eq!(pool.available(), 2);
/// # fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct DirectBuf {
    memory: Rc<Shared>,
    permit: Permit,
}

impl DirectBuf {
    fn start(&self) -> *mut u8 {
        let offset = self.permit.number() as usize * self.memory.size;
        self.memory.memory.start().wrapping_add(offset)
    }
}

impl Deref for DirectBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the pool's memory, which was zeroed, and its permit is the only one with this number.
        unsafe { std::slice::from_raw_parts(self.start(), self.memory.size) }
    }
}

impl DerefMut for DirectBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range lies within the pool's memory, which was zeroed; its permit is the only one with this number, which
        // is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.memory.size) }
    }
}

// SAFETY: the range is this buffer's alone, initialised, and lies on the heap, which the buffer keeps alive.
unsafe impl IoBuf for DirectBuf {
    fn as_ptr(&self) -> *const u8 {
        self.start()
    }

    fn bytes_init(&self) -> usize {
        self.memory.size
    }
}

// SAFETY: the range is this buffer's alone, initialised, and lies on the heap, which the buffer keeps alive.
unsafe impl IoBufMut for DirectBuf {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start()
    }

    fn bytes_total(&mut self) -> usize {
        self.memory.size
    }

    unsafe fn set_init(&mut self, _count: usize) {}
}

impl From<DirectBuf> for Chunk {
    fn from(buf: DirectBuf) -> Self {
        Self::from_buf(buf)
    }
}

impl fmt::Debug for DirectBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectBuf({} bytes)", self.memory.size)
    }
}
